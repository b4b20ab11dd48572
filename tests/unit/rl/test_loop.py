"""The whole flow on fakes: order, schedules, what reaches whom."""

import asyncio
import math

import pytest

from fakes.bench import Bench, job, rows
from fakes.functions import one_call_agent
from strop.errors import StoppedByDiagnosis
from strop.rl.failures import NothingLearned
from strop.schema.job import JobStatus
from strop.tracing.metrics import UnknownMetricError


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
    assert bench.weight_sync.pushed == [0, 1, 2, 3]
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
    assert "one mini-batch and one epoch: the ratio is always 1, so clipping never applies" in texts
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


async def test_the_engine_lets_go_of_its_weights_while_they_change_and_has_them_for_every_rollout(tmp_path):
    bench = Bench(tmp_path)
    seen: list[tuple[str, bool]] = []
    update, policy = bench.learner.update, bench.capture.policy

    def watched_update(batch):
        seen.append(("update", bench.weight_sync.live))
        return update(batch)

    def watched_policy(sampling, messages):
        seen.append(("rollout", bench.weight_sync.live))
        return policy(sampling, messages)

    bench.learner.update, bench.capture.policy = watched_update, watched_policy
    await bench.train(job(max_steps=2))
    assert {live for what, live in seen if what == "rollout"} == {True}
    assert [live for what, live in seen if what == "update"] == [False, False]
    assert seen[-1] == ("rollout", True)  # the last validation


async def test_equal_rewards_are_counted_and_update_nothing(tmp_path):
    bench = Bench(tmp_path)
    bench.capture.policy = lambda sampling, messages: "1"
    with pytest.raises(NothingLearned):
        await bench.train(job(max_steps=2))
    assert bench.learner.batches == []
    assert bench.weight_sync.pushed == [0]
    assert bench.recorder.kinds().count("step_without_gradient") == 2
    assert bench.recorder.values[1]["group/frac_zero_std"] == 1.0
    assert "timing/s/update_actor" not in bench.recorder.values[1]


async def test_equal_rewards_still_feel_the_pull_of_a_kl_loss(tmp_path):
    bench = Bench(tmp_path)
    bench.capture.policy = lambda sampling, messages: "1"
    await bench.train(job(max_steps=1, kl_loss_coef=0.01))
    assert len(bench.learner.batches) == 1


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
