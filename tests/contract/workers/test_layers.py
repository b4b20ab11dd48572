import subprocess
import zipfile
from pathlib import Path

import pytest

from strop.errors import FunctionError
from strop.store.home import home
from strop.workers.layers import build_layer, build_log, layer_code, layer_python, requirement_lines


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Path:
    """A package index of one wheel; pip asks no other."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_judge-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_judge.py", "VERDICT = 'fine'\n")
        info = "tiny_judge-1.2.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-judge\nVersion: 1.2\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def said(python, code):
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_layer_has_its_packages_and_strops_behind_them(shelf):
    requirements = "tiny-judge==1.2  # of ours\n"
    code = layer_code(requirements)
    python = build_layer(home(), code, requirements)
    assert python == layer_python(home(), code)
    assert (
        said(python, "import tiny_judge, pydantic, strop.workers.worker; print(tiny_judge.VERDICT)") == "fine"
    )
    assert "Successfully installed tiny-judge-1.2" in build_log(home(), code)
    (shelf / "tiny_judge-1.2-py3-none-any.whl").unlink()
    assert build_layer(home(), code, requirements) == python


def test_what_is_installed_beside_strop_is_not_fetched_again(shelf):
    code = layer_code("pydantic")
    python = build_layer(home(), code, "pydantic")
    assert "Requirement already satisfied: pydantic" in build_log(home(), code)
    assert said(python, "import pydantic; print(pydantic.__name__)") == "pydantic"


def test_a_build_that_fails_says_what_pip_said_and_leaves_nothing(shelf):
    code = layer_code("no-such-package-anywhere")
    with pytest.raises(FunctionError, match="No matching distribution found for no-such-package-anywhere"):
        build_layer(home(), code, "no-such-package-anywhere")
    assert "no-such-package-anywhere" in build_log(home(), code)
    assert layer_python(home(), code) is None
    assert [path.name for path in (home() / "layers").iterdir()] == [f"{code}.log"]


def test_a_layer_is_named_by_what_it_asks_for():
    assert layer_code("a\n\n# why\nb\n") == layer_code("a\nb")
    assert layer_code("a") != layer_code("b")
    assert requirement_lines("a \\\n  ==1\nb#c\n") == ["a    ==1", "b#c"]


@pytest.mark.parametrize(
    "line",
    [
        "-r other.txt",
        "--requirement x",
        "-c limits.txt",
        "-e .",
        "./local",
        "/etc",
        "file:///x",
        "x @ file:///x",
    ],
)
def test_what_points_at_other_files_is_refused(line):
    with pytest.raises(FunctionError, match="points at a file that a layer does not have"):
        requirement_lines(f"numpy\n{line}\n")
