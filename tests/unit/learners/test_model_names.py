"""Names told apart without torch; the nearest right one is offered."""

import subprocess
import sys

import pytest

from strop.learners.model_names import complaint


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "home"))
    published = tmp_path / "home" / "models" / "calculator"
    published.mkdir(parents=True)
    (published / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["smollm2-135m", "SmolLM2-135M-Instruct", "calculator", "Qwen/Qwen2.5-0.5B", "HuggingFaceTB/any"]
)
def test_a_name_that_may_stand_for_a_model_passes(name):
    assert complaint(name) is None


def test_a_folder_passes_when_it_holds_a_model(home):
    (home / "mine").mkdir()
    assert complaint(str(home / "mine")) == (
        f"folder {str(home / 'mine')!r} holds no model: it has no config.json",
        "give a folder in Hugging Face layout",
    )
    (home / "mine" / "config.json").write_text("{}")
    assert complaint(str(home / "mine")) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("smollm2-135", "smollm2-135m"),
        ("smolm2-135m", "smollm2-135m"),
        ("SmolLM-135M", "smollm2-135m"),
        ("calcultor", "calculator"),
        ("gpt", None),
        ("m" * 400, None),
        ("a/b/c", None),
    ],
)
def test_any_other_name_is_refused_with_the_nearest_right_one(name, meant):
    found = complaint(name)
    assert found is not None
    message, fix = found
    assert message == f"no model {name!r}: not a folder, not a published or the bundled model, not a hub id"
    assert ("did you mean" in fix) is (meant is not None)
    assert meant is None or f"did you mean {meant!r}?" in fix


def test_names_are_told_without_torch():
    code = "import sys, strop.learners.model_names; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
