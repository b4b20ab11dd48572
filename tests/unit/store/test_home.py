import subprocess
import sys
from pathlib import Path

from strop.store.home import home


def test_home_is_strop_home_where_set(monkeypatch, tmp_path):
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "mine"))
    assert home() == tmp_path / "mine"
    assert not (tmp_path / "mine").exists()


def test_home_is_a_folder_of_the_user_where_nothing_is_set(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    for value in ("", None):
        monkeypatch.setenv("STROP_HOME", "") if value == "" else monkeypatch.delenv("STROP_HOME")
        assert home() == Path("/home/ada/.strop")


def test_home_expands_a_tilde_and_is_absolute(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("STROP_HOME", "~/runs")
    assert home() == Path("/home/ada/runs")
    monkeypatch.setenv("STROP_HOME", "here")
    assert home() == Path.cwd() / "here"


def test_asking_for_home_loads_no_database():
    code = "import sys; import strop.store.home; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
