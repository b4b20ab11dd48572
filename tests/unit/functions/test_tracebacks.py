"""The part of a traceback that is the user's."""

import importlib
import json
from pathlib import Path

import pytest

from strop.functions import user_traceback, where_raised

SOURCE = """
import json
def parse(text):
    return json.loads(text)
def outer(text):
    try:
        parse(text)
    except ValueError as error:
        raise RuntimeError("cannot score") from error
"""


def raised(folder: Path, name: str, argument: str) -> BaseException:
    file = folder / "functions" / "judge.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    space: dict[str, object] = {}
    exec(compile(SOURCE, str(file), "exec"), space)
    function = space[name]
    assert callable(function)
    try:
        function(argument)
    except (RuntimeError, ValueError) as error:
        return error
    raise AssertionError("nothing was raised")


def test_library_frames_are_left_out_and_paths_are_relative(tmp_path: Path) -> None:
    error = raised(tmp_path, "parse", "{")
    text = user_traceback(error, tmp_path)
    assert 'File "functions/judge.py", line 4, in parse' in text
    assert "json/decoder.py" not in text
    assert "test_tracebacks.py" not in text
    assert text.splitlines()[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert where_raised(error, tmp_path) == "functions/judge.py, line 4, in parse"


def test_the_cause_is_kept(tmp_path: Path) -> None:
    text = user_traceback(raised(tmp_path, "outer", "{"), tmp_path)
    assert "JSONDecodeError" in text
    assert "The above exception was the direct cause" in text
    assert text.splitlines()[-1] == "RuntimeError: cannot score"


def test_without_a_frame_below_the_root_other_frames_remain(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert "test_tracebacks.py" in user_traceback(caught.value, tmp_path)


def test_frames_of_the_interpreter_are_left_out_where_the_root_is_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_judge.py").write_text("import no_such_module_at_all\n")
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("broken_judge")
    text = user_traceback(caught.value, tmp_path)
    assert "frozen importlib" not in text
    assert 'File "broken_judge.py", line 1, in <module>' in text
