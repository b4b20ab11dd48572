"""Training type + keys of a job -> those that would do nothing or are missing, each with the mend. For
`config.loading`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from strop.config.file import KeyPath
from strop.config.job import HyperParameters, JobConfig, TrainingType

_HYPER: KeyPath = ("training", "hyper_parameters")
_OF_ROWS = frozenset(
    {
        "learning_rate",
        "lr_scheduler_type",
        "lr_warmup_steps",
        "n_epochs",
        "batch_size",
        "max_length",
        "eval_steps",
        "early_stopping_target",
        "early_stopping_count",
        "save_steps",
        "save_strategy",
        "save_total_limit",
        "seed",
        "max_steps",
        "max_grad_norm",
        "weight_decay",
        "freeze_embeddings",
        "train_dtype",
        "lora_rank",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
    }
)
"""What an update needs wherever its rows come from."""
_OF_PREFERENCES = frozenset({"dpo_loss", "dpo_beta", "label_smoothing"})
_OF_REWARDS = frozenset(
    {
        "kl_loss_coef",
        "kl_loss_type",
        "kl_reward_coef",
        "kl_reward_type",
        "gamma",
        "lam",
        "cliprange_value",
        "critic_learning_rate",
        "critic_warmup",
        "filter_groups",
        "max_num_gen_batches",
        "overlong_buffer_len",
        "overlong_penalty_factor",
    }
)
"""What shapes rewards or holds the policy to its start: in distillation the teacher does both."""


def effective_keys(kind: TrainingType) -> frozenset[str]:
    """The hyper-parameters that do something in a training of this type.

    >>> sorted(effective_keys(TrainingType.REINFORCEMENT) - effective_keys(TrainingType.PG_OPD))[:2]
    ['cliprange_value', 'critic_learning_rate']
    >>> sorted(effective_keys(TrainingType.DPO) - effective_keys(TrainingType.SFT))
    ['dpo_beta', 'dpo_loss', 'label_smoothing']
    """
    match kind:
        case TrainingType.SFT | TrainingType.CPT:
            return _OF_ROWS
        case TrainingType.DPO:
            return _OF_ROWS | _OF_PREFERENCES
        case TrainingType.PG_OPD:
            return frozenset(HyperParameters.model_fields) - _OF_PREFERENCES - _OF_REWARDS
        case TrainingType.REINFORCEMENT:
            return frozenset(HyperParameters.model_fields) - _OF_PREFERENCES


def keys_of_other_types(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, str]]:
    """The hyper-parameters in the data of a file that do nothing in its training type: path, message, fix."""
    training = data.get("training")
    section = cast("dict[str, Any]", training) if isinstance(training, dict) else {}
    hyper = section.get("hyper_parameters")
    word = section.get("type") or data.get("mode") or TrainingType.REINFORCEMENT
    if not isinstance(hyper, dict) or word not in list(TrainingType):
        return
    kind = TrainingType(word)
    given = set(cast("dict[str, Any]", hyper)) & set(HyperParameters.model_fields)
    for key in sorted(given - effective_keys(kind)):
        suited = [one.value for one in TrainingType if key in effective_keys(one)]
        message = f"has no effect in training type {kind.value}"
        yield (*_HYPER, key), message, f"remove it; it is for {' and '.join(suited)}"


def type_complaints(config: JobConfig) -> Iterator[tuple[KeyPath, str, str]]:
    """Everything else in a job that does not suit its training type: the key's path, message, fix."""
    kind, hyper = config.training_type, config.hyper_parameters
    if hyper.lora_dropout > 0 and not kind.offline:
        message = f"has no place in training type {kind.value}: old and policy logprobs must be one function"
        yield (*_HYPER, "lora_dropout"), message, "remove it"
    yield from _teacher_complaints(config)
    yield from _group_complaints(config)
    validated = any(dataset.type == "validation" for dataset in config.datasets)
    if hyper.early_stopping_target is not None and not validated:
        message = "has no effect: there is no validation dataset to reach it on"
        yield (*_HYPER, "early_stopping_target"), message, "add a dataset of type validation, or remove it"
    example = "{type: reward, fcmodel: {classpath: reward.py:MyReward}}"
    if kind.offline:
        if config.functions:
            message = f"have no effect in training type {kind.value}: nothing is sampled"
            yield ("functions",), message, "remove them"
    elif not config.functions and not config.distils:
        yield ("functions",), "missing", f"add functions: [{example}]"


def _group_complaints(config: JobConfig) -> Iterator[tuple[KeyPath, str, str]]:
    """A prompt that is answered once: some methods can learn from it, the others have nothing to compare."""
    hyper, method = config.hyper_parameters, config.hyper_parameters.method
    if hyper.n_rollouts > 1 or config.training_type is not TrainingType.REINFORCEMENT:
        return
    here = (*_HYPER, "n_rollouts")
    if not method.by_token:
        message = f"1 leaves {hyper.algorithm} without a baseline: it compares a prompt's rollouts"
        yield here, message, "set it to at least 2, or take ppo or reinforce_pp, which need no group"
    elif hyper.filters_groups:
        message = "1 leaves filter_groups no group to keep: it keeps those whose rollouts differ in reward"
        yield here, message, "set it to at least 2, or filter_groups: false"
    elif not method.critic and hyper.batch_size == 1:
        message = f"1 with batch_size 1 leaves {hyper.algorithm} nothing to compare a rollout with"
        yield here, message, "raise one of the two"


def _teacher_complaints(config: JobConfig) -> Iterator[tuple[KeyPath, str, str]]:
    teacher: KeyPath = ("training", "teacher_model")
    if not config.distils:
        if config.training.teacher_model is not None:
            message = f"has no effect in training type {config.training_type.value}"
            yield teacher, message, "set training.type: pg_opd, or remove it"
        return
    if config.training.teacher_model is None:
        message = "missing: in training type pg_opd a teacher judges the student's tokens"
        yield teacher, message, "add teacher_model: a larger model of the student's family"
    hyper = config.hyper_parameters
    method = hyper.method
    if method.critic or method.dynamic_sampling or method.overlong_buffer_share > 0:
        message = f"{hyper.algorithm} works on rewards, and a teacher judges here"
        yield (
            (*_HYPER, "algorithm"),
            message,
            "take gspo or grpo: how the ratio is clipped and tokens are averaged",
        )
    if hyper.truncation_policy == "penalise":
        message = "penalise lowers a reward, and a teacher judges here"
        yield (*_HYPER, "truncation_policy"), message, "write keep or mask"
    for index, dataset in enumerate(config.datasets):
        if dataset.type == "validation" and not config.functions:
            message = "without a function there is nothing to validate by"
            yield ("datasets", index), message, "add a reward function, or remove the validation dataset"
