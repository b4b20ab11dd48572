"""`strop doctor`: what is there, what comes later, what is broken, each as it is on a machine made for it."""

import json
import socket
import sqlite3
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strop.cli.commands import app
from strop.cli.doctor import LOOKS, State
from strop.service.server_file import written_down
from strop.store.database import open_database
from strop.store.home import home

doctor = import_module("strop.cli.doctor")  # the function has the module's name


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROP_LANG", "en")
    monkeypatch.delenv("STROP_DATABASE_URL", raising=False)


def told(*more: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "--json", *more])
    said = json.loads(done.stdout)
    assert said["works"] == (done.exit_code == 0)
    return done.exit_code, {one["name"]: one for one in said["findings"]}


def test_a_new_machine_works_and_what_is_not_there_yet_comes_later() -> None:
    status, found = told()
    assert status == 0
    assert len(found) == len(LOOKS)
    assert found["torch"]["state"] == "ok"
    assert {name for name, one in found.items() if one["state"] == "later"} == {"database", "model"}
    assert not home().exists()


def test_what_is_there_is_told_with_its_place() -> None:
    open_database().close()
    (home() / "models" / "smollm2-135m").mkdir(parents=True)
    with written_down(home(), "http://127.0.0.1:4321"):
        _, found = told()
    assert found["database"] == {
        "name": "database", "state": "ok", "text": f"sqlite:///{home()}/strop.db", "fix": None,
    }  # fmt: skip
    assert found["model"]["text"] == f"smollm2-135m is in {home()}/models/smollm2-135m"
    assert found["server"]["text"] == "runs at http://127.0.0.1:4321"


def test_what_is_broken_is_told_with_the_fix_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home().mkdir(parents=True)
    (home() / "strop.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    status, found = told()
    assert (status, found["database"]["state"]) == (1, "broken")
    assert found["database"]["fix"] == "check STROP_DATABASE_URL or STROP_HOME"
    (tmp_path / "file").touch()
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "file" / "home"))
    _, found = told()
    assert (found["disk"]["state"], found["disk"]["fix"]) == ("broken", "name another folder by STROP_HOME")
    monkeypatch.setenv("STROP_DATABASE_URL", "nonsense")
    assert told()[1]["database"]["state"] == "broken"


def test_a_database_without_tables_gets_them_later_and_one_of_a_newer_strop_is_broken() -> None:
    home().mkdir(parents=True)
    place = home() / "strop.db"
    place.touch()
    status, found = told()
    assert (status, found["database"]["state"]) == (0, "later")
    assert found["database"]["text"] == f"sqlite:///{place}: the first run makes its tables"
    open_database().close()
    with closing(sqlite3.connect(place)) as newer, newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    status, found = told()
    assert (status, found["database"]["state"]) == (1, "broken")
    assert found["database"]["text"] == f"sqlite:///{place} was written by a newer Strop"


def test_too_little_memory_and_a_taken_port_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(doctor, "PORT", taken.getsockname()[1])
        monkeypatch.setattr(doctor, "_available_memory", lambda: 3_900_000_000)
        status, found = told()
    assert status == 0
    assert (found["memory"]["state"], found["memory"]["text"]) == ("warning", "3.9 GB available")
    assert (found["server"]["state"], found["server"]["fix"]) == ("warning", "strop up --port 0")


def test_it_speaks_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROP_LANG", "zh")
    monkeypatch.setattr(doctor, "_available_memory", lambda: 3_900_000_000)
    shown = CliRunner().invoke(app, ["doctor"]).stdout
    assert "memory     注意       可用 3.9 GB" in shown
    assert "修正: 关闭其他程序" in shown
    assert "首次运行时创建" in shown


def test_every_state_has_words() -> None:
    assert set(doctor._WORDS) == set(State)


def test_without_bubblewrap_it_says_so_and_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    _, found = told()
    assert found["sandbox"]["state"] == "warning"
    assert "not installed: bubblewrap (bwrap)" in found["sandbox"]["text"]
    assert "apt install bubblewrap" in found["sandbox"]["fix"]
