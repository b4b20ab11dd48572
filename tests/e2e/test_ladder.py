"""Continued pre-training, then answers, then preferences, then rewards: each from the model before it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from fakes.command import Strop
from fakes.model import save_tiny_model
from fakes.rounding import bfloat16_gap, spread_of
from strop.cli.run_folder import find_resumed
from strop.cli.training_here import summary, train_here
from strop.config.job import TrainingType
from strop.config.loading import load_job
from strop.data.examples import load_examples
from strop.inference.chat.answers import TextTokens
from strop.schema.job import JobStatus
from strop.store.database import open_database
from strop.store.home import home
from strop.store.jobs import get_job
from strop.store.metrics import step_metrics

# PEFT asks transformers by a name that is about to change.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

LADDER = Path(__file__).parents[2] / "examples" / "ladder"
FAST = {
    "train_dtype": "float32",
    "learning_rate": 5e-3,
    "n_epochs": 2,
    "lr_scheduler_type": "constant",
    "lr_warmup_steps": 0,
}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(name: str, *, resume: Path | None = None, **changes):
    """A job of the example, as `strop run` runs it, in this process."""
    config = load_job(LADDER / f"{name}.yaml", {**FAST, **changes})
    resumed = find_resumed(str(resume), None) if resume is not None else None
    result, session = train_here(config, Console(quiet=True), resumed=resumed)
    assert result.status is JobStatus.SUCCEEDED
    return result, session, summary(session.config, session.job_id, result, published_as=session.published_as)


def recorded(job_id: str, *names: str) -> dict[str, list[tuple[int, float]]]:
    database = open_database()
    try:
        with database.read() as session:
            assert get_job(session, job_id).status is JobStatus.SUCCEEDED
            return step_metrics(session, job_id, names)
    finally:
        database.close()


def logits(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return model(torch.tensor([[5, 9, 40, 77]])).logits


def plain_loss(model: str, rows: str) -> float:
    """The weighted mean over taught validation tokens, by a plain forward pass of a published model."""
    folder = home() / "models" / model
    network = AutoModelForCausalLM.from_pretrained(folder)
    tokens = TextTokens(AutoTokenizer.from_pretrained(folder), end_ids={2})
    path = LADDER / "data" / f"{rows}_validation.jsonl"
    total, weight = 0.0, 0.0
    for example in load_examples(path, TrainingType(rows), max_length=256, tokens=tokens).samples:
        for sequence in example.sequences:
            ids = torch.tensor([sequence.token_ids])
            with torch.no_grad():
                logprobs = torch.log_softmax(network(ids).logits[0, :-1], -1)
            taken = logprobs.gather(1, ids[0, 1:, None])[torch.tensor(sequence.loss_mask)[1:], 0]
            total += sequence.weight * -float(taken.sum())
            weight += sequence.weight * len(taken)
    return total / weight


def with_adapter(base: str, adapted: str) -> torch.Tensor:
    """What a published model says with the adapter that another one was published with."""
    model = AutoModelForCausalLM.from_pretrained(home() / "models" / base)
    with torch.no_grad():
        whole = PeftModel.from_pretrained(model, home() / "models" / adapted / "adapter")
        return whole(torch.tensor([[5, 9, 40, 77]])).logits


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_training_begins_with_the_model_that_the_one_before_published(
    dtype: str, tmp_path: Path, job_folder: Path
) -> None:
    """Weights are published as the float32 masters in either dtype: only what is computed differs."""
    folder = save_tiny_model(tmp_path / "start")
    told = {}
    before = logits(folder)
    spread = 0.0
    for name, model in (("cpt", str(folder)), ("sft", "lamps-cpt"), ("dpo", "lamps-sft")):
        result, session, told[name] = run(name, model=model, eval_steps=6, train_dtype=dtype)
        published = home() / "models" / f"lamps-{name}"
        assert told[name]["published_as"] == f"lamps-{name}"
        assert not torch.equal(logits(published), before)
        before = logits(published)
        spread = max(spread, spread_of(before))
        curve = recorded(session.job_id, "validation/data/loss")["validation/data/loss"]
        assert curve == [(point["step"], point["loss"]) for point in told[name]["validation"]]
        assert [step for step, _ in curve] == [0, 6, result.steps]
        assert curve[-1][1] < curve[0][1] - 0.3
    cpt, sft, dpo = (told[name]["validation"] for name in ("cpt", "sft", "dpo"))
    assert cpt[0]["loss"] == pytest.approx(math.log(391), abs=0.1)  # random weights, 391 tokens
    # Roundings of weights are the same for all tokens: the mean may err as far as one token does.
    bound = 1e-4 if dtype == "float32" else bfloat16_gap(num_layers=2, spread=spread, to_float32=True)
    assert sft[0]["loss"] == pytest.approx(plain_loss("lamps-cpt", "sft"), abs=bound)
    # Half of the rows also teach their best answer.
    assert dpo[0]["loss"] == pytest.approx(math.log(2) + plain_loss("lamps-sft", "dpo"), abs=bound)
    torch.testing.assert_close(with_adapter("lamps-sft", "lamps-dpo"), before, rtol=0, atol=1e-5)

    job = load_job(
        job_folder / "job.yaml",
        {
            "model": "lamps-dpo", "max_steps": 2, "lora_rank": 4, "eval_steps": 2,
            "train_dtype": dtype, "sampling_dtype": dtype,
        },
    )  # fmt: skip
    result, session = train_here(job, Console(quiet=True))
    assert (result.status, result.steps) == (JobStatus.SUCCEEDED, 2)
    gap = recorded(session.job_id, "mismatch/logprob_diff_max", "actor/num_updates")
    tokens = 2 * 4 * 8 * 2 * 12  # steps, rows, rollouts, turns and tokens: at most
    allowed = {"float32": 1e-3, "bfloat16": bfloat16_gap(num_layers=2, spread=spread, count=tokens)}
    assert max(value for _, value in gap["mismatch/logprob_diff_max"]) < allowed[dtype]
    assert sum(value for _, value in gap["actor/num_updates"]) >= 1
    rewarded = logits(home() / "models" / session.job_id)
    assert not torch.equal(rewarded, before)
    torch.testing.assert_close(with_adapter("lamps-dpo", session.job_id), rewarded, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sft", {}),
        ("dpo", {}),
        ("sft", {"lora_rank": 2, "lora_dropout": 0.3}),
        ("sft", {"train_dtype": "bfloat16"}),
        ("dpo", {"train_dtype": "bfloat16"}),
    ],
)
def test_two_sittings_give_bitwise_what_one_gives(name: str, changes: dict, tmp_path: Path) -> None:
    common = {"model": str(save_tiny_model(tmp_path / "start")), "eval_steps": 2, **changes}
    whole, _, expected = run(name, max_steps=8, **common)
    first, _, _ = run(name, max_steps=6, **common)  # an epoch's edge
    second, _, told = run(name, max_steps=8, **common, resume=first.checkpoint)
    assert torch.equal(logits(whole.checkpoint), logits(second.checkpoint))
    assert told["validation"] == expected["validation"]
    assert (whole.steps, second.steps) == (8, 8)
    assert told["published_as"] is not None
    third, _, again = run(name, max_steps=8, **common, resume=second.checkpoint)
    assert third.already_finished
    assert again["published_as"] is None, "it is published already"
    assert again["validation"] == told["validation"]


def test_metrics_of_preferences_are_recorded_and_reach_a_tracker(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "start")
    _, session, _ = run("dpo", model=str(folder), max_steps=4, trackers=["tensorboard"])
    names = ("dpo/loss", "dpo/rewards/margin", "dpo/rewards/accuracy", "lm/loss", "actor/lr")
    found = recorded(session.job_id, *names, "validation/data/preference_accuracy")
    assert found["dpo/rewards/margin"][0][1] == pytest.approx(0, abs=1e-5)
    assert found["dpo/rewards/margin"][-1][1] > 0
    assert all([step for step, _ in found[name]] == [1, 2, 3, 4] for name in names)
    assert [step for step, _ in found["validation/data/preference_accuracy"]] == [0, 4]
    board = EventAccumulator(str(session.folder / "tensorboard")).Reload()
    for name, points in found.items():
        tracked = [(one.step, one.value) for one in board.Scalars(name)]
        assert tracked == [(step, pytest.approx(value, rel=1e-6)) for step, value in points]


def test_the_command_line_shows_the_loss_and_refuses_bad_rows_with_their_line(
    tmp_path: Path, strop: Strop
) -> None:
    folder = save_tiny_model(tmp_path / "start")
    shutil.copytree(LADDER, tmp_path / "ladder")
    job = tmp_path / "ladder" / "sft.yaml"
    quick = ("--set", f"model={folder}", "--set", "n_epochs=1", "--set", "learning_rate=5e-3")
    first = strop("run", job, *quick, "--steps", 2, "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert [point["step"] for point in told["validation"]] == [0, 2]
    assert "before training        validation 5.9" in first.stderr
    assert "step   1/2   loss 5.9" in first.stderr
    assert AutoTokenizer.from_pretrained(told["checkpoint"]).chat_template
    bad = (tmp_path / "ladder" / "data" / "sft_train.jsonl").open("a")
    with bad:
        bad.write('{"messages": []}\n')
    refused = strop("run", job, *quick)
    assert refused.returncode == 2
    assert "sft_train.jsonl:37: messages: empty" in refused.stderr
