"""Groups, advantages, seconds -> the metrics of one step, under their names in `tracing.metrics`.

Pure Python: no torch, no I/O. `rl.loop` calls it after the stages and hands the values to the recorder.
Three rules hold for all of it: a mean, largest or smallest of nothing is NaN, never 0; a failed rollout is
counted as failed and enters no mean of rewards; scores weigh trajectories alike, advantages their tokens.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from strop.rl.advantage import rewards_are_equal
from strop.schema.batch import Batch
from strop.schema.function import TaskStatus
from strop.schema.trajectory import Group, Trajectory

GOOD_REWARD = 0.5
"""A group of equal rewards is all good from here on, all bad below: the middle of the usual 0 to 1."""

ERROR_CODES = (
    "busy",
    "exception",
    "failed",
    "invalid_input",
    "invalid_output",
    "no_model_call",
    "timeout",
    "unreachable",
    "worker_lost",
)
"""Measured every step, so that curves show a 0 and not a hole; codes that functions choose are added."""

Values = dict[str, float]


def rollout_metrics(groups: Sequence[Group], *, epoch: int, max_prompt_length: int | None = None) -> Values:
    """What can be said of a step's scored groups before anything is learned from them.

    Units:
        epoch counts from 0; max_prompt_length in tokens, None leaves out the share of prompts at that limit.
    """
    members = _members(groups)
    at_limit: Values = {}
    if max_prompt_length is not None:
        reached = [float(prompt_length(member) >= max_prompt_length) for member in members if member.turns]
        at_limit = {"trajectory/prompt_length/clip_ratio": _mean(reached)}
    return {
        **at_limit,
        **_score_metrics(members),
        **_length_metrics(members),
        "trace/training/epoch": float(epoch),
        **_trace_metrics(members),
        **_user_metrics(members),
        **_best_and_worst(groups),
        **_pass_at_k(groups),
        **_version_metrics(groups),
        **_processing_metrics(groups),
        **_group_metrics(groups),
        **_error_metrics(members),
        **_latency_metrics(members),
    }


def distillation_metrics(groups: Sequence[Group]) -> Values:
    """What a teacher had nothing to judge of."""
    empty = [float(not member.num_sampled_tokens) for member in _members(groups)]
    return {"trace/distillation/empty_response_rate": _mean(empty)}


def batch_metrics(batch: Batch) -> Values:
    """What became of the trajectories on their way into the packs."""
    sequences = [
        sequence for mini in batch.mini_batches for pack in mini.packs for sequence in pack.sequences
    ]
    num_rollouts = len({sequence.rollout_id for sequence in sequences})
    return {
        "trajectory/num_sequences/mean": _ratio(len(sequences), num_rollouts),
        "perf/loss_tokens": float(sum(sequence.num_loss_tokens for sequence in sequences)),
    }


def timing_metrics(
    timings: Mapping[str, float],
    groups: Sequence[Group],
    *,
    trained_tokens: int,
    num_devices: int = 1,
    waited_s: float | None = None,
) -> Values:
    """Seconds of the step's phases, and tokens by them.

    Units:
        timings: seconds by phase (`step`, `rollout`, `update_actor`, ...). trained_tokens: tokens that went
        through the learner's forward and backward pass, a prefix shared by a group counted once. waited_s:
        how long the learner waited for the groups, where it learns while others are sampled; else it waits
        for all of their rollouts and rewards.
    Returns:
        `timing/s/<phase>` for each; rates are NaN where their phase was not timed or took no time.
    """
    members = _members(groups)
    step, rollout, update = (timings.get(name, math.nan) for name in ("step", "rollout", "update_actor"))
    sampled = sum(member.num_sampled_tokens for member in members)
    sampling = _ratio(rollout, step)
    waited = rollout + timings.get("reward", 0.0) if waited_s is None else waited_s
    response = sum(response_length(member) for member in members)
    total = sum(total_length(member) for member in members)
    return {
        **{f"timing/s/{phase}": float(seconds) for phase, seconds in timings.items()},
        "timing/ms/gen_per_token": _ratio(1000.0 * rollout, response),
        "timing/ms/update_actor_per_token": _ratio(1000.0 * update, trained_tokens),
        "perf/total_num_tokens": float(total),
        "perf/sampled_tokens": float(sampled),
        "perf/trained_tokens": float(trained_tokens),
        "perf/time_per_step": step,
        "perf/throughput": _ratio(total, step * num_devices),
        "perf/sampling_tokens_per_s": _ratio(sampled, rollout),
        "fully_async/trainer/idle_ratio": _ratio(waited, step),
        "fully_async/rollouter/idle_ratio": 1.0 - (1.0 if sampling > 1.0 else sampling),
    }


def validation_metrics(groups: Sequence[Group], *, source: str = "data") -> Values:
    """How good the policy is on held-out samples; `source` names the dataset.

    A sample's value is the mean over its scored rollouts, the result the mean over samples: with the usual
    one rollout a sample that is mean@1. A failed rollout is no 0: it enters `failed_ratio` and nothing else.
    """
    members = _members(groups)
    scored = [group.survivors for group in groups if group.survivors]
    names = sorted({name for survivors in scored for member in survivors for name in member.reward_parts})
    parts = {
        f"reward/{name}/mean@1": _mean(
            [
                _mean([member.reward_parts[name] for member in survivors if name in member.reward_parts])
                for survivors in scored
                if any(name in member.reward_parts for member in survivors)
            ]
        )
        for name in names
    }
    values = {
        "reward/mean@1": _mean([_mean(_rewards(survivors)) for survivors in scored]),
        **parts,
        "failed_ratio": _mean([0.0 if member.scored else 1.0 for member in members]),
        "response_length/mean": _mean([response_length(member) for member in members]),
        "response_length/clip_ratio": _mean([_clipped(member) for member in members]),
    }
    return {f"validation/{source}/{name}": value for name, value in values.items()}


def prompt_length(trajectory: Trajectory) -> int:
    """Tokens of the shortest prompt: the first turn's, unless several were made at once; 0 without."""
    return min((len(turn.prompt_ids) for turn in trajectory.turns), default=0)


def total_length(trajectory: Trajectory) -> int:
    """Tokens of the longest context: the turn whose prompt and completion are longest together.

    With turns that extend each other that is the last one and holds the whole conversation. Where a rollout
    gave several sequences (a template that drops earlier text, subagents) it is the longest of them.
    """
    return max((len(turn.prompt_ids) + len(turn.completion_ids) for turn in trajectory.turns), default=0)


def response_length(trajectory: Trajectory) -> int:
    """Tokens after the first prompt, those of tools and templates included; 0 when nothing was sampled."""
    if not trajectory.num_sampled_tokens:
        return 0
    return total_length(trajectory) - prompt_length(trajectory)


def _members(groups: Iterable[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


def _score_metrics(members: Sequence[Trajectory]) -> Values:
    """Scores as the functions gave them, rewards shaped by length where asked for, before any KL penalty:
    where one is taken, the flow measures the rewards again."""
    scored = [member for member in members if member.scored]
    return {**_spread("critic/score", _scores(scored)), **_spread("critic/rewards", _rewards(scored))}


def _length_metrics(members: Sequence[Trajectory]) -> Values:
    lengths = [response_length(member) for member in members]
    prompts = [prompt_length(member) for member in members if member.turns]
    return {
        **_spread("trajectory/response_length", lengths),
        **_spread("trajectory/response_length_non_aborted", [length for length in lengths if length]),
        "trajectory/response/aborted_ratio": _mean([float(length == 0) for length in lengths]),
        "trajectory/response_length/clip_ratio": _mean([_clipped(member) for member in members]),
        **_spread("trajectory/prompt_length", prompts),
        **_spread("trajectory/num_turns", [len(member.turns) for member in members]),
        **_spread("trajectory/sampled_tokens", [member.num_sampled_tokens for member in members]),
    }


def _clipped(member: Trajectory) -> float:
    return float(member.truncated)


def _trace_metrics(members: Sequence[Trajectory]) -> Values:
    ran = [member for member in members if _ran(member)]
    calls = [sum(len(turn.response.get("tool_calls") or ()) for turn in member.turns) for member in members]
    return {
        **_average("trace/num_llm_calls", [len(member.turns) for member in members]),
        **_average("trace/success_rate/agent", [float(_ran(member)) for member in members]),
        **_average("trace/success_rate/reward", [float(member.reward is not None) for member in ran]),
        **_average("trace/attempts/agent", [member.attempts for member in members]),
        **_average("trace/attempts/reward", [m.reward_calls for m in members if m.reward_calls]),
        "trace/tool_call_count": _mean(calls),
    }


def _ran(member: Trajectory) -> bool:
    """Whether the agent succeeded. Where only the reward failed, a rollout is FAILED but took reward time."""
    return member.status is TaskStatus.SUCCESS or member.reward_s > 0.0


def _user_metrics(members: Sequence[Trajectory]) -> Values:
    """Values under names that users chose: over the trajectories that have them.

    A metric of a reward has its largest and smallest beside: a function that scores a whole group gives each
    member the same, and what it says of its slowest call would drown in a mean.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for member in members:
        for name, value in member.reward_parts.items():
            found[f"trace/reward/{name}"].append(value)
        for function, metrics in member.reward_metrics.items():
            for name, value in metrics.items():
                found[f"trace/reward_metrics/{function}/{name}"].append(value)
        for name, value in member.rollout_metrics.items():
            found[f"trace/rollout_metrics/{name}"].append(value)
    metrics = {key: value for name, values in found.items() for key, value in _average(name, values).items()}
    for name, values in found.items():
        if name.startswith("trace/reward_metrics/"):
            metrics |= {f"{name}/max": _largest(values), f"{name}/min": _smallest(values)}
    return metrics


def _best_and_worst(groups: Sequence[Group]) -> Values:
    """For each reward function the best and the worst score of a group, averaged over groups: what the policy
    could do, and what it must be feared to do."""
    of_groups: defaultdict[str, list[list[float]]] = defaultdict(list)
    for group in groups:
        scores: defaultdict[str, list[float]] = defaultdict(list)
        for member in group.trajectories:
            for name, value in member.reward_parts.items():
                scores[name].append(value)
        for name, values in scores.items():
            of_groups[name].append(values)
    return {
        f"trace/reward/{name}/{word}": _mean([pick(scores) for scores in groups_of_one])
        for name, groups_of_one in of_groups.items()
        for word, pick in (("bon", max), ("won", min))
    }


def _pass_at_k(groups: Sequence[Group]) -> Values:
    """The chance that one of k answers is good, for k = 1, 2, 4 ... up to the smallest group: unbiased from
    the n that were sampled, 1 - C(n - c, k) / C(n, k) with c good ones (arXiv:2107.03374), mean over
    groups."""
    scores_of_groups = [_scores(group.survivors) for group in groups if group.survivors]
    most = min((len(scores) for scores in scores_of_groups), default=0)
    metrics: Values = {}
    k = 1
    while k <= most:
        metrics[f"group/pass@k/{k}"] = _mean([_chance(scores, k) for scores in scores_of_groups])
        k *= 2
    return metrics


def _chance(scores: Sequence[float], k: int) -> float:
    bad = sum(score < GOOD_REWARD for score in scores)
    return 1.0 - math.comb(bad, k) / math.comb(len(scores), k)


def _version_metrics(groups: Sequence[Group]) -> Values:
    """How old the weights were that sampled, in policy versions behind the step's newest."""
    ranges = [_versions(one) for group in groups for one in _turned(group)]
    newest = max((high for _, high in ranges), default=0)
    return {
        "trajectory/staleness/mean": _mean([float(newest - low) for low, _ in ranges]),
        "trajectory/staleness/max": _largest([newest - low for low, _ in ranges]),
        "fully_async/count/current_param_version": float(newest) if ranges else math.nan,
    }


def version_metrics(groups: Sequence[Group], *, learned_at: int) -> Values:
    """What a step that was sampled ahead adds to these: staleness behind the policy version it is learned
    from, and tokens of several versions in one trajectory. Samples and trajectories with a token that is
    behind count as stale. Where every step samples with the newest weights, all of it could only be 0."""
    ranges_of_groups = [list(map(_versions, _turned(group))) for group in groups]
    ranges = [pair for of_group in ranges_of_groups for pair in of_group]
    newest = max((high for _, high in ranges), default=0)
    newest = max(newest, learned_at)
    partial = [float(high != low) for low, high in ranges]
    stale = [[low < newest for low, _ in of_group] for of_group in ranges_of_groups]
    name = "fully_async"
    return {
        "trajectory/staleness/mean": _mean([float(newest - low) for low, _ in ranges]),
        "trajectory/staleness/max": _largest([newest - low for low, _ in ranges]),
        f"{name}/count/stale_samples_processed": float(sum(any(of_group) for of_group in stale)),
        f"{name}/count/stale_trajectory_processed": float(sum(map(sum, stale))),
        f"{name}/partial/total_partial_num": math.fsum(partial) if partial else math.nan,
        f"{name}/partial/partial_ratio": _mean(partial),
        f"{name}/partial/max_partial_span": _largest([high - low for low, high in ranges]),
    }


def _turned(group: Group) -> list[Trajectory]:
    """Those in which something was sampled."""
    return [one for one in group.trajectories if one.num_sampled_tokens]


def _versions(member: Trajectory) -> tuple[int, int]:
    versions = [version for turn in member.turns for version in turn.policy_versions]
    return min(versions), max(versions)


def _processing_metrics(groups: Sequence[Group]) -> Values:
    """Seconds of one sample, from its first rollout to its last reward. Its rollouts run side by side, so the
    slowest of them counts."""
    seconds = [
        max(one.rollout_s + one.reward_s for one in group.trajectories)
        for group in groups
        if group.trajectories
    ]
    values = {
        "avg": _mean(seconds),
        "max": _largest(seconds),
        "min": _smallest(seconds),
        **{f"tp{percent}": _percentile(seconds, percent) for percent in (50, 95, 99)},
    }
    return {f"fully_async/processing_time/{name}": value for name, value in values.items()}


def _group_metrics(groups: Sequence[Group]) -> Values:
    """Shares are of the groups that have a baseline: two survivors or more. Lengths do not enter."""
    scores_of_groups = [_scores(group.survivors) for group in groups if len(group.survivors) >= 2]
    equal = [scores for scores in scores_of_groups if rewards_are_equal(scores)]
    num_good = sum(scores[0] >= GOOD_REWARD for scores in equal)
    num_groups = len(scores_of_groups)
    return {
        "group/frac_zero_std": _ratio(len(equal), num_groups),
        "group/frac_all_good": _ratio(num_good, num_groups),
        "group/frac_all_bad": _ratio(len(equal) - num_good, num_groups),
        "group/frac_mixed": _ratio(num_groups - len(equal), num_groups),
        "group/dropped": float(len(groups) - num_groups),
    }


def _error_metrics(members: Sequence[Trajectory]) -> Values:
    failed = (member for member in members if member.status is TaskStatus.FAILED)
    counts = Counter(member.error_code or "failed" for member in failed)
    codes = sorted({*ERROR_CODES, *counts})
    return {f"function/error_rate/{code}": _ratio(counts[code], len(members)) for code in codes}


def _latency_metrics(members: Sequence[Trajectory]) -> Values:
    model = [math.fsum(turn.latency_s for turn in member.turns) for member in members]
    return {
        "timing/s/rollout/agent_loop_latency/avg": _mean([m.rollout_s + m.reward_s for m in members]),
        "timing/s/rollout/model_latency/avg": _mean(model),
        "timing/s/rollout/reward_latency/avg": _mean([m.reward_s for m in members if m.reward_s > 0.0]),
    }


def _rewards(members: Iterable[Trajectory]) -> list[float]:
    return [member.reward for member in members if member.reward is not None]


def _scores(members: Iterable[Trajectory]) -> list[float]:
    return [score for member in members if (score := member.score) is not None]


def _spread(name: str, values: Sequence[float]) -> Values:
    return {f"{name}/mean": _mean(values), f"{name}/max": _largest(values), f"{name}/min": _smallest(values)}


def _average(name: str, values: Sequence[float]) -> Values:
    return {f"{name}/avg": _mean(values), f"{name}/sum": math.fsum(values) if values else math.nan}


def _mean(values: Sequence[float]) -> float:
    return _ratio(math.fsum(values), len(values))


def _largest(values: Sequence[float]) -> float:
    return float(max(values, default=math.nan))


def _smallest(values: Sequence[float]) -> float:
    return float(min(values, default=math.nan))


def _percentile(values: Sequence[float], percent: float) -> float:
    """Between the two nearest values in proportion, as numpy has it."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = percent / 100.0 * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


COUNTED = (
    "trace/rerendered_prompts",
    "trace/tool_parse_errors",
    "trace/refused_calls",
    "trace/aborted_calls",
    "trace/replayed_calls",
)
"""Counters that are metrics themselves, under the same name."""

PREFIX_HITS, PREFILLED = "prefix_hits", "prefilled"
"""Prompt tokens found in the engine's cache, and computed: their share of hits is a metric."""


def counted_since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Counters that only grow -> what they counted in one step; backends that count nothing give none.

    They count since they were made, and a curve shows a step. A validation in between belongs to no step.
    """
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    values = {name: grown[name] for name in COUNTED if name in grown}
    if PREFIX_HITS in grown and PREFILLED in grown:
        prompt_tokens = grown[PREFIX_HITS] + grown[PREFILLED]
        values["perf/prefix_hit_rate"] = grown[PREFIX_HITS] / prompt_tokens if prompt_tokens else math.nan
    return values
