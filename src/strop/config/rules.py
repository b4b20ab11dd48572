"""Keys of a checked job against each other -> what contradicts, does nothing or is missing, with the fix.

What no section sees alone: the training type, the number of rows, the parameters of presets, packages that
are installed. `config.loading` asks for all of it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from strop.config.file import HYPER, KeyPath
from strop.config.hyper_parameters import HyperParameters
from strop.config.job import JobConfig, TrainingType
from strop.config.notes import total_steps
from strop.diagnosis.texts import RULES
from strop.functions.preset_catalogue import preset_problems
from strop.schema.finding import Severity
from strop.schema.function import FunctionType
from strop.trackers.sink import missing_extra

ARK_MAX_REWARDS = 5
ARK_WEIGHTS = (0.01, 1000.0)
ARK_STEP = 0.01

_TYPE_KEYS: tuple[KeyPath, ...] = (("training", "type"), ("mode",))


class Complaint(NamedTuple):
    """A key, what is wrong with it, the fix. It stands only where the keys `given` do, too."""

    path: KeyPath
    message: str
    fix: str | None
    given: tuple[KeyPath, ...] = ()


def complaints(config: JobConfig, num_rows: int | None) -> Iterator[Complaint]:
    """Everything. `num_rows` of the training datasets together; None where it is not known, or no measure."""
    yield from _row_complaints(config, num_rows)
    yield from _length_complaints(config.hyper_parameters)
    for one in (*_type_complaints(config), *_watch_complaints(config)):
        yield one._replace(given=(*one.given, *_TYPE_KEYS))
    yield from _reward_complaints(config)


def _hyper(*keys: str, message: str, fix: str) -> Complaint:
    """Of hyper-parameters; the first is the one to point at."""
    first, *others = ((*HYPER, key) for key in keys)
    return Complaint(first, message, fix, tuple(others))


def _row_complaints(config: JobConfig, num_rows: int | None) -> Iterator[Complaint]:
    hyper = config.hyper_parameters
    if num_rows is None:
        return
    if num_rows == 0:
        index = next(at for at, dataset in enumerate(config.datasets) if dataset.type == "training")
        message = "no rows to train on"
        yield Complaint(("datasets", index, "file_name"), message, "write one JSON object a line")
        return
    steps = total_steps(hyper, num_rows)
    if hyper.batch_size > num_rows:
        yield _hyper(
            "batch_size",
            message=f"{hyper.batch_size} is more than the {num_rows} rows of the training dataset",
            fix=f"set it to at most {num_rows}, or add rows",
        )
    if hyper.lr_warmup_steps > steps > 0 and hyper.lr_warmup_steps <= (hyper.max_steps or math.inf):
        yield _hyper(
            *("lr_warmup_steps", "batch_size", "n_epochs", "max_steps"),
            message=f"{hyper.lr_warmup_steps} is more than the {steps} steps of the run: "
            "the full rate is never reached",
            fix="lower it, or write -1 for 3 % of the run",
        )
    if hyper.critic_warmup >= steps > 0 and hyper.critic_warmup < (hyper.max_steps or math.inf):
        yield _hyper(
            *("critic_warmup", "batch_size", "n_epochs", "max_steps"),
            message=f"{hyper.critic_warmup} takes up all {steps} steps of the run: "
            "the policy would never be trained",
            fix=f"lower it below {steps}, or raise n_epochs",
        )


def _length_complaints(hyper: HyperParameters) -> Iterator[Complaint]:
    if (hyper.max_tokens or 0) >= hyper.max_length:
        yield _hyper(
            *("max_tokens", "max_length"),
            message=f"{hyper.max_tokens} leaves no room for a prompt: max_length is {hyper.max_length}",
            fix="lower max_tokens or raise max_length",
        )
    if hyper.max_steps is not None and hyper.lr_warmup_steps > hyper.max_steps:
        yield _hyper(
            *("lr_warmup_steps", "max_steps"),
            message=f"{hyper.lr_warmup_steps} exceeds max_steps {hyper.max_steps}: "
            "the full rate is never reached",
            fix="lower it, or write -1 for 3 % of the run",
        )


def _type_complaints(config: JobConfig) -> Iterator[Complaint]:
    """What does not suit the training type, beside keys that `keys_of_other_types` finds."""
    kind, hyper = config.training_type, config.hyper_parameters
    if hyper.lora_dropout > 0 and not kind.offline:
        yield _hyper(
            "lora_dropout",
            message=f"cannot be used in training type {kind.value}: "
            "old and policy logprobs must come from the same function",
            fix="remove it",
        )
    yield from _teacher_complaints(config)
    yield from _group_complaints(config)
    validated = any(dataset.type == "validation" for dataset in config.datasets)
    if hyper.early_stopping_target is not None and not validated:
        yield _hyper(
            "early_stopping_target",
            message="has no effect without a validation dataset",
            fix="add a dataset of type validation, or remove it",
        )
    if kind.offline:
        if config.functions:
            message = f"have no effect in training type {kind.value}: nothing is sampled"
            yield Complaint(("functions",), message, "remove them")
    elif not config.functions and not config.distils:
        example = "{type: reward, fcmodel: {classpath: reward.py:MyReward}}"
        yield Complaint(("functions",), "missing", f"add functions: [{example}]")


def _group_complaints(config: JobConfig) -> Iterator[Complaint]:
    """A prompt that is answered once: some methods can learn from it, the others have nothing to compare."""
    hyper, method = config.hyper_parameters, config.hyper_parameters.method
    if hyper.n_rollouts > 1 or config.training_type is not TrainingType.REINFORCEMENT:
        return
    if not method.by_token:
        yield _hyper(
            "n_rollouts",
            message=f"1 leaves {hyper.algorithm} without a baseline: it compares the rollouts of a prompt",
            fix="set it to at least 2, or take ppo or reinforce_pp, which need no group",
        )
    elif hyper.filters_groups:
        yield _hyper(
            "n_rollouts",
            message="1 leaves filter_groups no group to keep: it keeps those whose rollouts differ in reward",
            fix="set it to at least 2, or filter_groups: false",
        )
    elif not method.critic and hyper.batch_size == 1:
        yield _hyper(
            "n_rollouts",
            message=f"1 with batch_size 1 leaves {hyper.algorithm} nothing to compare a rollout with",
            fix="raise one of the two",
        )


def _teacher_complaints(config: JobConfig) -> Iterator[Complaint]:
    teacher: KeyPath = ("training", "teacher_model")
    if not config.distils:
        if config.training.teacher_model is not None:
            message = f"has no effect in training type {config.training_type.value}"
            yield Complaint(teacher, message, "set training.type: pg_opd, or remove it")
        return
    if config.training.teacher_model is None:
        message = "missing: in training type pg_opd a teacher judges the student's tokens"
        yield Complaint(teacher, message, "add teacher_model: a larger model of the student's family")
    hyper = config.hyper_parameters
    method = hyper.method
    if method.critic or method.dynamic_sampling or method.overlong_buffer_share > 0:
        yield _hyper(
            "algorithm",
            message=f"{hyper.algorithm} works on rewards, but here a teacher judges",
            fix="use gspo or grpo, which say how the ratio is clipped and tokens are averaged",
        )
    if hyper.truncation_policy == "penalise":
        yield _hyper(
            "truncation_policy",
            message="penalise lowers a reward, but here a teacher judges",
            fix="write keep or mask",
        )
    for index, dataset in enumerate(config.datasets):
        if dataset.type == "validation" and not config.functions:
            message = "there is no function to validate with"
            yield Complaint(
                ("datasets", index), message, "add a reward function, or remove the validation dataset"
            )


def _watch_complaints(config: JobConfig) -> Iterator[Complaint]:
    """What `trackers` and `diagnosis` could not do."""
    for index, tracker in enumerate(config.trackers):
        if (extra := missing_extra(tracker.type)) is not None:
            message = f"{tracker.type.value} is not installed where the job is trained"
            yield Complaint(("trackers", index, "type"), message, f"pip install 'strop[{extra}]'")
    asked = config.diagnosis
    if config.training_type.offline and (asked.stop_on or asked.webhook is not None):
        message = f"has no effect in training type {config.training_type.value}: the rules judge rollouts"
        yield Complaint(("diagnosis",), message, "remove it")
        return
    known = [*(one.value for one in Severity), *RULES]
    for index, word in enumerate(asked.stop_on):
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            fix = f"did you mean {near[0]!r}?" if near else "write alarm, warning, or a rule's name, e.g. P4"
            path: KeyPath = ("diagnosis", "stop_on", index)
            yield Complaint(path, f"{word!r} is neither a rule nor a severity", fix)


def _reward_complaints(config: JobConfig) -> Iterator[Complaint]:
    """Parameters of presets, by the preset's own signature, and what rewards weigh."""
    for index, function in enumerate(config.functions):
        if function.preset is not None:
            for key, message, fix in preset_problems(function.preset, function.params):
                yield Complaint(("functions", index, *key), message, fix)
    rewards = [
        (index, one) for index, one in enumerate(config.functions) if one.type is not FunctionType.ROLLOUT
    ]
    if any(one.fcmodel.classpath.endswith((":reward_fn", ".reward_fn")) for _, one in rewards):
        yield from _ark_complaints({index: one.weight for index, one in rewards})
    if rewards and all(one.weight == 0 for _, one in rewards):
        yield Complaint(
            ("functions", rewards[0][0], "weight"),
            "every weight is 0, so every reward would be 0",
            "give at least one reward a weight above 0",
            given=(("functions",),),
        )


def _ark_complaints(weights: Mapping[int, float]) -> Iterator[Complaint]:
    """A job with a `reward_fn` is mixed as Ark mixes: few rewards, weights in steps."""
    for index in [*weights][ARK_MAX_REWARDS:]:
        message = f"with Ark's reward_fn a job has at most {ARK_MAX_REWARDS} rewards, presets included"
        yield Complaint(("functions", index), message, "merge some, or write them as reward classes")
    low, high = ARK_WEIGHTS
    for index, weight in weights.items():
        steps = weight / ARK_STEP
        if not low <= weight <= high or abs(steps - round(steps)) > 1e-6:
            message = f"{weight:g}: with Ark's reward_fn from {low:g} to {high:g} in steps of {ARK_STEP:g}"
            fix = f"e.g. {min(max(round(steps), 1), 100_000) * ARK_STEP:g}"
            yield Complaint(("functions", index, "weight"), message, fix)
