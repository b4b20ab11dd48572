"""Classpath -> class, and what is said when there is none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.errors import FunctionError
from strop.functions import load_processor

GOOD = """
from strop import AbstractRewardProcessor
class Exact(AbstractRewardProcessor):
    def process(self, input): ...
"""


@pytest.fixture(autouse=True)
def _restored_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The example's package `functions`, importable in the other tests, would win over a folder of that name.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not Path(path, "functions").is_dir()])
    for name in [name for name in sys.modules if name.partition(".")[0] == "functions"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def write(root: Path, path: str, text: str = GOOD) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def refusal(classpath: str, root: Path) -> FunctionError:
    with pytest.raises(FunctionError) as caught:
        load_processor(classpath, root)
    return caught.value


def test_both_forms_find_the_same_class(tmp_path: Path) -> None:
    write(tmp_path, "functions/reward/exact.py")
    by_module = load_processor("functions.reward.exact.Exact", tmp_path)
    by_file = load_processor("functions/reward/exact.py:Exact", tmp_path)
    assert by_module is by_file
    assert by_module.__module__ == "functions.reward.exact"
    assert load_processor("functions/reward/exact:Exact", tmp_path) is by_file


def test_imports_of_the_function_start_at_the_root(tmp_path: Path) -> None:
    write(tmp_path, "functions/tools.py", "NAME = 'Exact'")
    write(tmp_path, "functions/exact.py", GOOD + "from functions.tools import NAME\nfrom . import tools\n")
    assert load_processor("functions/exact.py:Exact", tmp_path).__name__ == "Exact"


@pytest.mark.parametrize("classpath", ["code/exact.py:Exact", "code.exact.Exact", "json.py:Exact"])
def test_a_file_with_the_name_of_a_library_is_still_the_users(classpath: str, tmp_path: Path) -> None:
    import code
    import json

    write(tmp_path, "code/exact.py")
    write(tmp_path, "json.py")
    assert load_processor(classpath, tmp_path).__name__ == "Exact"
    assert sys.modules["json"] is json
    assert sys.modules["code"] is code


def test_a_file_whose_name_is_no_identifier_can_be_loaded(tmp_path: Path) -> None:
    write(tmp_path, "my-rewards/exact-match.py")
    assert load_processor("my-rewards/exact-match.py:Exact", tmp_path).__name__ == "Exact"


@pytest.mark.parametrize(
    "classpath", ["Exact", "exact.py", ":Exact", "exact.py:", "a b.Exact", "exact.py:1x"]
)
def test_a_malformed_classpath_is_told_the_two_forms(classpath: str, tmp_path: Path) -> None:
    write(tmp_path, "exact.py")
    error = refusal(classpath, tmp_path)
    assert repr(classpath) in str(error)
    if classpath != "exact.py":  # reads as module `exact`, class `py`
        assert "`pkg.mod.Class` or `path/file.py:Class`" in str(error)


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, "functions/reward.py")
    error = refusal("functions/rewards.py:Exact", tmp_path)
    assert "no file 'functions/rewards.py'" in error.message
    assert error.fix == "did you mean 'functions/reward.py'?"
    assert refusal("functions.rewards.Exact", tmp_path).fix == "did you mean 'functions/reward.py'?"


def test_a_missing_class_names_the_nearest_or_all_there_are(tmp_path: Path) -> None:
    write(tmp_path, "exact.py", GOOD + "class Other(Exact): ...\n")
    near = refusal("exact.py:Exat", tmp_path)
    assert near.message == "classpath 'exact.py:Exat': no class 'Exat' in exact.py"
    assert near.fix == "did you mean 'Exact'?"
    assert refusal("exact.py:Zzz", tmp_path).fix == "it has Exact, Other"
    write(tmp_path, "empty.py", "from strop import AbstractRewardProcessor")
    assert refusal("empty.py:Zzz", tmp_path).fix == "it has no processor class at all"


def test_what_is_no_processor_is_refused(tmp_path: Path) -> None:
    write(
        tmp_path, "odd.py", GOOD + "class Plain: ...\nclass Half(AbstractRewardProcessor): ...\nvalue = 3\n"
    )
    assert "'value' in odd.py is a int, not a class" in str(refusal("odd.py:value", tmp_path))
    assert "derive from AbstractRolloutProcessor" in str(refusal("odd.py:Plain", tmp_path))
    assert "has no process()" in str(refusal("odd.py:Half", tmp_path))


def test_a_failing_import_shows_the_users_frames_only(tmp_path: Path) -> None:
    write(tmp_path, "functions/deep.py", "def boom():\n    raise ValueError('no key')\nboom()\n")
    write(tmp_path, "functions/top.py", "import functions.deep\n")
    text = str(refusal("functions/top.py:Exact", tmp_path))
    assert "importing it failed" in text
    assert 'File "functions/top.py", line 1, in <module>' in text
    assert 'File "functions/deep.py", line 2, in boom' in text
    assert "ValueError: no key" in text
    assert "importlib" not in text
    assert "loading.py" not in text


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, "broken.py", "def f(:\n")
    text = str(refusal("broken.py:Exact", tmp_path))
    assert "broken.py" in text
    assert "line 1" in text
    assert "SyntaxError" in text


def test_an_import_of_a_file_beside_it_is_told_the_dotted_name(tmp_path: Path) -> None:
    write(tmp_path, "functions/tools.py", "")
    write(tmp_path, "functions/exact.py", "import tools\n" + GOOD)
    fix = refusal("functions/exact.py:Exact", tmp_path).fix
    assert fix == "imports start at zipdir: write `import functions.tools`, or set zipdir to 'functions'"


def test_an_import_that_starts_above_zipdir_is_told_where_it_should_start(tmp_path: Path) -> None:
    folder = tmp_path / "functions"
    folder.mkdir()
    (folder / "tools.py").write_text("")
    (folder / "agent.py").write_text("from functions.tools import calculate\n")
    with pytest.raises(FunctionError, match="No module named 'functions'") as caught:
        load_processor("agent.py:Agent", folder)
    assert (
        caught.value.fix == f"imports start at zipdir: set zipdir to {str(tmp_path)!r}, where 'functions' is"
    )


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    write(tmp_path, "exact.py", "import surely_not_installed\n" + GOOD)
    error = refusal("exact.py:Exact", tmp_path)
    assert "ModuleNotFoundError" in error.message
    assert error.fix == "install the package that has 'surely_not_installed' beside Strop"


@pytest.mark.parametrize(
    ("line", "told"),
    [("raise SystemExit(2)", "SystemExit: 2"), ("raise KeyboardInterrupt", "KeyboardInterrupt")],
)
def test_a_module_that_exits_on_import_is_an_error_and_no_exit(tmp_path: Path, line: str, told: str) -> None:
    write(tmp_path, "leaves.py", f"{line}\n")
    assert told in str(refusal("leaves.py:Exact", tmp_path))


def test_a_missing_root_is_named(tmp_path: Path) -> None:
    error = refusal("exact.py:Exact", tmp_path / "nowhere")
    assert "no folder" in error.message
    assert "nowhere" in error.message
