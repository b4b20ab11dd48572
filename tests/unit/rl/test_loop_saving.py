"""The whole flow on fakes: when checkpoints are written, which stay, and which is the best."""

import shutil

import pytest

from fakes.bench import Bench, job
from fakes.functions import last_digit
from strop.errors import CheckpointError
from strop.schema.job import JobStatus


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.mark.parametrize(
    ("hyper", "saved"),
    [
        ({"save_strategy": "no"}, [6]),
        ({"save_strategy": "steps", "save_steps": 2}, [2, 4, 6]),
        ({"save_strategy": "steps", "save_steps": 4}, [4, 6]),
        ({"save_strategy": "epoch"}, [4, 6]),
    ],
)
async def test_checkpoints_follow_the_strategy_and_the_last_is_always_published(bench, hyper, saved):
    await bench.train(job(max_steps=6, **hyper))
    assert [one["step"] for one in bench.recorder.checkpoints] == saved
    assert [one["published"] for one in bench.recorder.checkpoints] == [False] * (len(saved) - 1) + [True]


async def test_a_checkpoint_carries_the_validation_of_its_step(bench):
    await bench.train(job(max_steps=3, eval_steps=2, save_strategy="steps", save_steps=1))
    assert [one["validation"] for one in bench.recorder.checkpoints] == [None, 1.0, 1.0]


async def test_the_oldest_checkpoint_goes_but_never_the_best(tmp_path):
    bench = Bench(tmp_path)
    scores = {"v0": "0", "v1": "2", "v2": "9", "v3": "3", "v4": "4", "v5": "5"}

    def right(payload):
        known = scores.get(payload.request_metadata.rollout_id[:2])
        if known is not None:
            payload.agent_output.messages[-1]["content"] = known
        return last_digit(payload)

    bench.functions.functions["right"] = right
    await bench.train(job(max_steps=5, eval_steps=1, save_strategy="steps", save_steps=1, save_total_limit=2))
    left = sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-000002", "step-000005"]
    assert bench.recorder.removed == ["step-000001", "step-000003", "step-000004"]
    assert [text for kind, text, _ in bench.recorder.events if kind == "checkpoint_removed"] == [
        f"removed the checkpoint of step {step}: save_total_limit is 2; the best by validation, step 2, stays"
        for step in (1, 3, 4)
    ]
    assert [one["best"] for one in bench.recorder.checkpoints] == [True, True, False, False, False]


async def test_a_run_tells_its_best_checkpoint(tmp_path):
    scores = {"v0": "0", "v1": "2", "v2": "9", "v3": "3"}

    def right(payload):
        known = scores.get(payload.request_metadata.rollout_id[:2])
        if known is not None:
            payload.agent_output.messages[-1]["content"] = known
        return last_digit(payload)

    hyper = {"max_steps": 3, "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    result = await Bench(tmp_path, right=right).train(job(**hyper))
    assert (result.best, result.checkpoint) == (
        tmp_path / "checkpoints" / "step-000002",
        tmp_path / "checkpoints" / "step-000003",
    )
    assert result.best is not None
    shutil.rmtree(result.best)
    again = await Bench(tmp_path, right=right).train(job(**hyper), resume_from=result.checkpoint)
    # Nobody is pointed to what was deleted: of those that are left, the newest is the best.
    assert again.best == tmp_path / "checkpoints" / "step-000003"
    unmeasured = await Bench(tmp_path / "other").train(job(validation=False))
    assert unmeasured.best is None


async def test_a_checkpoint_that_is_gone_when_a_run_goes_on_is_marked_removed(tmp_path):
    hyper = {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 5}
    half = await Bench(tmp_path, stop_at=("metrics", 3)).train(job(**hyper))
    shutil.rmtree(tmp_path / "checkpoints" / "step-000002")
    second = Bench(tmp_path)
    await second.train(job(**hyper), resume_from=half.checkpoint)
    assert second.recorder.removed[0] == "step-000002"


async def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(bench):
    bench.checkpoints.refuse = OSError(28, "No space left on device")

    def mend(entry):
        if entry == ("metrics", 4):
            bench.checkpoints.refuse = None

    bench.recorder.on = mend
    result = await bench.train(job(save_strategy="steps", save_steps=2))
    assert bench.recorder.kinds().count("checkpoint_failed") == 1
    assert result.status is JobStatus.SUCCEEDED
    assert bench.checkpoints.written == [4]


async def test_the_last_checkpoint_must_be_written(bench):
    bench.checkpoints.refuse = CheckpointError("disk is full")
    with pytest.raises(CheckpointError, match="disk is full"):
        await bench.train()
    assert bench.recorder.statuses[-1] is JobStatus.FAILED
    assert sum(bench.stop.waits) == 30 * 60
