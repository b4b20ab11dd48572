"""Steps sampled ahead of the learner: how far, with which weights, and what becomes of them."""

import asyncio
import math
from dataclasses import replace

import pytest

from fakes.bench import Bench, job, rows
from strop.schema.job import JobStatus

AHEAD = {"max_staleness": 1, "validation": False, "max_steps": 4}


class Watched(Bench):
    """Tells when rollouts of a step are opened and when a step is learned, and stamps tokens with the
    version that is live."""

    def __init__(self, folder, **options) -> None:
        super().__init__(folder, **options)
        self.told: list[str] = []
        self.release = asyncio.Event()
        self.release.set()
        self.waits_in: str | None = None
        update, close = self.learner.update, self.capture.close

        def watched_update(batch):
            self.told.append(f"learn {batch.step}")
            return update(batch)

        def stamped(rollout_id, attempt_id):
            version = self.weight_sync.pushed[-1]
            return tuple(
                replace(turn, policy_versions=(version,) * len(turn.policy_versions))
                for turn in close(rollout_id, attempt_id)
            )

        self.learner.update, self.capture.close = watched_update, stamped
        call = self.functions.call

        async def watched_call(name, payload):
            if name == "agent":
                step = payload.request_metadata.rollout_id.partition("-")[0]
                if f"sample {step}" not in self.told:
                    self.told.append(f"sample {step}")
                if step == self.waits_in:
                    await self.release.wait()
            return await call(name, payload)

        self.functions.call = watched_call


async def test_without_staleness_a_step_is_sampled_once_the_one_before_is_learned(tmp_path):
    bench = Watched(tmp_path)
    await bench.train(job(**{**AHEAD, "max_staleness": 0}))
    assert bench.told == [
        "sample s1", "learn 1", "sample s2", "learn 2", "sample s3", "learn 3", "sample s4", "learn 4",
    ]  # fmt: skip
    values = bench.recorder.values[3]
    assert values["trajectory/staleness/max"] == 0
    assert not [name for name in values if "stale_" in name or "/partial/" in name]


async def test_with_a_staleness_of_one_the_next_step_is_sampled_while_this_one_is_learned(tmp_path):
    """The learner of step 1 waits until a rollout of step 2 is under way: taking turns, it would wait for
    ever."""
    bench = Watched(tmp_path)
    bench.waits_in = "s2"
    bench.release.clear()
    under_way = asyncio.Event()
    loop = asyncio.get_running_loop()
    call, update = bench.functions.call, bench.learner.update

    async def noticed(name, payload):
        if name == "agent" and payload.request_metadata.rollout_id.startswith("s2-"):
            under_way.set()
        return await call(name, payload)

    def patient(batch):
        if batch.step == 1:
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(under_way.wait(), 20), loop).result()
            found = update(batch)
            loop.call_soon_threadsafe(bench.release.set)
            return found
        return update(batch)

    bench.functions.call, bench.learner.update = noticed, patient
    result = await bench.train(job(**AHEAD))
    assert result.status is JobStatus.SUCCEEDED
    assert bench.told.index("sample s2") < bench.told.index("learn 1")
    assert [one for one in bench.told if one.startswith("learn")] == [f"learn {step}" for step in range(1, 5)]


@pytest.mark.parametrize("bound", [1, 2])
async def test_no_step_is_learned_from_weights_older_than_the_bound(tmp_path, bound: int):
    """A learner so slow that all that may be sampled ahead is there before each update ends."""
    bench = Watched(tmp_path)
    sampled = {step: asyncio.Event() for step in range(1, 7)}
    left = dict.fromkeys(sampled, 2 * 4)
    loop = asyncio.get_running_loop()
    close, update = bench.capture.close, bench.learner.update

    def counted(rollout_id, attempt_id):
        step = int(rollout_id.partition("-")[0].removeprefix("s"))
        left[step] -= 1
        if not left[step]:
            sampled[step].set()
        return close(rollout_id, attempt_id)

    def slow(batch):
        last = sampled[min(batch.step + bound, 6)]
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(last.wait(), 20), loop).result()
        return update(batch)

    bench.capture.close, bench.learner.update = counted, slow
    await bench.train(job(**{**AHEAD, "max_staleness": bound, "max_steps": 6}))
    # An update a step: steps and policy versions are one.
    stale = [bench.recorder.values[step]["trajectory/staleness/max"] for step in range(1, 7)]
    assert stale == [min(step - 1, bound) for step in range(1, 7)]
    assert bench.recorder.values[6]["fully_async/count/stale_samples_processed"] == 2.0
    started = [one for one in bench.told if one.startswith("sample")]
    assert started == [f"sample s{step}" for step in range(1, 7)]  # and none beyond the last


async def test_sampling_ahead_draws_the_same_rows_and_ids_as_taking_turns(tmp_path):
    opened = []
    for bound in (0, 2):
        bench = Bench(tmp_path / str(bound))
        await bench.train(job(**{**AHEAD, "max_staleness": bound, "max_steps": 5}), rows(6))
        opened.append(sorted(bench.capture.opened))
        assert [batch.step for batch in bench.learner.batches] == [1, 2, 3, 4, 5]
    assert opened[0] == opened[1]


async def test_sampling_ahead_ends_with_the_last_epoch(tmp_path):
    bench = Watched(tmp_path)
    result = await bench.train(
        job(**{**AHEAD, "max_staleness": 3, "max_steps": None, "n_epochs": 1}), rows(6)
    )
    assert result.steps == 3
    assert [one for one in bench.told if one.startswith("sample")] == ["sample s1", "sample s2", "sample s3"]


async def test_what_fails_ahead_fails_at_its_own_step_with_those_before_saved(tmp_path):
    bench = Watched(tmp_path)
    call = bench.functions.call

    async def breaks(name, payload):
        if name == "agent" and payload.request_metadata.rollout_id.startswith("s3-"):
            raise RuntimeError("the agent is gone")
        return await call(name, payload)

    bench.functions.call = breaks
    with pytest.raises(Exception, match="step 3"):
        await bench.train(job(**{**AHEAD, "max_staleness": 2}))
    assert [one["step"] for one in bench.recorder.checkpoints] == [2]
    assert "learn 3" not in bench.told


async def test_a_stopped_run_leaves_no_rollout_open_and_goes_on_from_its_checkpoint(tmp_path):
    bench = Watched(tmp_path, stop_at=("metrics", 2))
    result = await bench.train(job(**AHEAD))
    assert (result.status, result.steps) == (JobStatus.CANCELED, 2)
    assert bench.capture.live == {}
    again = Watched(tmp_path)
    finished = await again.train(job(**AHEAD), resume_from=result.checkpoint)
    assert (finished.status, finished.steps) == (JobStatus.SUCCEEDED, 4)
    assert [one for one in again.told if one.startswith("learn")] == ["learn 3", "learn 4"]


async def test_after_a_return_to_a_checkpoint_what_was_sampled_ahead_is_sampled_anew(tmp_path):
    bench = Watched(tmp_path)
    update = bench.learner.update
    failing = {2, 3, 4}

    def sometimes(batch):
        if batch.step in failing:
            failing.discard(batch.step)
            return {"actor/num_updates": 0.0, "actor/skipped_updates": 1.0, "actor/grad_norm": math.nan}
        return update(batch)

    bench.learner.update = sometimes
    every = {"save_strategy": "steps", "save_steps": 1, "eval_steps": 1}
    result = await bench.train(job(**{**AHEAD, **every, "max_steps": 5}))
    assert (result.status, result.steps) == (JobStatus.SUCCEEDED, 5)
    again = [one for one in bench.told if one.startswith("sample") and ".1" in one]
    assert again == [f"sample s{step}.1" for step in range(2, 6)]
