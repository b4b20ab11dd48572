"""Training type + keys of a job -> those that would do nothing, each with the mend. For `pipeline.config`."""

from __future__ import annotations

from collections.abc import Iterator

from strop.schema.config import HyperParameters, JobConfig, TrainingType

_EVERY_TYPE = frozenset(
    {
        "learning_rate",
        "lr_scheduler_type",
        "lr_warmup_steps",
        "n_epochs",
        "batch_size",
        "max_length",
        "eval_steps",
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
_DPO_ALONE = frozenset({"dpo_loss", "dpo_beta", "label_smoothing"})


def effective_keys(kind: TrainingType) -> frozenset[str]:
    """The hyper-parameters that do something in a training of this type.

    In reinforcement whatever the others have not.

    >>> sorted(effective_keys(TrainingType.DPO) - effective_keys(TrainingType.SFT))
    ['dpo_beta', 'dpo_loss', 'label_smoothing']
    """
    match kind:
        case TrainingType.DPO:
            return _EVERY_TYPE | _DPO_ALONE
        case TrainingType.SFT | TrainingType.CPT:
            return _EVERY_TYPE
        case TrainingType.REINFORCEMENT:
            return frozenset(HyperParameters.model_fields) - _DPO_ALONE


def ineffective_keys(config: JobConfig) -> Iterator[tuple[str, str, str]]:
    """Hyper-parameters that the job sets in vain: key, message, fix."""
    kind, hyper = config.training_type, config.hyper_parameters
    for key in sorted(hyper.model_fields_set - effective_keys(kind)):
        suited = [one.value for one in TrainingType if key in effective_keys(one)]
        yield key, f"has no effect in training type {kind.value}", f"remove it; it is for {' and '.join(suited)}"
    if kind is TrainingType.REINFORCEMENT and hyper.lora_dropout > 0:
        message = "has no place in reinforcement: old and policy logprobs must be one function"
        yield "lora_dropout", message, "remove it"


def function_complaint(config: JobConfig) -> tuple[str, str] | None:
    """What is wrong with the functions as a whole: message and fix."""
    kind = config.training_type
    if kind.offline and config.functions:
        return f"have no effect in training type {kind.value}: nothing is sampled", "remove them"
    if not kind.offline and not config.functions:
        return "missing", "add functions: [{type: reward, fcmodel: {classpath: reward.py:MyReward}}]"
    return None
