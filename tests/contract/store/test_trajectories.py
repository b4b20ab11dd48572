from array import array
from dataclasses import replace

import pytest

from strop.errors import StoreError
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import FailedAttempt, Group, Trajectory, Turn
from strop.store.trajectories import get_trajectory, list_trajectories, record_trajectories

LOGPROBS = tuple(array("f", [-0.1, -2.25, -17.3]).tolist())


def turn(index: int) -> Turn:
    return Turn(
        index=index,
        prompt_ids=(0, 49_151, 300),
        completion_ids=(7, 70_000, 2),
        behaviour_logprobs=LOGPROBS if index == 0 else (-0.1, -1e-300, -float("inf")),
        policy_versions=(3, 3, 4),
        temperature=0.7,
        finish_reason=FinishReason.STOP if index == 0 else FinishReason.LENGTH,
        messages=({"role": "user", "content": "12 + 30 = ? \ud83d"},),
        response={"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "n": 2**70}]},
        latency_s=0.125,
    )


def scored(rollout_id: str, sample_id: str, reward: float) -> Trajectory:
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id="a2",
        group_id=f"s1-{sample_id}",
        sample_id=sample_id,
        attempts=2,
        status=TaskStatus.SUCCESS,
        turns=(turn(0), turn(1)),
        messages=({"role": "user", "content": "问"}, {"role": "assistant", "content": "42"}),
        rollout_extra={"level": 3, "tags": ["easy"]},
        rollout_metrics={"tool_errors": 1.0},
        preset_reward=0.25,
        reward=reward,
        reward_parts={"accuracy": reward, "format": 0.5},
        reward_metrics={"accuracy": {"digits": 2.0}},
        overlong_penalty=-0.5,
        failed_attempts=(FailedAttempt(attempt_id="a1", error="timed out \ud83d", error_code="timeout"),),
        rollout_s=1.5,
        reward_s=0.25,
    )


def failed(rollout_id: str, sample_id: str) -> Trajectory:
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id="a3",
        group_id=f"s1-{sample_id}",
        sample_id=sample_id,
        attempts=3,
        status=TaskStatus.FAILED,
        error="ValueError: no\0 number",
        error_code="exception",
    )


def group(sample_id: str, *members: Trajectory) -> Group:
    sample = Sample(sample_id=sample_id, row=1, messages=[], ground_truth={"answer": 42})
    return Group(group_id=f"s1-{sample_id}", sample=sample, trajectories=members)


@pytest.fixture
def recorded(database, job):
    groups = (
        group("x", scored("r1", "x", 1.0), scored("r2", "x", 0.0)),
        group("y", scored("r3", "y", 0.5), failed("r4", "y")),
    )
    with database.write() as session:
        record_trajectories(session, "job-1", 1, groups, split="train")
        record_trajectories(session, "job-1", 1, (group("x", scored("v1", "x", 1.0)),), split="validation")
        record_trajectories(session, "job-1", 2, (group("x", scored("r5", "x", 1.0)),), split="train")
    return database


def ids(database, **filters):
    with database.read() as session:
        return [one.trajectory.rollout_id for one in list_trajectories(session, "job-1", **filters).items]


def test_a_trajectory_comes_back_token_for_token(recorded):
    with recorded.read() as session:
        found = get_trajectory(session, "job-1", "r1")
    # A lone surrogate in the conversation survives; all ids and logprobs are exact.
    assert found.trajectory == scored("r1", "x", 1.0)
    assert (found.step, found.split, found.ground_truth) == (1, "train", {"answer": 42})


def test_a_failed_trajectory_keeps_its_error_and_has_no_reward(recorded):
    with recorded.read() as session:
        found = get_trajectory(session, "job-1", "r4").trajectory
    assert found == replace(failed("r4", "y"), error="ValueError: no\ufffd number")
    assert found.reward is None


def test_a_list_has_counts_and_no_turns(recorded):
    with recorded.read() as session:
        first = list_trajectories(session, "job-1", step=1).items[0]
    assert first.trajectory == replace(scored("r1", "x", 1.0), turns=())
    assert (first.num_turns, first.num_sampled_tokens) == (2, 6)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["r1", "r2", "r3", "r4", "v1", "r5"]),
        ({"step": 1}, ["r1", "r2", "r3", "r4", "v1"]),
        ({"step": 1, "split": "train"}, ["r1", "r2", "r3", "r4"]),
        ({"sample_id": "y"}, ["r3", "r4"]),
        ({"status": TaskStatus.FAILED}, ["r4"]),
        ({"min_reward": 0.5}, ["r1", "r3", "v1", "r5"]),
        ({"max_reward": 0.5}, ["r2", "r3"]),
        ({"min_reward": 0.0, "max_reward": 0.0}, ["r2"]),
    ],
)
def test_lists_are_filtered(recorded, filters, expected):
    assert ids(recorded, **filters) == expected


def test_lists_come_in_pages(recorded):
    with recorded.read() as session:
        first = list_trajectories(session, "job-1", limit=4)
        second = list_trajectories(session, "job-1", limit=4, after=first.next)
    assert [one.trajectory.rollout_id for one in second.items] == ["v1", "r5"]
    assert (first.more, second.more) == (True, False)


def test_recording_a_step_again_replaces_its_rollouts(recorded):
    with recorded.write() as session:
        again = replace(scored("r1", "x", 0.75), turns=(turn(0),))
        record_trajectories(session, "job-1", 1, (group("x", again),), split="train")
    with recorded.read() as session:
        assert get_trajectory(session, "job-1", "r1").trajectory == again
    assert sorted(ids(recorded, step=1, split="train")) == ["r1", "r2", "r3", "r4"]


def test_a_missing_trajectory_is_an_error_that_names_it(recorded):
    with pytest.raises(StoreError, match="no trajectory 'r1' at step 2"), recorded.read() as session:
        get_trajectory(session, "job-1", "r1", step=2)
