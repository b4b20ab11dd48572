"""The whole flow on fakes: order, schedules, stopping, resuming."""

import asyncio
import math
import shutil

import pytest

from fakes.bench import Bench, job, rows, run_facts
from fakes.functions import last_digit, one_call_agent
from strop.errors import CheckpointError, DataError, StoppedByDiagnosis, TrainingError
from strop.observability.metrics import UnknownMetricError
from strop.schema.job import JobStatus


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def test_a_run_goes_through_its_stages_in_order(bench):
    result = await bench.train(job(max_steps=2, eval_steps=1))
    assert bench.phases == [
        "status RUNNING",
        "trajectories 0 validation",
        "metrics 0",
        "trajectories 1 train",
        "metrics 1",
        "trajectories 1 validation",
        "metrics 1",
        "trajectories 2 train",
        "metrics 2",
        "trajectories 2 validation",
        "metrics 2",
        "checkpoint 2",
        "metrics 2",
        "status SUCCEEDED",
    ]
    assert result.status is JobStatus.SUCCEEDED
    assert result.steps == 2
    assert result.validations == ((0, 1.0), (1, 1.0), (2, 1.0))
    assert result.checkpoint == bench.folder / "checkpoints" / "step-000002"


async def test_the_learner_gets_the_advantages_of_the_rewards_it_was_given(bench):
    await bench.train(job(max_steps=1))
    (batch,) = bench.learner.batches
    rewards = {
        one.rollout_id: one.reward
        for group in bench.recorder.groups["train", 1]
        for one in group.trajectories
    }
    sequences = [seq for mini in batch.mini_batches for pack in mini.packs for seq in pack.sequences]
    assert sorted(seq.rollout_id for seq in sequences) == sorted(rewards)
    for sequence in sequences:
        siblings = [value for key, value in rewards.items() if key[:5] == sequence.rollout_id[:5]]
        mean = sum(siblings) / 4
        std = (sum((value - mean) ** 2 for value in siblings) / 3) ** 0.5
        expected = (rewards[sequence.rollout_id] - mean) / (std + 1e-6)
        assert sequence.advantage == pytest.approx(expected)


async def test_mini_batches_are_cut_by_prompts(bench):
    await bench.train(job(max_steps=1, batch_size=4, ppo_mini_batch_size=2))
    (batch,) = bench.learner.batches
    assert [mini.num_rollouts for mini in batch.mini_batches] == [8, 8]


async def test_weights_are_live_before_the_first_rollout_and_after_every_update(bench):
    await bench.train(job(max_steps=3))
    assert bench.publisher.published == [0, 1, 2, 3]
    assert bench.recorder.checkpoints[-1]["policy_version"] == 3


PHASES = ("step", "rollout", "reward", "adv", "update_actor", "param_sync", "validation", "save")


async def test_a_metric_that_nobody_declared_fails_the_run(bench):
    bench.learner.update = lambda batch: {"actor/lss": 1.0}
    with pytest.raises(UnknownMetricError, match="'actor/lss' is not declared"):
        await bench.train(job(max_steps=1))


async def test_metrics_of_a_step_hold_every_stage(bench):
    await bench.train(job(max_steps=1))
    values = bench.recorder.values[1]
    assert values["actor/loss"] == bench.learner.weights
    assert values["trace/training/epoch"] == 0.0
    assert 0 < values["critic/rewards/mean"] < 1
    assert values["critic/advantages/mean"] == pytest.approx(0, abs=1e-6)
    assert values["trajectory/num_sequences/mean"] == 1.0
    assert values["perf/loss_tokens"] == 8.0
    phases = {name for name in values if name.startswith("timing/s/") and name.count("/") == 2}
    assert phases == {f"timing/s/{phase}" for phase in PHASES}
    assert values["timing/s/validation"] > 0
    assert values["timing/s/save"] > 0
    assert values["timing/s/step"] >= values["timing/s/rollout"]


async def test_validation_is_greedy_one_rollout_a_sample_and_not_for_training(bench):
    await bench.train(job(max_steps=1))
    keys = [key for key in bench.capture.opened if key[0].startswith("v0-")]
    assert keys == [("v0-0-held0-r0", "a1"), ("v0-1-held1-r0", "a1"), ("v0-2-held2-r0", "a1")]
    assert {bench.capture.sampling[key].temperature for key in keys} == {0.0}
    assert {bench.capture.training[key] for key in keys} == {False}


@pytest.mark.parametrize(
    ("hyper", "steps"),
    [
        ({"max_steps": 4, "eval_steps": 2}, [0, 2, 4]),
        ({"max_steps": 5, "eval_steps": 2}, [0, 2, 4, 5]),
        ({"max_steps": 3, "eval_steps": 99}, [0, 3]),
        ({"n_epochs": 1, "max_steps": None, "eval_steps": 3}, [0, 3, 4]),
    ],
)
async def test_validation_runs_before_every_eval_steps_and_at_the_end_never_twice(bench, hyper, steps):
    result = await bench.train(job(**hyper))
    assert [step for step, _ in result.validations] == steps
    assert [step for split, step in bench.recorder.groups if split == "validation"] == steps


async def test_without_validation_rows_nothing_is_validated(bench):
    result = await bench.train(job(validation=False))
    assert result.validations == ()
    assert "validation/data/reward/mean@1" not in bench.recorder.values[4]


async def test_no_id_is_used_twice_in_a_run(bench):
    await bench.train(job(max_steps=9, batch_size=2, eval_steps=1), rows(4))
    opened = [rollout_id for rollout_id, _ in bench.capture.opened]
    assert len(opened) == len(set(opened)) == 9 * 8 + 10 * 3


async def test_a_recorder_that_has_seen_enough_ends_the_run_with_the_step_saved(bench):
    def enough(entry):
        if (
            entry[:2] == ("metrics", 2)
            and 2 in bench.recorder.values
            and "actor/loss" in bench.recorder.values[2]
        ):
            raise StoppedByDiagnosis("step 2: entropy is gone")

    bench.recorder.on = enough
    with pytest.raises(StoppedByDiagnosis, match="entropy is gone"):
        await bench.train(job(max_steps=5, eval_steps=99))
    assert [one["step"] for one in bench.recorder.checkpoints] == [2]
    assert not bench.recorder.checkpoints[0]["published"]
    assert (bench.recorder.statuses[-1], bench.recorder.error) == (
        JobStatus.FAILED,
        "step 2: entropy is gone",
    )


async def test_samples_are_counted_over_the_whole_run(bench):
    await bench.train(job(max_steps=3, batch_size=2))
    name = "fully_async/count/total_generated_samples"
    assert [bench.recorder.values[step][name] for step in (1, 2, 3)] == [2.0, 4.0, 6.0]


async def test_tokens_are_counted(bench):
    result = await bench.train(job(max_steps=2, eval_steps=99))
    # One token a rollout: two steps of 2 x 4, two validations of 3.
    assert (result.sampled_tokens, result.trained_tokens) == (2 * 8 + 2 * 3, 2 * 8)


async def test_notes_are_recorded_before_any_work(bench):
    await bench.train(job(max_steps=1), validation=rows(3))
    texts = [message for kind, message, _ in bench.recorder.events if kind == "note"]
    assert "one mini-batch and one epoch: the ratio is 1, clipping cannot bind" in texts
    assert any("3 of 3 prompts are also in train.jsonl" in text for text in texts)


async def test_progress_is_reported_by_phase(bench):
    await bench.train(job(max_steps=1))
    reports = bench.recorder.reports
    assert (0, "validation", 3, 3) in reports
    assert (1, "rollout", 8, 8) in reports
    assert [report for report in reports if report[1] == "update"] == [
        (1, "update", 0, 1),
        (1, "update", 1, 1),
    ]


async def test_equal_rewards_are_counted_and_update_nothing(tmp_path):
    bench = Bench(tmp_path)
    bench.capture.policy = lambda sampling, messages: "1"
    result = await bench.train(job(max_steps=2))
    assert bench.learner.batches == []
    assert bench.publisher.published == [0]
    assert bench.recorder.kinds().count("step_without_gradient") == 2
    assert bench.recorder.values[1]["group/frac_zero_std"] == 1.0
    assert "timing/s/update_actor" not in bench.recorder.values[1]
    assert (result.status, result.steps, result.trained_tokens) == (JobStatus.SUCCEEDED, 2, 0)


async def test_equal_rewards_still_feel_the_pull_of_a_kl_loss(tmp_path):
    bench = Bench(tmp_path)
    bench.capture.policy = lambda sampling, messages: "1"
    await bench.train(job(max_steps=1, kl_loss_coef=0.01))
    assert len(bench.learner.batches) == 1


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
        "  fix: mend the function (its log lines tell more), or raise max_failure_rate"
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


async def test_counters_of_the_machines_become_metrics_of_the_step(tmp_path):
    bench = Bench(tmp_path)
    counted = {
        "trace/rerendered_prompts": 0,
        "trace/tool_parse_errors": 5,
        "prefix_hits": 10,
        "prefilled": 10,
    }

    def grow(entry):
        if entry[:2] == ("progress", 2) and entry[2:] == ("rollout", 8, 8):
            counted["trace/rerendered_prompts"] += 3
            counted["prefix_hits"] += 30
            counted["prefilled"] += 10

    bench.recorder.on = grow
    bench.counters = lambda: dict(counted)
    await bench.train(job(max_steps=2))
    first, second = bench.recorder.values[1], bench.recorder.values[2]
    assert (first["trace/rerendered_prompts"], second["trace/rerendered_prompts"]) == (0, 3)
    assert second["trace/tool_parse_errors"] == 0
    assert second["perf/prefix_hit_rate"] == 0.75
    assert math.isnan(first["perf/prefix_hit_rate"])


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
    bench.publisher.version = 5
    original = bench.learner.update

    def update(batch):
        bench.publisher.version = 4
        return original(batch)

    bench.learner.update = update
    with pytest.raises(TrainingError, match="went back from policy version 5 to 4"):
        await bench.train()


async def test_more_rows_a_step_than_there_are_is_a_data_error(bench):
    with pytest.raises(DataError, match="batch_size = 4"):
        await bench.train(job(batch_size=4), rows(3))
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


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


STOPS = [
    ("trajectories", 2, "validation"),
    ("metrics", 2),
    ("progress", 3, "rollout", 8, 8),
    ("trajectories", 3, "train"),
    ("progress", 3, "update", 0, 1),
    ("metrics", 3),
]


@pytest.mark.parametrize("stop_at", STOPS)
async def test_stopping_leaves_a_checkpoint_of_whole_steps(tmp_path, stop_at):
    bench = Bench(tmp_path, stop_at=stop_at)
    result = await bench.train(job(max_steps=6))
    done = 3 if stop_at in STOPS[3:] else 2
    assert (result.status, result.steps) == (JobStatus.CANCELED, done)
    assert [(one["step"], one["published"]) for one in bench.recorder.checkpoints] == [(done, False)]
    assert result.checkpoint == tmp_path / "checkpoints" / f"step-{done:06d}"
    assert bench.recorder.statuses == [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.CANCELED]
    assert bench.capture.live == {}


async def test_stopping_before_the_first_step_is_through_saves_nothing(tmp_path):
    bench = Bench(tmp_path, stop_at=("progress", 1, "rollout", 0, 8))
    result = await bench.train()
    assert (result.status, result.steps, result.checkpoint) == (JobStatus.CANCELED, 0, None)
    assert bench.learner.batches == []


SIX = {"max_steps": 6, "eval_steps": 2, "save_strategy": "steps", "save_steps": 3}


@pytest.mark.parametrize("num_rows", [6, 7, 8, 50])
async def test_three_steps_and_three_more_are_the_six_steps_straight(tmp_path, num_rows):
    straight = Bench(tmp_path / "straight")
    whole = await straight.train(job(**SIX), rows(num_rows))
    first = Bench(tmp_path / "halves", stop_at=("checkpoint", 3))
    half = await first.train(job(**SIX), rows(num_rows))
    assert half.steps == 3
    second = Bench(tmp_path / "halves")
    rest = await second.train(job(**SIX), rows(num_rows), resume_from=half.checkpoint)
    one, two = run_facts(straight), run_facts(first, second)
    assert two.opened == one.opened
    assert two.sampling == one.sampling
    assert two.batches == one.batches
    assert two.values == pytest.approx(one.values, nan_ok=True)
    assert two.weights == one.weights
    assert rest.validations == whole.validations
    assert (rest.sampled_tokens, rest.trained_tokens) == (whole.sampled_tokens, whole.trained_tokens)
    assert rest.status is JobStatus.SUCCEEDED


async def test_a_validation_that_stopping_cut_off_is_made_up_for(tmp_path):
    first = Bench(tmp_path, stop_at=("metrics", 2))
    half = await first.train(job())
    assert [step for step, _ in half.validations] == [0]
    rest = await Bench(tmp_path).train(job(), resume_from=half.checkpoint)
    assert [step for step, _ in rest.validations] == [0, 2, 4]


async def test_resuming_publishes_what_was_loaded_before_any_rollout(tmp_path):
    first = Bench(tmp_path, stop_at=("metrics", 2))
    half = await first.train(job())
    second = Bench(tmp_path)
    await second.train(job(), resume_from=half.checkpoint)
    assert second.publisher.published == [2, 3, 4]
    assert ("resumed", "goes on after step 2", 2) in second.recorder.events


async def test_retention_goes_on_across_a_resume(tmp_path):
    hyper = {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "eval_steps": 99, "validation": False}
    first = Bench(tmp_path, stop_at=("metrics", 3))
    half = await first.train(job(**hyper))
    second = Bench(tmp_path)
    await second.train(job(**hyper), resume_from=half.checkpoint)
    assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir()) == [
        "step-000005",
        "step-000006",
    ]
    assert "checkpoint_not_removed" not in second.recorder.kinds()


async def test_resuming_a_finished_run_says_that_it_is_finished(tmp_path):
    done = await Bench(tmp_path).train()
    again = Bench(tmp_path)
    result = await again.train(resume_from=done.checkpoint)
    assert result.status is JobStatus.SUCCEEDED
    assert (result.steps, result.validations, result.checkpoint) == (4, done.validations, done.checkpoint)
    assert again.capture.opened == []
    assert again.checkpoints.written == []
    assert [text for kind, text, _ in again.recorder.events if kind == "already_finished"] == [
        f"already finished: all 4 steps are in {done.checkpoint}"
    ]


async def test_a_run_stopped_after_its_last_step_is_finished_by_resuming(tmp_path):
    half = await Bench(tmp_path, stop_at=("metrics", 4)).train()
    assert (half.status, half.steps) == (JobStatus.CANCELED, 4)
    again = Bench(tmp_path)
    result = await again.train(resume_from=half.checkpoint)
    assert result.status is JobStatus.SUCCEEDED
    assert [step for step, _ in result.validations] == [0, 2, 4]
    assert again.recorder.checkpoints[-1]["published"] is True


@pytest.mark.parametrize(("hyper", "num_rows"), [({"seed": 7}, 8), ({"batch_size": 4}, 8), ({}, 9)])
async def test_a_checkpoint_of_other_data_batch_or_seed_is_refused(tmp_path, hyper, num_rows):
    half = await Bench(tmp_path, stop_at=("metrics", 2)).train()
    with pytest.raises(CheckpointError, match="other training rows or hyper-parameters"):
        await Bench(tmp_path).train(job(**hyper), rows(num_rows), resume_from=half.checkpoint)


async def test_cancelling_the_task_is_recorded_and_leaves_nothing_open(tmp_path):
    started = asyncio.Event()

    async def hangs(payload):
        started.set()
        await asyncio.Event().wait()

    bench = Bench(tmp_path, agent=hangs)
    task = asyncio.create_task(bench.train())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.recorder.statuses[-1] is JobStatus.CANCELED
    assert bench.capture.live == {}


async def test_preset_rewards_train_without_a_reward_function(tmp_path):
    bench = Bench(tmp_path)

    async def agent(payload):
        output = await one_call_agent(bench.capture)(payload)
        score = float(next(iter(bench.capture.live[key_of(payload)])).response["content"])
        return output.model_copy(
            update={"agent_output": output.agent_output.model_copy(update={"reward_score": score})}
        )

    def key_of(payload):
        return (payload.request_metadata.rollout_id, payload.request_metadata.attempt_id)

    bench.functions.functions["agent"] = agent
    only_rollout = [{"type": "rollout", "name": "agent", "fcmodel": {"classpath": "a.B"}}]
    await bench.train(job(max_steps=1, functions=only_rollout))
    assert 0 < bench.recorder.values[1]["critic/rewards/mean"] < 1
    assert len(bench.learner.batches) == 1
