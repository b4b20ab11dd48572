"""Samples that are lost whenever they are drawn, and failures that end the job."""

import pytest

from fakes.bench import Bench, job, rows
from fakes.functions import last_digit
from strop.errors import TrainingError
from strop.rl.repeat_failures import lost_again
from strop.schema.function import Reward, RewardOutput, TaskStatus


def picky(payload):
    """No score for one of four samples, whatever it says."""
    if payload.request_metadata.sample_id == "train1":
        raise TimeoutError("tests took too long\nlog")
    return last_digit(payload)


def news(bench):
    return [text for kind, text, _ in bench.recorder.events if kind == "samples_dropped"]


async def test_a_sample_that_is_dropped_in_every_draw_is_named_when_it_happens_again(tmp_path):
    bench = Bench(tmp_path, right=picky)
    # 4 rows, 2 a step: two steps are an epoch, so 8 steps draw each row four times.
    await bench.train(job(max_steps=8, validation=False), rows(4))
    told = news(bench)
    assert len(told) == 2  # at the second and at the fourth draw
    assert told[0].startswith("dropped in every draw so far")
    assert "train1 (row 2, 2 draws): reward function 'right': TimeoutError: tests took too long" in told[0]
    assert "4 draws" in told[1]
    counts = [bench.recorder.values[step]["group/dropped_again"] for step in range(1, 9)]
    assert (counts[0], counts[1], counts[-1]) == (0.0, 0.0, 1.0)
    assert counts == sorted(counts)


async def test_a_sample_that_survives_once_is_no_longer_lost(tmp_path):
    draws = []

    def sometimes(payload):
        rollout_id = payload.request_metadata.rollout_id
        if payload.request_metadata.sample_id == "train1" and rollout_id.startswith(("s1-", "s2-")):
            draws.append(rollout_id)
            raise TimeoutError
        return last_digit(payload)

    bench = Bench(tmp_path, right=sometimes)
    await bench.train(job(max_steps=6, validation=False), rows(4))
    assert draws
    assert news(bench) == []
    assert bench.recorder.values[6]["group/dropped_again"] == 0.0


async def test_what_was_lost_is_known_after_a_resume(tmp_path):
    bench = Bench(tmp_path, right=picky)
    first = await bench.train(job(max_steps=2, validation=False), rows(4))
    bench = Bench(tmp_path, right=picky)
    await bench.train(job(max_steps=4, validation=False), rows(4), resume_from=first.checkpoint)
    assert len(news(bench)) == 1


def test_one_draw_is_no_habit():
    assert lost_again({"a": 1, "b": 2, "c": 5}) == 2


async def test_a_failure_that_ends_the_job_is_tried_again_and_then_ends_it(tmp_path):
    calls = []

    def away(payload):
        calls.append(payload)
        none = Reward(reward_score=0.0)
        return RewardOutput(reward=none, status=TaskStatus.FAILED, error="no url", error_code="ends_job")

    bench = Bench(tmp_path, right=away)
    with pytest.raises(
        TrainingError, match="step 1: a function reported a failure that ends the job"
    ) as caught:
        await bench.train(job(max_steps=1, max_failure_rate=1.0, validation=False))
    assert "reward function 'right': no url" in str(caught.value)
    assert len(calls) == 2 * 8  # max_attempts for each of 2 x 4 rollouts
