"""The whole flow on fakes: what fails in a step, and what ends a run."""

import pytest

from fakes.bench import Bench, job, rows
from fakes.critic import FakeCritic
from fakes.functions import last_digit
from strop.errors import DataError, TrainingError
from strop.rl.failures import NothingLearned
from strop.schema.job import JobStatus


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def fails_for(*members: str):
    def right(payload):
        if payload.request_metadata.rollout_id.endswith(members):
            raise ValueError(f"no answer in {payload.request_metadata.rollout_id[-2:]}")
        return last_digit(payload)

    return right


async def test_siblings_of_a_failed_rollout_are_trained_on(tmp_path):
    bench = Bench(tmp_path, right=fails_for("-r1"))
    await bench.train(job(max_steps=1))
    sequences = [s for m in bench.learner.batches[0].mini_batches for p in m.packs for s in p.sequences]
    assert {sequence.rollout_id[-2:] for sequence in sequences} == {"r0", "r2", "r3"}
    failed = [one for group in bench.recorder.groups["train", 1] for one in group.trajectories if one.error]
    assert {one.error for one in failed} == {"reward function 'right': ValueError: no answer in r1"}


async def test_a_group_of_one_survivor_is_dropped_and_counted(tmp_path):
    bench = Bench(tmp_path, right=fails_for("-r1", "-r2", "-r3"))
    with pytest.raises(NothingLearned):
        await bench.train(job(max_steps=1, max_failure_rate=0.75))
    assert bench.learner.batches == []
    assert bench.recorder.values[1]["group/dropped"] == 2.0


async def test_too_many_failures_stop_the_run_with_counts_and_texts(tmp_path):
    bench = Bench(tmp_path, right=fails_for("-r1", "-r2", "-r3"))
    with pytest.raises(TrainingError) as caught:
        await bench.train(job(max_steps=4))
    assert str(caught.value) == (
        "step 1: 6 of 8 rollouts failed, more than max_failure_rate = 0.5 allows\n"
        "    2 x exception: reward function 'right': ValueError: no answer in r1\n"
        "    2 x exception: reward function 'right': ValueError: no answer in r2\n"
        "    2 x exception: reward function 'right': ValueError: no answer in r3\n"
        "  fix: fix the function (its log lines tell more), or raise max_failure_rate"
    )
    assert bench.recorder.statuses[-1] is JobStatus.FAILED
    assert bench.recorder.error == str(caught.value)
    assert ("train", 1) in bench.recorder.groups
    assert bench.learner.batches == []


async def test_a_step_in_which_nothing_survived_ends_the_run_whatever_rate_is_allowed(tmp_path):
    bench = Bench(tmp_path, right=fails_for("-r0", "-r1", "-r2", "-r3"))
    with pytest.raises(TrainingError) as caught:
        await bench.train(job(max_steps=4, max_failure_rate=1.0, validation=False))
    assert str(caught.value).startswith(
        "step 1: 8 of 8 rollouts failed, which leaves nothing to learn or to judge from\n    2 x exception: "
    )
    assert bench.recorder.statuses[-1] is JobStatus.FAILED
    assert bench.recorder.checkpoints == []


async def test_a_validation_in_which_nothing_survived_ends_the_run_too(tmp_path):
    bench = Bench(tmp_path, right=fails_for("r0"))
    with pytest.raises(
        TrainingError, match=r"validation after step 0: 3 of 3 .* nothing to learn or to judge"
    ):
        await bench.train(job(max_failure_rate=1.0))
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


async def test_exactly_the_allowed_share_may_fail(tmp_path):
    bench = Bench(tmp_path, right=fails_for("-r1", "-r2"))
    result = await bench.train(job(max_steps=1))
    assert result.status is JobStatus.SUCCEEDED


async def test_functions_that_always_fail_stop_the_run_at_its_first_validation(tmp_path):
    bench = Bench(tmp_path, right=fails_for("r0"))
    with pytest.raises(TrainingError, match=r"validation after step 0: 3 of 3 rollouts failed"):
        await bench.train()


async def test_too_many_failures_later_leave_the_good_weights_saved(tmp_path):
    def right(payload):
        if payload.request_metadata.rollout_id.startswith("s3-"):
            raise ValueError("judge is gone")
        return last_digit(payload)

    bench = Bench(tmp_path, right=right)
    with pytest.raises(TrainingError, match="8 x exception"):
        await bench.train()
    assert [(one["step"], one["published"]) for one in bench.recorder.checkpoints] == [(2, False)]


async def test_a_learner_that_fails_fails_the_run_and_saves_nothing(bench):
    def broken(batch):
        raise TrainingError("the loss is not finite")

    bench.learner.update = broken
    with pytest.raises(TrainingError, match="not finite"):
        await bench.train()
    assert bench.checkpoints.written == []
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


async def test_weights_that_do_not_arrive_fail_the_run(bench):
    bench.weight_sync.version = 5
    original = bench.learner.update

    def update(batch):
        bench.weight_sync.version = 4
        return original(batch)

    bench.learner.update = update
    with pytest.raises(TrainingError, match="went back from policy version 5 to 4"):
        await bench.train()


async def test_more_rows_a_step_than_there_are_is_a_data_error(bench):
    with pytest.raises(DataError, match="batch_size = 4"):
        await bench.train(job(batch_size=4), rows(3))
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


@pytest.mark.parametrize(
    ("hyper", "counted"),
    [
        ({}, "Of 3 steps, 3 had nothing to learn from: every advantage was 0"),
        (
            {"algorithm": "dapo", "n_epochs": 1, "max_tokens": 8},
            "Of 1 steps, 1 had nothing to learn from: every advantage was 0",
        ),
    ],
)
async def test_a_run_that_changed_no_weight_fails_with_the_reason_and_keeps_its_checkpoint(
    tmp_path, hyper, counted
):
    bench = Bench(tmp_path)
    bench.capture.policy = lambda sampling, messages: "1"
    with pytest.raises(NothingLearned, match="nothing was learned: the weights are those") as caught:
        await bench.train(job(**{"max_steps": 3, "eval_steps": 99} | hyper))
    assert counted in str(caught.value)
    assert "the rows may be too easy or too hard, or the reward constant" in str(caught.value)
    assert bench.recorder.statuses[-1] is JobStatus.FAILED
    assert bench.recorder.error == str(caught.value)
    assert [one["published"] for one in bench.recorder.checkpoints] == [False]
    again = Bench(tmp_path)
    again.capture.policy = bench.capture.policy
    folder = bench.recorder.checkpoints[0]["folder"]
    with pytest.raises(NothingLearned):
        await again.train(job(**{"max_steps": 3, "eval_steps": 99} | hyper), resume_from=folder)


async def test_a_kl_term_does_not_hide_that_there_was_nothing_to_learn_from(tmp_path):
    bench = Bench(tmp_path)
    bench.capture.policy = lambda sampling, messages: "1"
    bench.learner.learned = lambda: False
    with pytest.raises(NothingLearned) as caught:
        await bench.train(job(max_steps=3, kl_loss_coef=0.1))
    assert len(bench.learner.batches) == 3
    assert "Of 3 steps, 3 had nothing to learn from: every advantage was 0" in str(caught.value)
    assert "learning_rate" not in str(caught.value)


async def test_a_critic_that_learns_alone_makes_no_model(tmp_path):
    bench = Bench(tmp_path)
    bench.critic = FakeCritic()
    with pytest.raises(NothingLearned, match=r"Of 4 steps, 4 were the critic's alone \(critic_warmup\)"):
        await bench.train(job(n_epochs=1, max_steps=9, algorithm="ppo", critic_warmup=5))
    assert len(bench.critic.batches) == 4


async def test_updates_that_left_every_weight_as_it_was_make_no_model(tmp_path):
    bench = Bench(tmp_path)
    bench.learner.learned = lambda: False
    with pytest.raises(NothingLearned, match="Of 2 steps, 2 had a gradient, or a rate, too small"):
        await bench.train(job(max_steps=2))
    assert len(bench.learner.batches) == 2


async def test_a_run_that_was_stopped_is_not_asked_what_it_learned(tmp_path):
    bench = Bench(tmp_path, stop_at=("metrics", 2))
    bench.capture.policy = lambda sampling, messages: "1"
    result = await bench.train()
    assert (result.status, result.steps) == (JobStatus.CANCELED, 2)
