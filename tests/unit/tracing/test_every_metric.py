"""Every metric of the registry, worked by hand on a batch of a few tokens: one that has no value here fails.

The policy is `fakes.uniform`: before the first update each token has probability 1/4; after it, at a rate of
1/2, the favoured token 1 has the logit 2, the disfavoured token 2 the logit -2, and the other two 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from fakes.learning import Critic, Learner, OfflineLearner
from fakes.offline import example
from fakes.offline import packed as rows_packed
from fakes.packs import batch, mini_batch, sequence
from fakes.tokenizer import tiny_tokenizer
from fakes.uniform import uniform_llama
from strop.config.job import HyperParameters, TruncationPolicy
from strop.data.dataset import Draw
from strop.learners.local.objective import distilled
from strop.learners.local.packed_trees import pack_trees
from strop.learners.local.teacher import Teacher
from strop.rl import offline, stopwatch, update_metrics
from strop.rl.batch import pack
from strop.rl.filtering import GroupFilter
from strop.rl.gae import gae_metrics
from strop.rl.metrics import (
    PREFILLED,
    PREFIX_HITS,
    batch_metrics,
    counted_since,
    distillation_metrics,
    rollout_metrics,
    timing_metrics,
    validation_metrics,
    version_metrics,
)
from strop.rl.overlong import LengthPlan, length_metrics
from strop.rl.repeat_failures import lost_again
from strop.rl.token_advantage import penalise
from strop.rl.train_state import TrainState
from strop.rl.update import with_rows
from strop.schema.batch import Score
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn
from strop.tracing.catalogue import ABSENT
from strop.tracing.metrics import all_metrics, metric

LN4 = math.log(4)
Z = 2 + math.exp(2) + math.exp(-2)
"""What the four probabilities after the update are divided by."""
P = {1: math.exp(2) / Z, 2: math.exp(-2) / Z}
RISEN, FALLEN = math.log(4 * P[1]), math.log(4 * P[2])
"""Policy minus old logprob of the favoured and of the disfavoured token."""
ENTROPY = math.log(Z) - 2 * P[1] + 2 * P[2]


def settings(**changes) -> HyperParameters:
    return HyperParameters.model_validate(
        {
            "algorithm": "grpo",
            "learning_rate": 0.5,
            "lr_scheduler_type": "constant",
            "lr_warmup_steps": 0,
            "loss_agg_mode": "token-mean",
            "train_dtype": "float32",
            "max_grad_norm": 1e9,
            **changes,
        }
    )


def rollout(name: str, token: int, advantage: float, behaviour: float = -LN4, **fields):
    """One that was asked [0] and wrote one token."""
    made = sequence([0], [token], advantage=advantage, behaviour=[behaviour], rollout_id=name)
    return replace(made, **fields)


def updated(*minis, **changes) -> dict[str, float]:
    learner = Learner(uniform_llama(), None, settings(**changes), total_steps=10, dtype=torch.float64)
    return learner.update(batch(*minis))


FIRST = mini_batch(pack([rollout("a", 1, 1.0), rollout("b", 2, -1.0, behaviour=-LN4 - 0.5)]))
"""Teaches 1 and unteaches 2; the engine thought 2 less likely than the learner does."""
SECOND = mini_batch(pack([rollout("c", 1, 1.0), rollout("d", 1, -1.0), rollout("e", 2, -1.0)]))
"""Ratios 3.1 (clipped at 1.2), 3.1 with a negative advantage (the outer bound, 3), 0.06 (clipped at 0.8)."""


def of_policy() -> dict[str, float]:
    """Two updates, with a KL loss and an entropy bonus; their gradients are 0 in the first."""
    found = updated(FIRST, SECOND, kl_loss_coef=0.5, entropy_coeff=0.1)
    return {**found, "actor/grad_norm": updated(FIRST, SECOND)["actor/grad_norm"]}


PG_LOSS = (-1.2 + 3.0 + 0.8) / 3
KL_LOSS = (2 * RISEN**2 / 2 + FALLEN**2 / 2) / 3
POLICY = {
    "actor/pg_loss": (0 + PG_LOSS) / 2,
    "actor/kl_loss": (0 + KL_LOSS) / 2,
    "actor/entropy_loss": (LN4 + ENTROPY) / 2,
    "actor/loss": ((0 + PG_LOSS) + 0.5 * (0 + KL_LOSS) - 0.1 * (LN4 + ENTROPY)) / 2,
    "actor/entropy": LN4,
    "actor/ppo_kl": (0 - (2 * RISEN + FALLEN) / 3) / 2,
    "actor/pg_clipfrac": (0 + 2 / 3) / 2,
    "actor/pg_clipfrac_lower": (0 + 1 / 3) / 2,
    # Without other terms: -1/2 and 1/2 at the four weights of tokens 1 and 2; then all three are clipped.
    "actor/grad_norm": (math.sqrt(4 * (0.25 + 0.25)) + 0) / 2,
    "actor/lr": 0.5,
    "actor/num_updates": 2.0,
    "actor/reference_kl_k1": (0 + (2 * RISEN + FALLEN) / 3) / 2,
    "actor/reference_kl_k3": (0 + (2 * (math.exp(-RISEN) - 1 + RISEN) + math.exp(-FALLEN) - 1 + FALLEN) / 3)
    / 2,
    # Old minus behaviour: 0, 0.5, 0, 0, 0.
    "mismatch/logprob_diff_mean": 0.1,
    "mismatch/logprob_diff_max": 0.5,
    "mismatch/kl_k1": -0.1,
    "mismatch/kl_k3": (math.exp(0.5) - 1.5) / 5,
    "mismatch/effective_sample_size": (4 + math.exp(0.5)) ** 2 / (5 * (4 + math.exp(1.0))),
}


def of_corrections() -> dict[str, float]:
    """Ratios 1 and e^0.5 = 1.65, of which the weight is cut at 1.2, or the token dropped beyond 1.5."""
    cut = updated(FIRST, rollout_is="token", rollout_is_threshold=1.2)
    dropped = updated(FIRST, rollout_rs="token", rollout_rs_high=1.5)
    unknown = mini_batch(pack([rollout("a", 1, 1.0), rollout("b", 2, -1.0, behaviour=math.nan)]))
    wild = Learner(uniform_llama(), None, settings(), total_steps=10, dtype=torch.float64)
    with torch.no_grad():
        wild.weights().get_parameter("model.norm.weight")[0] = math.inf
    return {
        "mismatch/truncated_ratio": cut["mismatch/truncated_ratio"],
        "mismatch/masked_ratio": dropped["mismatch/masked_ratio"],
        "actor/nan_tokens": updated(unknown)["actor/nan_tokens"],
        "actor/skipped_updates": wild.update(batch(FIRST))["actor/skipped_updates"],
    }


CORRECTIONS = {
    "mismatch/truncated_ratio": 0.5,
    "mismatch/masked_ratio": 0.5,
    "actor/nan_tokens": 1.0,
    "actor/skipped_updates": 1.0,
}


def of_penalty() -> dict[str, float]:
    """Two rollouts of one token that the policy finds half a nat and a nat likelier than the reference."""
    scores = [
        Score(old_logprobs=(-1.0,), reference_logprobs=(-1.5,)),
        Score(old_logprobs=(-1.0,), reference_logprobs=(-2.0,)),
    ]
    rewarded = mini_batch(pack([rollout("a", 1, 0.0, reward=1.0), rollout("b", 2, 0.0, reward=0.5)]))
    hyper = settings(kl_reward_coef=0.2, kl_reward_type="k1")
    return penalise(batch(rewarded), scores, hyper).metrics


PENALTY = {
    "actor/reward_kl_penalty": 0.75,
    "critic/rewards/mean": ((1 - 0.1) + (0.5 - 0.2)) / 2,
    "critic/rewards/max": 0.9,
    "critic/rewards/min": 0.3,
}


def of_teacher() -> dict[str, float]:
    """A teacher with the logits 0, 2, -2, 0 judges tokens 1, 2 and 9, which it does not know."""
    tokenizer = tiny_tokenizer()
    teacher = Teacher(
        uniform_llama(0, 2, -2, 0), tokenizer, settings(), student_tokenizer=tokenizer, dtype=torch.float64
    )
    asked = [rollout("a", 1, 0.0), rollout("b", 2, 0.0), rollout("c", 9, 0.0)]
    answered = with_rows([pack(asked)], teacher_logprobs=teacher.score([pack(asked)]).logprobs)
    [trees] = pack_trees(answered, max_nodes=100)
    old_ST = torch.full(trees.mask_ST.shape, -LN4, dtype=torch.float64)
    _, told = distilled(trees, old_ST, num_tokens=3)
    return {**told, **distillation_metrics(GROUPS)}


TEACHER = {
    "actor/distillation/loss": -(RISEN + FALLEN) / 3,
    "trace/distillation/valid_token_rate": 2 / 3,
    "trace/distillation/missing_token_rate": 1 / 3,
    "trace/distillation/empty_response_rate": 1 / 4,
}

JUDGED = pack(
    [
        replace(
            sequence([0], [1, 3], rollout_id="a"),
            token_advantages=(0.5, -0.5),
            returns=(1.0, 1.0),
            old_values=(-1.0, 0.0),
        ),
        replace(
            sequence([0], [2], rollout_id="b"), token_advantages=(1.5,), returns=(-2.0,), old_values=(0.5,)
        ),
    ]
)


def of_critic() -> dict[str, float]:
    """Values begin at 0, clipped at 0.5 from the old ones -1, 0, 0.5: -0.5, 0, 0."""
    made = batch(mini_batch(JUDGED))
    hyper = settings(
        algorithm="ppo", loss_agg_mode="token-mean", critic_learning_rate=0.25, cliprange_value=0.5
    )
    critic = Critic(uniform_llama(), hyper, total_steps=10, dtype=torch.float64)
    told = critic.update(made)
    with torch.no_grad():
        critic.network().head.bias.fill_(math.nan)
    skipped = critic.update(made)["critic/skipped_updates"]
    return {**told, "critic/skipped_updates": skipped, **gae_metrics(made)}


CRITIC = {
    # Of the larger errors 1.5^2 (clipped), 1 and 2^2.
    "critic/vf_loss": 0.5 * (2.25 + 1 + 4) / 3,
    "critic/vf_clipfrac": 1 / 3,
    "critic/vpred_mean": 0.0,
    # Of values that are not clipped: (0 - 1 + 2) / 3 at the bias and at each of four weights.
    "critic/grad_norm": math.sqrt(5) / 3,
    "critic/lr": 0.25,
    "critic/num_updates": 1.0,
    "critic/skipped_updates": 1.0,
    "critic/advantages/mean": 0.5,
    "critic/advantages/max": 1.5,
    "critic/advantages/min": -0.5,
    "critic/returns/mean": 0.0,
    "critic/returns/max": 1.0,
    "critic/returns/min": -2.0,
    "critic/values/mean": -0.5 / 3,
    "critic/values/max": 0.5,
    "critic/values/min": -1.0,
    # Returns 1, 1, -2 have the variance 3; what the values miss, 2, 1, -2.5, has 67/12.
    "critic/vf_explained_var": 1 - (67 / 12) / (3 + 1e-5),
}


def of_rows() -> dict[str, float]:
    """A pair, before it is learned from and, held out, after it."""
    row = example("a", [0], [1], [2], weights=[1, 0], pairs=((0, 1),))
    learner = OfflineLearner(
        uniform_llama(), None, settings(dpo_beta=0.5), total_steps=10, dtype=torch.float64
    )
    learner.remember_reference(rows_packed(row))
    learner.update(batch(mini_batch(*rows_packed(row))))
    told = learner.measure(rows_packed(row))
    held_out = {f"{offline.VALIDATION}{name}": told[key] for key, name in offline.VALIDATED.items()}
    return {**{name: value for name, value in told.items() if name != "actor/loss"}, **held_out}


# Teaching token 1 alone also lowers the two that neither answer has: logits -2, 2, -2, -2.
TAUGHT_Z = math.exp(2) + 3 * math.exp(-2)
TAUGHT, UNTAUGHT = 2 - math.log(TAUGHT_Z), -2 - math.log(TAUGHT_Z)
PREFERENCE = math.log1p(math.exp(-0.5 * 4))
ROWS = {
    "lm/loss": -TAUGHT,
    "lm/perplexity": math.exp(-TAUGHT),
    "dpo/loss": PREFERENCE,
    "dpo/rewards/chosen": 0.5 * (TAUGHT + LN4),
    "dpo/rewards/rejected": 0.5 * (UNTAUGHT + LN4),
    "dpo/rewards/margin": 0.5 * 4,
    "dpo/rewards/accuracy": 1.0,
    "validation/data/loss": PREFERENCE - TAUGHT,
    "validation/data/perplexity": math.exp(-TAUGHT),
    "validation/data/preference_accuracy": 1.0,
    "validation/data/preference_margin": 2.0,
}


def turn(prompt, completion, *, version, finish=FinishReason.STOP, latency_s=0.0, calls=0) -> Turn:
    return Turn(
        index=0,
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        behaviour_logprobs=(-1.0,) * len(completion),
        policy_versions=version,
        temperature=1.0,
        finish_reason=finish,
        messages=(),
        response={"role": "assistant", "tool_calls": [{"id": str(n)} for n in range(calls)]},
        latency_s=latency_s,
    )


def member(rollout_id, *turns, **fields) -> Trajectory:
    values = {"status": TaskStatus.SUCCESS, "attempts": 1, **fields}
    return Trajectory(
        rollout_id=rollout_id, attempt_id="a1", group_id="g", sample_id="x", turns=turns, **values
    )


def group(name, *members) -> Group:
    return Group(group_id=name, sample=Sample(sample_id=name, row=1, messages=[]), trajectories=members)


# Two calls: 2 tokens in, 1 out, a tool answers with 2, 1 out. 6 tokens, 4 after the prompt.
TALKS = member(
    "talks",
    turn([1, 2], [3], version=(4,), latency_s=1.0, calls=1),
    turn([1, 2, 3, 4, 5], [6], version=(5,), latency_s=0.5),
    reward=1.0,
    reward_parts={"right": 1.0},
    reward_metrics={"right": {"digits": 3.0}},
    rollout_metrics={"errors": 2.0},
    reward_calls=1,
    rollout_s=2.0,
    reward_s=0.5,
)
CUT = member(
    "cut",
    turn([1, 2], [3, 4], version=(5, 5), finish=FinishReason.LENGTH, latency_s=0.5),
    reward=0.25,
    overlong_penalty=-0.25,
    reward_parts={"right": 0.5},
    reward_metrics={"right": {"digits": 1.0}},
    reward_calls=3,
    attempts=2,
    rollout_s=1.0,
    reward_s=0.25,
)
CRASHED = member("crashed", status=TaskStatus.FAILED, error_code="timeout", attempts=3, rollout_s=4.0)
ALONE = member(
    "alone", turn([1, 2, 3, 4], [5], version=(5,)), reward=0.5, reward_parts={"right": 0.5}, reward_calls=1,
    rollout_s=1.0, reward_s=0.25,
)  # fmt: skip
GROUPS = (group("g1", TALKS, CUT), group("g2", CRASHED, ALONE))
TWINS = group("twins", replace(ALONE, reward=0.75), replace(ALONE, reward=0.75))
DULL = group("dull", replace(ALONE, reward=0.25), replace(ALONE, reward=0.25))

SECONDS = {
    "step": 10.0, "trainer_fetch_batch": 0.5, "rollout": 4.0, "reward": 1.0, "adv": 0.25, "scores": 0.75,
    "values": 0.125, "update_critic": 0.375, "update_actor": 2.0, "param_sync": 0.0625,
}  # fmt: skip


def of_rollouts() -> dict[str, float]:
    plan = LengthPlan(limit=8, buffer=4, factor=1.0, truncation=TruncationPolicy.PENALISE)
    mask = replace(plan, truncation=TruncationPolicy.MASK)
    signal = rollout_metrics((*GROUPS, TWINS, DULL), epoch=0)
    return {
        **rollout_metrics(GROUPS, epoch=2, max_prompt_length=4),
        **version_metrics(GROUPS, learned_at=5),
        **{name: value for name, value in signal.items() if name.startswith("group/frac")},
        **length_metrics(GROUPS, {"cut"}, plan),
        "trajectory/masked_ratio": length_metrics(GROUPS, {"cut"}, mask)["trajectory/masked_ratio"],
        **batch_metrics(batch(mini_batch(JUDGED))),
        **timing_metrics(SECONDS, GROUPS, trained_tokens=5, num_devices=2),
        **validation_metrics(GROUPS),
    }


ROLLOUTS = {
    # What the functions gave: 1, 0.25 + 0.25, 0.5.
    "critic/score/mean": 2 / 3,
    "critic/score/max": 1.0,
    "critic/score/min": 0.5,
    "critic/overlong_penalty/mean": -0.25 / 3,
    "trajectory/response_length/mean": (4 + 2 + 0 + 1) / 4,
    "trajectory/response_length/max": 4.0,
    "trajectory/response_length/min": 0.0,
    "trajectory/response_length_non_aborted/mean": 7 / 3,
    "trajectory/response_length_non_aborted/max": 4.0,
    "trajectory/response_length_non_aborted/min": 1.0,
    "trajectory/response/aborted_ratio": 0.25,
    "trajectory/response_length/clip_ratio": 0.25,
    "trajectory/masked_ratio": 1 / 3,
    "trajectory/prompt_length/mean": 8 / 3,
    "trajectory/prompt_length/max": 4.0,
    "trajectory/prompt_length/min": 2.0,
    "trajectory/prompt_length/clip_ratio": 1 / 3,
    "trajectory/num_turns/mean": 1.0,
    "trajectory/num_turns/max": 2.0,
    "trajectory/num_turns/min": 0.0,
    "trajectory/sampled_tokens/mean": (2 + 2 + 0 + 1) / 4,
    "trajectory/sampled_tokens/max": 2.0,
    "trajectory/sampled_tokens/min": 0.0,
    "trajectory/num_sequences/mean": 1.0,
    # Only the first token of `talks` is of version 4; the newest are of 5.
    "trajectory/staleness/mean": 1 / 3,
    "trajectory/staleness/max": 1.0,
    "fully_async/count/current_param_version": 5.0,
    "fully_async/count/stale_samples_processed": 1.0,
    "fully_async/count/stale_trajectory_processed": 1.0,
    "fully_async/partial/total_partial_num": 1.0,
    "fully_async/partial/partial_ratio": 1 / 3,
    "fully_async/partial/max_partial_span": 1.0,
    # The slower rollout of each sample: 2 + 0.5 and 4 seconds.
    "fully_async/processing_time/avg": 3.25,
    "fully_async/processing_time/max": 4.0,
    "fully_async/processing_time/min": 2.5,
    "fully_async/processing_time/tp50": 3.25,
    "fully_async/processing_time/tp95": 2.5 + 0.95 * 1.5,
    "fully_async/processing_time/tp99": 2.5 + 0.99 * 1.5,
    "fully_async/trainer/idle_ratio": 0.5,
    "fully_async/rollouter/idle_ratio": 0.6,
    # Rewards 1 and 0.25; 0.75 twice; 0.25 twice. `g2` has one survivor.
    "group/frac_zero_std": 2 / 3,
    "group/frac_all_good": 1 / 3,
    "group/frac_all_bad": 1 / 3,
    "group/frac_mixed": 1 / 3,
    "group/dropped": 1.0,
    "group/pass@k/1": 1.0,
    "function/error_rate/timeout": 0.25,
    "trace/training/epoch": 2.0,
    "trace/num_llm_calls/avg": 1.0,
    "trace/num_llm_calls/sum": 4.0,
    "trace/success_rate/agent/avg": 0.75,
    "trace/success_rate/agent/sum": 3.0,
    "trace/success_rate/reward/avg": 1.0,
    "trace/success_rate/reward/sum": 3.0,
    "trace/attempts/agent/avg": 7 / 4,
    "trace/attempts/agent/sum": 7.0,
    "trace/attempts/reward/avg": 5 / 3,
    "trace/attempts/reward/sum": 5.0,
    "trace/tool_call_count": 0.25,
    "trace/reward/right/avg": 2 / 3,
    "trace/reward/right/sum": 2.0,
    "trace/reward/right/bon": (1 + 0.5) / 2,
    "trace/reward/right/won": (0.5 + 0.5) / 2,
    "trace/reward_metrics/right/digits/avg": 2.0,
    "trace/reward_metrics/right/digits/sum": 4.0,
    "trace/reward_metrics/right/digits/max": 3.0,
    "trace/reward_metrics/right/digits/min": 1.0,
    "trace/rollout_metrics/errors/avg": 2.0,
    "trace/rollout_metrics/errors/sum": 2.0,
    **{f"timing/s/{phase}": seconds for phase, seconds in SECONDS.items()},
    "timing/s/rollout/agent_loop_latency/avg": (2.5 + 1.25 + 4 + 1.25) / 4,
    "timing/s/rollout/model_latency/avg": (1.5 + 0.5) / 4,
    "timing/s/rollout/reward_latency/avg": 1 / 3,
    "timing/ms/gen_per_token": 4000 / 7,
    "timing/ms/update_actor_per_token": 400.0,
    "perf/total_num_tokens": 6 + 4 + 0 + 5,
    "perf/sampled_tokens": 5.0,
    "perf/trained_tokens": 5.0,
    "perf/loss_tokens": 3.0,
    "perf/time_per_step": 10.0,
    "perf/throughput": 15 / (10 * 2),
    "perf/sampling_tokens_per_s": 5 / 4,
    # Of g1 (1 + 0.25) / 2, of g2 0.5.
    "validation/data/reward/mean@1": (0.625 + 0.5) / 2,
    "validation/data/reward/right/mean@1": (0.75 + 0.5) / 2,
    "validation/data/failed_ratio": 0.25,
    "validation/data/response_length/mean": 7 / 4,
    "validation/data/response_length/clip_ratio": 0.25,
}


def of_the_run(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What is counted and timed around the stages."""
    ticks: Iterator[float] = iter((0.0, 3.0, 3.0, 5.0, 5.0, 6.5))
    clock = type("Clock", (), {"perf_counter": staticmethod(lambda: next(ticks))})
    took, told = stopwatch.Stopwatch(), update_metrics.UpdateMetrics()
    with monkeypatch.context() as patched:
        patched.setattr(stopwatch, "time", clock)
        patched.setattr(update_metrics, "time", clock)
        for phase in ("validation", "save"):
            with took(f"timing/s/{phase}"):
                pass
        with told.timed("timing/s/old_log_prob"):
            pass
    counts = ("rerendered_prompts", "tool_parse_errors", "refused_calls", "aborted_calls", "replayed_calls")
    before = {**{f"trace/{name}": 10.0 for name in counts}, PREFIX_HITS: 100.0, PREFILLED: 100.0}
    after = {
        **{f"trace/{name}": 11.0 + at for at, name in enumerate(counts)},
        PREFIX_HITS: 160.0,
        PREFILLED: 140.0,
    }
    found = GroupFilter(batch_size=2, filters=True, max_rounds=3)
    found.add((TWINS, DULL))
    found.add(GROUPS)
    at = TrainState(fingerprint={}, sampled_groups=6)
    draw = Draw(epoch=0, samples=(), next_epoch=0, next_index=2)
    after_step = at.after_step(draw, tuple(found.sampled), (), idle=True, skipped_steps=0)
    return {
        **took.seconds,
        "timing/s/old_log_prob": told.values()["timing/s/old_log_prob"],
        **counted_since(before, after),
        **found.metrics(),
        "group/dropped_again": float(lost_again({"a": 1, "b": 2, "c": 5})),
        "fully_async/count/total_generated_samples": float(after_step.sampled_groups),
    }


RUN = {
    "timing/s/validation": 3.0,
    "timing/s/save": 2.0,
    "timing/s/old_log_prob": 1.5,
    "trace/rerendered_prompts": 1.0,
    "trace/tool_parse_errors": 2.0,
    "trace/refused_calls": 3.0,
    "trace/aborted_calls": 4.0,
    "trace/replayed_calls": 5.0,
    "perf/prefix_hit_rate": 0.6,
    "group/refill_rounds": 1.0,
    "group/filtered": 2.0,
    "group/trained": 1.0,
    "group/dropped_again": 2.0,
    "fully_async/count/total_generated_samples": 10.0,
}

BY_HAND = {**POLICY, **CORRECTIONS, **PENALTY, **TEACHER, **CRITIC, **ROWS, **ROLLOUTS, **RUN}
PARTS = {
    "policy": (of_policy, POLICY),
    "corrections": (of_corrections, CORRECTIONS),
    "penalty": (of_penalty, PENALTY),
    "teacher": (of_teacher, TEACHER),
    "critic": (of_critic, CRITIC),
    "rows": (of_rows, ROWS),
    "rollouts": (of_rollouts, ROLLOUTS),
}


def test_every_declared_metric_has_a_value_worked_by_hand_here():
    assert {metric(name).name for name in BY_HAND} == {declared.name for declared in all_metrics()}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_measured_is_what_the_hand_worked_out(part):
    measure, expected = PARTS[part]
    found = measure()
    assert {name: found.get(name) for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_what_is_counted_and_timed_is_what_the_hand_worked_out(monkeypatch):
    found = of_the_run(monkeypatch)
    assert {name: found.get(name) for name in RUN} == pytest.approx(RUN)


VERLS = (
    *(f"monitor/{name}" for name in ("active_tasks_size", "queue/pending_queue_size")),
    *(f"monitor/queue/{name}" for name in ("cancel_queue_size", "mq_queue_size")),
    *(f"count/{name}" for name in ("current_param_version", "total_generated_samples", "staleness_samples")),
    *(f"count/{name}" for name in ("dropped_stale_samples", "stale_samples_processed")),
    "count/stale_trajectory_processed",
    *(f"static/{name}" for name in ("required_samples", "max_required_samples", "staleness_threshold")),
    *(f"static/{name}" for name in ("max_queue_size", "max_concurrent_samples")),
    *(f"processing_time/{name}" for name in ("avg", "max", "min", "tp50", "tp95", "tp99")),
    *(f"partial/{name}" for name in ("total_partial_num", "partial_ratio", "max_partial_span")),
)


def test_every_name_of_asynchronous_training_is_measured_or_has_a_reason_why_it_cannot_be():
    declared = {one.name for one in all_metrics()}
    names = {f"fully_async/{name}" for name in VERLS}
    assert len(names) == 24
    assert names - declared == set(ABSENT)
    assert not declared & set(ABSENT)
    assert all(en and zh for en, zh in ABSENT.values())
