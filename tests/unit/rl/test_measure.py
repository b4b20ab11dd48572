"""Every measure worked by hand on one small step of two groups and a lost one."""

import math
from dataclasses import replace

import pytest

from strop.rl.advantage import step_advantages
from strop.rl.batch import build_batch
from strop.rl.metrics import (
    batch_metrics,
    response_length,
    rollout_metrics,
    timing_metrics,
    total_length,
    validation_metrics,
    version_metrics,
)
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn
from strop.tracing.metrics import check_names


def turn(prompt, completion, *, finish=FinishReason.STOP, tool_calls=0, latency_s=0.0, index=0):
    return Turn(
        index=index,
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        behaviour_logprobs=(-0.5,) * len(completion),
        policy_versions=(1,) * len(completion),
        temperature=1.0,
        finish_reason=finish,
        messages=(),
        response={
            "role": "assistant",
            "tool_calls": [{"id": str(call)} for call in range(tool_calls)] or None,
        },
        latency_s=latency_s,
    )


def member(rollout_id, *turns, **fields):
    fields.setdefault("status", TaskStatus.SUCCESS)
    fields.setdefault("attempts", 1)
    return Trajectory(
        rollout_id=rollout_id, attempt_id="a1", group_id="g", sample_id="x", turns=tuple(turns), **fields
    )


def group(group_id, *members):
    return Group(group_id=group_id, sample=Sample(sample_id="x", row=1, messages=[]), trajectories=members)


# A prompt of 4, writes 2, a tool answers with 3 (tokens 7 to 9), writes 1: 10 tokens, 6 after the prompt.
TWO_TURNS = member(
    "r1",
    turn([1, 2, 3, 4], [5, 6], tool_calls=2, latency_s=1.0),
    turn([1, 2, 3, 4, 5, 6, 7, 8, 9], [10], latency_s=0.5, index=1),
    reward=1.0,
    reward_parts={"accuracy": 1.0, "format": 0.5},
    reward_metrics={"accuracy": {"digits": 2.0}},
    rollout_metrics={"tool_errors": 1.0},
    rollout_s=2.0,
    reward_s=0.5,
)
CUT = member(
    "r2",
    turn([1, 2, 3, 4], [5, 6, 7], finish=FinishReason.LENGTH, latency_s=0.75),
    attempts=2,
    reward=0.0,
    reward_parts={"accuracy": 0.0, "format": 0.5},
    reward_metrics={"accuracy": {"digits": 1.0}},
    rollout_s=1.0,
    reward_s=0.25,
)
CRASHED = member(
    "r3", status=TaskStatus.FAILED, attempts=3, error="boom", error_code="exception", rollout_s=3.0
)
SHORT = member("r4", turn([1, 2, 3, 4, 5, 6], [9]), reward=0.5, rollout_s=1.0, reward_s=0.25)
SAME = member("r5", turn([1, 2, 3, 4, 5, 6], [8, 9]), reward=0.5, rollout_s=1.0, reward_s=0.25)
UNSCORED = member(
    "r6",
    turn([1, 2, 3, 4, 5, 6], [7]),
    status=TaskStatus.FAILED,
    error="reward function 'accuracy': timed out",
    error_code="timeout",
    rollout_s=1.0,
    reward_s=4.0,
)
ALONE = member("r7", turn([1, 2], [3]), reward=0.25, rollout_s=1.0, reward_s=0.25)
GROUPS = (
    group("g1", TWO_TURNS, CUT, CRASHED),
    group("g2", SHORT, SAME, UNSCORED),
    group("g3", ALONE),
)
NAN = pytest.approx(math.nan, nan_ok=True)


def measured(prefix, values):
    """The values below a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


@pytest.fixture
def values():
    return rollout_metrics(GROUPS, epoch=2, max_prompt_length=6)


def test_every_measured_name_is_declared(values):
    check_names(values)
    check_names(batch_metrics(build_batch(1, GROUPS, step_advantages("grpo", GROUPS), mini_batch_size=3)))
    check_names(timing_metrics(dict.fromkeys(PHASES, 1.0), GROUPS, trained_tokens=1))
    check_names(validation_metrics(GROUPS))


def test_scores_weigh_scored_trajectories_alike_and_leave_out_failed_ones(values):
    # (1 + 0 + 0.5 + 0.5 + 0.25) / 5; the two failed rollouts are not zeros.
    assert measured("critic/rewards/", values) == pytest.approx({"mean": 0.45, "max": 1.0, "min": 0.0})
    assert measured("critic/score/", values) == measured("critic/rewards/", values)


def test_response_length_counts_all_after_the_first_prompt_tool_tokens_too(values):
    # 6, 3, nothing, 1, 2, 1, 1
    assert values["trajectory/response_length/mean"] == pytest.approx(14 / 7)
    assert values["trajectory/response_length/max"] == 6.0
    assert values["trajectory/response_length/min"] == 0.0
    assert values["trajectory/response_length_non_aborted/mean"] == pytest.approx(14 / 6)
    assert values["trajectory/response_length_non_aborted/max"] == 6.0
    assert values["trajectory/response_length_non_aborted/min"] == 1.0
    assert values["trajectory/response/aborted_ratio"] == pytest.approx(1 / 7)


def test_of_several_sequences_the_longest_context_counts():
    # The second call's template dropped the first answer: 4 + 5 tokens beat 4 + 2 and 5 + 1.
    several = member("r", turn([1, 2, 3, 4], [5, 6]), turn([1, 2, 8, 9], [5] * 5), turn([1, 2, 8, 9, 3], [4]))
    assert (total_length(several), response_length(several)) == (9, 5)


def test_clipping_is_told_by_the_finish_reason_not_by_the_longest_answer(values):
    assert values["trajectory/response_length/clip_ratio"] == pytest.approx(1 / 7)


def test_prompt_lengths_are_of_the_first_turn(values):
    # 4, 4, 6, 6, 6, 2; the crashed one had no turn
    assert values["trajectory/prompt_length/mean"] == pytest.approx(28 / 6)
    assert values["trajectory/prompt_length/max"] == 6.0
    assert values["trajectory/prompt_length/min"] == 2.0
    assert values["trajectory/prompt_length/clip_ratio"] == pytest.approx(3 / 6)
    assert "trajectory/prompt_length/clip_ratio" not in rollout_metrics(GROUPS, epoch=0)


def test_turns_and_sampled_tokens_are_counted_over_all_trajectories(values):
    # turns 2 1 0 1 1 1 1, sampled 3 3 0 1 2 1 1
    assert measured("trajectory/num_turns/", values) == pytest.approx({"mean": 1.0, "max": 2.0, "min": 0.0})
    assert measured("trajectory/sampled_tokens/", values) == pytest.approx(
        {"mean": 11 / 7, "max": 3.0, "min": 0.0}
    )


def test_trace_counts_calls_successes_and_attempts(values):
    assert measured("trace/num_llm_calls/", values) == pytest.approx({"avg": 1.0, "sum": 7.0})
    # Six agents returned; of these six, five got a reward.
    assert measured("trace/success_rate/agent/", values) == pytest.approx({"avg": 6 / 7, "sum": 6.0})
    assert measured("trace/success_rate/reward/", values) == pytest.approx({"avg": 5 / 6, "sum": 5.0})
    assert measured("trace/attempts/agent/", values) == pytest.approx({"avg": 10 / 7, "sum": 10.0})
    assert values["trace/tool_call_count"] == pytest.approx(2 / 7)
    assert values["trace/training/epoch"] == 2.0


def test_names_that_users_chose_are_averaged_over_the_trajectories_that_have_them(values):
    assert measured("trace/reward/", values) == pytest.approx(
        {
            "accuracy/avg": 0.5,
            "accuracy/sum": 1.0,
            "accuracy/bon": 1.0,
            "accuracy/won": 0.0,
            "format/avg": 0.5,
            "format/sum": 1.0,
            "format/bon": 0.5,
            "format/won": 0.5,
        }
    )
    assert measured("trace/reward_metrics/", values) == pytest.approx(
        {
            "accuracy/digits/avg": 1.5,
            "accuracy/digits/sum": 3.0,
            "accuracy/digits/max": 2.0,
            "accuracy/digits/min": 1.0,
        }
    )
    assert measured("trace/rollout_metrics/", values) == pytest.approx(
        {"tool_errors/avg": 1.0, "tool_errors/sum": 1.0}
    )


def without_pass_at_k(values):
    return {name: value for name, value in values.items() if not name.startswith("pass@k/")}


def test_groups_are_mixed_or_all_equal_or_lost(values):
    # g1 has rewards 1 and 0, g2 has 0.5 twice, g3 has one survivor and no baseline.
    assert without_pass_at_k(measured("group/", values)) == pytest.approx(
        {"frac_zero_std": 0.5, "frac_all_good": 0.5, "frac_all_bad": 0.0, "frac_mixed": 0.5, "dropped": 1.0}
    )


def test_equal_rewards_below_a_half_are_all_bad_up_to_rounding():
    bad = group("g", replace(SHORT, reward=0.1 + 0.2), replace(SAME, reward=0.3))
    assert without_pass_at_k(measured("group/", rollout_metrics((bad,), epoch=0))) == pytest.approx(
        {"frac_zero_std": 1.0, "frac_all_good": 0.0, "frac_all_bad": 1.0, "frac_mixed": 0.0, "dropped": 0.0}
    )


def test_error_rates_are_shares_of_all_rollouts_and_known_codes_show_a_zero(values):
    rates = measured("function/error_rate/", values)
    assert rates["exception"] == pytest.approx(1 / 7)
    assert rates["timeout"] == pytest.approx(1 / 7)
    assert rates["worker_lost"] == 0.0
    assert math.fsum(rates.values()) == pytest.approx(2 / 7)


def test_a_code_that_a_function_chose_is_measured_too():
    odd = group("g", replace(CRASHED, error_code="quota"), replace(CRASHED, error_code=None))
    rates = measured("function/error_rate/", rollout_metrics((odd,), epoch=0))
    assert (rates["quota"], rates["failed"]) == (0.5, 0.5)


def test_latencies_are_means_of_one_trajectory(values):
    # agent + reward: 2.5 1.25 3 1.25 1.25 5 1.25; model: 1.5 0.75 and five times 0
    assert measured("timing/s/rollout/", values) == pytest.approx(
        {
            "agent_loop_latency/avg": 15.5 / 7,
            "model_latency/avg": 2.25 / 7,
            "reward_latency/avg": (0.5 + 0.25 + 0.25 + 0.25 + 4.0 + 0.25) / 6,
        }
    )


def test_nothing_measured_is_nan_and_never_zero():
    values = rollout_metrics((), epoch=0)
    counts = {"trace/training/epoch", "group/dropped"}
    assert {name for name, value in values.items() if not math.isnan(value)} == counts
    assert all(math.isnan(value) for value in validation_metrics(()).values())


def test_a_step_in_which_all_failed_has_no_rewards_but_counts_the_failures():
    values = rollout_metrics((group("g", CRASHED, CRASHED),), epoch=0)
    assert values["critic/rewards/mean"] == NAN
    assert values["trajectory/prompt_length/max"] == NAN
    assert values["trace/success_rate/reward/avg"] == NAN
    assert values["trace/success_rate/agent/avg"] == 0.0
    assert values["trajectory/response/aborted_ratio"] == 1.0
    assert values["group/frac_zero_std"] == NAN
    assert values["group/dropped"] == 1.0


def test_sequences_and_loss_tokens_are_those_of_the_batch():
    # r1 is one sequence with 3 loss tokens; broken in two by its template it would be two.
    broken = replace(
        CUT, turns=(turn([1, 2, 3, 4], [5, 6, 7]), turn([1, 2, 9], [4], index=1)), rollout_id="r2"
    )
    groups = (group("g1", TWO_TURNS, broken),)
    batch = build_batch(1, groups, step_advantages("grpo", groups), mini_batch_size=1)
    assert batch_metrics(batch) == {"trajectory/num_sequences/mean": 1.5, "perf/loss_tokens": 7.0}


PHASES = (
    "step", "trainer_fetch_batch", "rollout", "reward", "adv", "old_log_prob", "update_actor",
    "param_sync", "validation", "save",
)  # fmt: skip


def test_tokens_are_divided_by_the_seconds_of_their_phase():
    timings = {"step": 8.0, "rollout": 4.0, "update_actor": 2.0}
    values = timing_metrics(timings, GROUPS, trained_tokens=20, num_devices=2)
    # contexts 10 7 0 7 8 7 3, responses 6 3 0 1 2 1 1, sampled 3 3 0 1 2 1 1
    assert values == pytest.approx(
        {
            "timing/s/step": 8.0,
            "timing/s/rollout": 4.0,
            "timing/s/update_actor": 2.0,
            "timing/ms/gen_per_token": 4000.0 / 14,
            "timing/ms/update_actor_per_token": 100.0,
            "perf/total_num_tokens": 42.0,
            "perf/sampled_tokens": 11.0,
            "perf/trained_tokens": 20.0,
            "perf/time_per_step": 8.0,
            "perf/throughput": 42 / 16.0,
            "perf/sampling_tokens_per_s": 2.75,
            "fully_async/trainer/idle_ratio": 0.5,
            "fully_async/rollouter/idle_ratio": 0.5,
        }
    )


def test_a_phase_that_was_not_timed_gives_no_rate():
    values = timing_metrics({"rollout": 4.0}, (), trained_tokens=0)
    for name in ("perf/throughput", "perf/time_per_step", "timing/ms/update_actor_per_token"):
        assert values[name] == NAN
    assert values["timing/ms/gen_per_token"] == NAN


def test_a_failed_validation_rollout_is_counted_and_is_no_zero():
    groups = (group("v1", TWO_TURNS), group("v2", CUT), group("v3", CRASHED), group("v4", SHORT))
    assert validation_metrics(groups) == pytest.approx(
        {
            "validation/data/reward/mean@1": 0.5,
            "validation/data/reward/accuracy/mean@1": 0.5,
            "validation/data/reward/format/mean@1": 0.5,
            "validation/data/failed_ratio": 0.25,
            "validation/data/response_length/mean": 10 / 4,
            "validation/data/response_length/clip_ratio": 0.25,
        }
    )


def test_samples_weigh_alike_however_many_rollouts_they_have():
    groups = (group("v1", TWO_TURNS, replace(TWO_TURNS, reward=0.5)), group("v2", CUT))
    values = validation_metrics(groups, source="held_out")
    assert values["validation/held_out/reward/mean@1"] == pytest.approx((0.75 + 0.0) / 2)


def test_pass_at_k_is_the_chance_that_one_of_k_answers_is_good():
    right, wrong = turn([1], [2]), turn([1], [3])
    # One good of four: 1 - C(3,1)/C(4,1) = 1/4, 1 - C(3,2)/C(4,2) = 1/2, and all four hold it. None good: 0.
    one_of_four = group("a", *(member(f"a{n}", right, reward=float(n == 0)) for n in range(4)))
    none = group("b", *(member(f"b{n}", wrong, reward=0.25) for n in range(4)))
    values = rollout_metrics([one_of_four, none], epoch=0)
    found = {name: value for name, value in values.items() if "pass@k" in name}
    assert found == {"group/pass@k/1": 0.125, "group/pass@k/2": 0.25, "group/pass@k/4": 0.5}
    check_names(found)


def sampled_at(rollout_id, *versions):
    return member(rollout_id, replace(turn([1], [2] * len(versions)), policy_versions=versions), reward=1.0)


def test_staleness_counts_versions_behind_the_newest_token_of_the_step():
    values = rollout_metrics([group("a", sampled_at("r1", 5, 5), sampled_at("r2", 3, 4, 5))], epoch=0)
    expected = {"trajectory/staleness/mean": 1.0, "trajectory/staleness/max": 2.0}
    assert {name: values[name] for name in expected} == expected


def test_a_step_sampled_ahead_is_behind_the_weights_it_is_learned_from():
    groups = [
        group("a", sampled_at("r1", 5, 5), sampled_at("r2", 3, 4, 5)),
        group("b", sampled_at("r3", 6)),
    ]
    values = version_metrics(groups, learned_at=6)
    assert values == {
        "trajectory/staleness/mean": (1 + 3 + 0) / 3,
        "trajectory/staleness/max": 3.0,
        "fully_async/count/stale_samples_processed": 1.0,
        "fully_async/count/stale_trajectory_processed": 2.0,
        "fully_async/partial/total_partial_num": 1.0,
        "fully_async/partial/partial_ratio": 1 / 3,
        "fully_async/partial/max_partial_span": 2.0,
    }
    check_names(values)


def test_what_could_only_be_0_is_not_told_of_a_step_that_sampled_with_the_newest_weights():
    values = rollout_metrics([group("a", sampled_at("r1", 5, 5))], epoch=0)
    assert not [name for name in values if "stale_" in name or "/partial/" in name]


def test_the_learner_is_idle_for_as_long_as_it_waits():
    took = {"step": 10.0, "rollout": 12.0, "reward": 1.0}
    ahead = timing_metrics(took, [], trained_tokens=1, waited_s=2.0)
    assert ahead["fully_async/trainer/idle_ratio"] == 0.2
    assert ahead["fully_async/rollouter/idle_ratio"] == 0.0  # it sampled throughout, and before
