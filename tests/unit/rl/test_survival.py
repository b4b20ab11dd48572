"""What the flow does when saving or learning fails: by hand, on fakes."""

import json
from pathlib import Path

import pytest

from fakes.bench import Bench, job
from fakes.functions import one_call_agent
from strop.errors import CheckpointError, StoreError, TrainingError
from strop.schema.job import JobStatus
from strop.tracing.metrics import NameGate

FULL = OSError(28, "No space left on device")
EVERY_STEP = {"save_strategy": "steps", "save_steps": 1, "eval_steps": 99}


class Diverging:
    """A learner's `update` that makes no update for the steps and takes named in `bad`."""

    def __init__(self, bench: Bench, bad: set[str]) -> None:
        self.learner = bench.learner
        self.inner = bench.learner.update
        self.bad = bad
        self.seen: list[tuple[str, float]] = []

    def __call__(self, batch):
        first = batch.mini_batches[0].packs[0].sequences[0].rollout_id.split("-")[0]
        self.seen.append((first, self.learner.weights))
        if first in self.bad:
            self.learner.batches.append(batch)
            return {"actor/skipped_updates": 1.0, "actor/num_updates": 0.0}
        return {**self.inner(batch), "actor/skipped_updates": 0.0, "actor/num_updates": 1.0}


def diverging(folder: Path, *bad: str) -> tuple[Bench, Diverging]:
    bench = Bench(folder)
    bench.learner.update = Diverging(bench, set(bad))
    return bench, bench.learner.update


async def test_a_skipped_update_is_told_and_the_run_goes_on(tmp_path):
    bench, learner = diverging(tmp_path, "s2")
    result = await bench.train(job(max_steps=4, validation=False))
    assert (result.status, result.steps) == (JobStatus.SUCCEEDED, 4)
    assert (
        bench.recorder.events.count(
            ("update_skipped", "an update was skipped: its gradient is not finite", 2)
        )
        == 1
    )
    weights = [weights for _, weights in learner.seen]
    assert weights[1] == weights[2] != weights[3]
    assert [bench.recorder.values[step]["actor/skipped_updates"] for step in (1, 2, 3, 4)] == [0, 1, 0, 0]


async def test_three_steps_without_a_finite_gradient_go_back_to_the_checkpoint_with_other_samples(tmp_path):
    bench, learner = diverging(tmp_path, "s3", "s4", "s5")
    result = await bench.train(
        job(max_steps=5, save_strategy="steps", save_steps=2, eval_steps=99, validation=False)
    )
    assert [taken for taken, _ in learner.seen] == ["s1", "s2", "s3", "s4", "s5", "s3.1", "s4.1", "s5.1"]
    # Back at the weights of step 2, from which step 3 had set out before.
    assert learner.seen[5][1] == learner.seen[2][1]
    assert (result.status, result.steps) == (JobStatus.SUCCEEDED, 5)
    texts = [(text, step) for kind, text, step in bench.recorder.events if kind == "rolled_back"]
    assert texts == [
        (
            "step 5: no update of the last 3 steps had a finite gradient; back to the checkpoint of step 2 "
            "(return 1 of 3 at most), with other samples from there on",
            2,
        )
    ]
    # Five steps of eight rollouts of one token count; the three that were given up do not.
    assert result.sampled_tokens == 5 * 8
    assert [one["step"] for one in bench.recorder.checkpoints] == [2, 4, 5]
    # What is live after going back is the version of step 2 again.
    assert bench.weight_sync.pushed == [0, 1, 2, 2, 2, 2, 2, 3, 4, 5]
    seeds = {key[0]: one.seed for key, one in bench.capture.sampling.items()}
    assert (
        seeds["s3-0-" + _sample(bench, "s3-0-") + "-r0"]
        != seeds["s3.1-0-" + _sample(bench, "s3.1-0-") + "-r0"]
    )
    # The same rows come again: the position went back too.
    assert _sample(bench, "s3-0-") == _sample(bench, "s3.1-0-")


def _sample(bench: Bench, start: str) -> str:
    return next(key[0].split("-")[2] for key in bench.capture.opened if key[0].startswith(start))


async def test_the_run_gives_up_after_three_returns_and_names_the_fix(tmp_path):
    bad = [f"s{step}{take}" for step in (3, 4, 5) for take in ("", ".1", ".2", ".3")]
    bench, _ = diverging(tmp_path, *bad)
    with pytest.raises(TrainingError, match="no update of the last 3 steps") as caught:
        await bench.train(job(max_steps=6, save_strategy="steps", save_steps=2, eval_steps=99))
    assert "lower learning_rate" in str(caught.value)
    # Steps 3 and 4 were due to be saved, but not with weights that may be spoilt.
    assert [one["step"] for one in bench.recorder.checkpoints] == [2]
    assert bench.recorder.kinds().count("rolled_back") == 3
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


async def test_the_second_return_goes_to_the_checkpoint_before_which_may_be_sound(tmp_path):
    bad = [f"s{step}{take}" for step in (3, 4, 5) for take in ("", ".1")]
    bench, learner = diverging(tmp_path, *bad)
    await bench.train(job(max_steps=5, validation=False, **EVERY_STEP))
    taken = [taken for taken, _ in learner.seen]
    assert taken[:8] == ["s1", "s2", "s3", "s4", "s5", "s3.1", "s4.1", "s5.1"]
    assert taken[8:] == ["s2.2", "s3.2", "s4.2", "s5.2"]
    assert learner.seen[8][1] == learner.seen[1][1]
    aside = [text for kind, text, _ in bench.recorder.events if kind == "checkpoint_set_aside"]
    assert aside == [
        f"{tmp_path}/checkpoints/step-000002 led twice to where nothing can be learned, and is now "
        "left-1-step-000002"
    ]


async def test_without_a_checkpoint_there_is_nothing_to_go_back_to(tmp_path):
    bench, _ = diverging(tmp_path, "s1", "s2", "s3")
    with pytest.raises(TrainingError, match="no update of the last 3 steps"):
        await bench.train(job(max_steps=6))
    assert bench.checkpoints.written == []


async def test_a_run_killed_after_a_return_takes_the_same_steps_when_it_is_resumed(tmp_path):
    hyper = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "eval_steps": 99, "validation": False}
    straight, learner = diverging(tmp_path / "straight", "s3", "s4", "s5")
    await straight.train(job(**hyper))
    first, _ = diverging(tmp_path / "halves", "s3", "s4", "s5")
    first.stop_at = ("metrics", 4)
    first.recorder.on = lambda entry: None
    seen: list[tuple] = []

    def stop_in_the_second_take(entry):
        seen.append(entry)
        if entry == ("checkpoint", 4) and ("event", "rolled_back") in seen:
            first.stop.set()

    first.recorder.on = stop_in_the_second_take
    half = await first.train(job(**hyper))
    assert half.steps == 4
    second, resumed = diverging(tmp_path / "halves", "s3", "s4", "s5")
    await second.train(job(**hyper), resume_from=half.checkpoint)
    assert [taken for taken, _ in resumed.seen] == ["s5.1", "s6.1"]
    assert resumed.seen == learner.seen[-2:]
    assert second.learner.weights == straight.learner.weights


async def test_skipped_steps_are_counted_across_a_resume(tmp_path):
    first, _ = diverging(tmp_path, "s2", "s3", "s4")
    first.stop_at = ("metrics", 3)
    half = await first.train(job(max_steps=6))
    second, _ = diverging(tmp_path, "s2", "s3", "s4")
    await second.train(job(max_steps=6), resume_from=half.checkpoint)
    assert "rolled_back" in second.recorder.kinds()


async def test_a_full_disk_at_the_end_is_waited_out_with_the_weights_in_memory(tmp_path):
    bench = Bench(tmp_path)
    bench.checkpoints.refuse = FULL
    wait = bench.stop.wait

    async def room_after_the_third(seconds):
        if len(bench.stop.waits) == 2:
            bench.checkpoints.refuse = None
        return await wait(seconds)

    bench.stop.wait = room_after_the_third
    result = await bench.train()
    assert bench.stop.waits == [1, 2, 4]
    assert result.status is JobStatus.SUCCEEDED
    assert bench.checkpoints.written == [4]
    ((_, text, step),) = [event for event in bench.recorder.events if event[0] == "checkpoint_failed"]
    assert step == 4
    assert "No space left on device" in text
    assert "held in memory; trying again for 30 minutes (Ctrl-C gives up)" in text


async def test_ctrl_c_gives_up_waiting_for_room(tmp_path):
    bench = Bench(tmp_path, stop_at=("event", "checkpoint_failed"))
    bench.checkpoints.refuse = CheckpointError("the disk is full", fix="free some disk space there")
    with pytest.raises(CheckpointError, match="free some disk space"):
        await bench.train()
    assert bench.stop.waits == [1]


async def test_a_full_disk_is_relieved_of_the_checkpoint_that_was_to_go_anyway(tmp_path):
    bench = Bench(tmp_path)

    def refuse_from_the_third_on(entry):
        if entry == ("checkpoint", 2):
            bench.checkpoints.refuse = FULL
        if entry == ("event", "checkpoint_removed"):
            bench.checkpoints.refuse = None

    bench.recorder.on = refuse_from_the_third_on
    await bench.train(job(max_steps=3, validation=False, **EVERY_STEP))
    assert bench.checkpoints.written == [1, 2, 3]
    assert bench.recorder.kinds().count("checkpoint_removed") == 1
    left = sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-000002", "step-000003"]


async def test_the_newest_checkpoint_is_never_given_up_for_room(tmp_path):
    bench = Bench(tmp_path)

    def refuse_after_the_first(entry):
        if entry == ("checkpoint", 1):
            bench.checkpoints.refuse = FULL

    bench.recorder.on = refuse_after_the_first
    with pytest.raises(OSError, match="No space left"):
        await bench.train(job(max_steps=3, save_total_limit=1, validation=False, **EVERY_STEP))
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


@pytest.mark.parametrize("failure", [StoreError("4096 records"), OverflowError("4096 records")])
async def test_a_recorder_that_fails_ends_the_run_with_its_steps_saved(tmp_path, failure):
    bench = Bench(tmp_path)
    inner = bench.recorder.trajectories

    def refusing(step, groups, *, split):
        if step == 3:
            raise failure
        inner(step, groups, split=split)

    bench.recorder.trajectories = refusing
    with pytest.raises(type(failure), match="4096 records"):
        await bench.train(job(validation=False))
    assert [(one["step"], one["published"]) for one in bench.recorder.checkpoints] == [(2, False)]


async def test_what_fails_between_update_and_step_saves_nothing(tmp_path):
    bench = Bench(tmp_path)
    inner = bench.weight_sync.push

    def push(weights, *, version):
        if len(bench.weight_sync.pushed) == 2:
            raise StoreError("the engine is gone")
        return inner(weights, version=version)

    bench.weight_sync.push = push
    with pytest.raises(StoreError, match="engine is gone"):
        await bench.train(job(validation=False))
    assert bench.checkpoints.written == []


async def test_later_checkpoints_than_the_one_resumed_from_are_set_aside(tmp_path):
    hyper = {**EVERY_STEP, "save_total_limit": 9, "validation": False}
    await Bench(tmp_path).train(job(max_steps=4, **hyper))
    shelf = tmp_path / "checkpoints"
    again = Bench(tmp_path, stop_at=("metrics", 3))
    await again.train(job(max_steps=4, **hyper), resume_from=shelf / "step-000002")
    assert sorted(folder.name for folder in shelf.iterdir()) == [
        "left-1-step-000003",
        "left-1-step-000004",
        "step-000001",
        "step-000002",
        "step-000003",
    ]
    assert again.recorder.kinds().count("checkpoint_set_aside") == 2


async def test_names_that_functions_chose_are_in_the_checkpoint_and_admitted_after_it(tmp_path):
    def bench() -> Bench:
        made = Bench(tmp_path)
        made.functions.functions["agent"] = one_call_agent(made.capture, rollout_metrics={"turns": 2.0})
        return made

    await bench().train(job(max_steps=1, validation=False))
    folder = tmp_path / "checkpoints" / "step-000001"
    saved = json.loads((folder / "position.json").read_text())
    assert saved["job_id"] == "job"
    names = [
        f"trace/{one}/{how}" for one in ("reward/right", "rollout_metrics/turns") for how in ("avg", "sum")
    ]
    admitted = saved["metric_names"]
    assert set(names) <= set(admitted)
    values = {names[-1]: 2.0, "trace/rollout_metrics/other/sum": 1.0}
    assert NameGate(limit=len(admitted), admitted=admitted).admit(values) == {names[-1]: 2.0}
