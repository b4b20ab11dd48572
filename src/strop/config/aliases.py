"""What other systems call a key -> what it is called here: one table for Bailian, Ark, OpenAI, verl and TRL.

A section `training.hyper_parameters` may be written in Ark's words: those are read as ours before anything
else looks at them, and messages and origins still name what the file says. Ark writes every value as text, so
in a section with a name of Ark's quoted numbers are numbers. The names of other systems are not read: an
error says what to write instead. Called by `config.loading`; `config.key_table` asks for what was meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from strop.config.file import HYPER, JobFile, dotted, read_scalar
from strop.errors import Problem
from strop.locales import msg


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """What another system's name means here.

    `ours` is the key here; where there is none, `why` says what to do. A name that is `read` is translated:
    without a key here, `only` is the one value that asks for nothing. `brings` are settings that it implies
    unless the file has its own.
    """

    ours: str | None = None
    why: str = ""
    read: bool = False
    only: float | None = None
    brings: tuple[tuple[str, object], ...] = ()


def _ark(ours: str, *brings: tuple[str, object]) -> Alias:
    return Alias(ours=ours, read=True, brings=brings)


def _ark_only(only: float, why: str, *brings: tuple[str, object]) -> Alias:
    return Alias(only=only, why=why, read=True, brings=brings)


_GREEDY = _ark_only(1, "validation here is one greedy answer a row: set it to 1")
_MACHINES = Alias(why="it spreads a run over machines or GPUs; this one uses what the machine has: remove it")
_CLOUD = Alias(why="it names a part of a cloud that does not exist here: remove it")
_SHARE = Alias(
    why="it is a share; lr_warmup_steps counts steps: write their number, or -1 for 3 % of the run"
)

ALIASES: dict[str, Alias] = {
    # Ark's, which are read. `batch_size`, `lr_warmup_steps`, `clip_ratio_low`, `clip_ratio_high`,
    # `temperature` and `loss_agg_mode` are the same there.
    "num_steps": _ark("max_steps"),
    "epoch": _ark("n_epochs"),
    "lr": _ark("learning_rate"),
    "num_generations": _ark("n_rollouts"),
    "num_samples": _ark("n_rollouts"),
    "num_sampling": _ark("n_rollouts"),
    "n_sampling": _ark("n_rollouts"),
    "num_iterations_per_batch": _ark("ppo_epochs"),
    "kl_coefficient": _ark("kl_loss_coef"),
    "kl_coeffient": _ark("kl_loss_coef"),  # its own page writes it so, too
    "max_new_tokens": _ark("max_tokens"),
    "seq_len": _ark("max_length"),
    "test_every_n_steps": _ark("eval_steps"),
    "save_every_n_steps": _ark("save_steps", ("save_strategy", "steps")),
    "save_model_limit": _ark("save_total_limit"),
    "top_p": _ark_only(1, "the loss assumes tokens sampled from the whole distribution: set it to 1"),
    "test_top_p": _GREEDY,
    "test_num_generations": _GREEDY,
    "save_model_per_epoch": _ark_only(1, "write save_strategy: epoch or no", ("save_strategy", "epoch")),
    # Everybody else's, which errors explain.
    "epochs": Alias(ours="n_epochs"),
    "num_train_epochs": Alias(ours="n_epochs"),
    "num_epochs": Alias(ours="n_epochs"),
    "group_size": Alias(ours="n_rollouts"),
    "rollouts": Alias(ours="n_rollouts"),
    "train_batch_size": Alias(ours="batch_size"),
    "mini_batch_size": Alias(ours="ppo_mini_batch_size"),
    "lora_r": Alias(ours="lora_rank"),
    "lora_target_modules": Alias(ours="target_modules"),
    "loss_type": Alias(ours="dpo_loss"),
    "kl_coef": Alias(ours="kl_loss_coef"),
    "warmup_steps": Alias(ours="lr_warmup_steps"),
    "lr_scheduler": Alias(ours="lr_scheduler_type"),
    "max_completion_length": Alias(ours="max_tokens"),
    "max_response_length": Alias(ours="max_tokens"),
    "test_freq": Alias(ours="eval_steps"),
    "stopping_threshold": Alias(ours="early_stopping_target"),
    "save_freq": Alias(ours="save_steps"),
    "clip_range": Alias(ours="clip_ratio_low"),
    "clip_ratio_c": Alias(ours="dual_clip"),
    "adv_estimator": Alias(ours="algorithm"),
    "aggregation": Alias(ours="loss_agg_mode"),
    "entropy_coef": Alias(ours="entropy_coeff"),
    "kl_loss_estimator": Alias(ours="kl_loss_type"),
    "overlong_buffer": Alias(ours="overlong_buffer_len"),
    "penalty_factor": Alias(ours="overlong_penalty_factor"),
    "mask_truncated_completions": Alias(ours="truncation_policy"),
    "dynamic_sampling": Alias(ours="filter_groups"),
    "num_iterations": Alias(ours="ppo_epochs"),
    "critic_lr": Alias(ours="critic_learning_rate"),
    "gae_lambda": Alias(ours="lam"),
    "vf_clip": Alias(ours="cliprange_value"),
    "value_clip": Alias(ours="cliprange_value"),
    "critic_warmup_steps": Alias(ours="critic_warmup"),
    "teacher": Alias(ours="teacher_model"),
    "entrypoint": Alias(ours="classpath"),
    "file": Alias(ours="file_name"),
    "path": Alias(ours="file_name"),
    "env_vars": Alias(ours="env"),
    # What could do nothing here.
    "n_gpus_rollout": _MACHINES,
    "nnodes_rollout": _MACHINES,
    "n_gpus_training": _MACHINES,
    "nnodes_training": _MACHINES,
    "inference_tensor_parallel_size": _MACHINES,
    "inference_gpu_memory_utilization": _MACHINES,
    "tensor_model_parallel_size": _MACHINES,
    "pipeline_model_parallel_size": _MACHINES,
    "sequence_parallel_size": _MACHINES,
    "expert_model_parallel_size": _MACHINES,
    "enable_vpc_config": _CLOUD,
    "vpc_id": _CLOUD,
    "vpc_role": _CLOUD,
    "switch_ids": _CLOUD,
    "security_group_id": _CLOUD,
    "layer_code": _CLOUD,
    "warmup_step_rate": _SHARE,
    "warmup_ratio": _SHARE,
    "enable_log": Alias(why="what a function prints is always kept: remove it"),
    "observability": Alias(why="everything is always recorded: remove it"),
    "requirements_path": Alias(why="functions run in this Python environment: install there, and remove it"),
    "top_k": Alias(why="the loss assumes tokens sampled from the whole distribution: remove it"),
    "repetition_penalty": Alias(
        why="the loss assumes tokens sampled from the model's own distribution: remove it"
    ),
}
"""By the name that the other system has for it."""

ELSEWHERE = frozenset(name for name, alias in ALIASES.items() if alias is _MACHINES)
"""Hyper-parameters that lay a job out over a cloud's machines. A job file may not have them; clients of a
cloud send them with every job: there they choose nothing, and an event says so."""

TRAINING_TYPES = {
    "efficient_sft": "write sft and set lora_rank",
    "finetunesft": "write sft",
    "finetunelora": "write sft and set lora_rank",
    "dpo_full": "write dpo",
    "dpo_lora": "write dpo and set lora_rank",
    "dpolora": "write dpo and set lora_rank",
    "grpo": "write reinforcement, and algorithm: grpo",
    "grpolora": "write reinforcement, algorithm: grpo, and set lora_rank",
    "pretrain": "write cpt",
}
"""Training types of other systems, in small letters -> what to write here."""

_TEACHER = "opd_teacher_"


def not_here(key: str) -> str | None:
    """Why another system's key is no key here and what to do; None where nothing is known of it.

    >>> not_here("opd_teacher_num_replicas")
    'it sizes the servers of a teacher, which is computed in the trainer here: remove it'
    """
    if key.startswith(_TEACHER):
        return "it sizes the servers of a teacher, which is computed in the trainer here: remove it"
    alias = ALIASES.get(key)
    return alias.why if alias is not None and alias.ours is None and not alias.read else None


def called_here(key: str) -> str | None:
    """What another system's key is called here; None where it has no counterpart."""
    alias = ALIASES.get(key)
    return alias.ours if alias is not None else None


def is_read(key: str) -> bool:
    """Whether a hyper-parameter of this name is translated, not refused."""
    alias = ALIASES.get(key)
    return alias is not None and alias.read


def translate_aliases(file: JobFile) -> None:
    """Give the hyper-parameters our names; what cannot be translated is a problem of the file."""
    training = file.data.get("training")
    section = cast("dict[str, Any]", training).get("hyper_parameters") if isinstance(training, dict) else None
    if not isinstance(section, dict):
        return
    values = cast("dict[str, Any]", section)
    found = [name for name in values if is_read(name)]
    if not found:
        return
    for key, value in values.items():
        values[key] = read_scalar(value) if isinstance(value, str) else value
    own = set(values) - set(found)
    for name in found:
        _translate(file, values, name, own)


def _translate(file: JobFile, values: dict[str, Any], name: str, own: set[str]) -> None:
    meaning, path = ALIASES[name], (*HYPER, name)
    place = file.place(path)
    if meaning.ours is None:
        value = values.pop(name)
        if value != meaning.only:
            message = f"{dotted(path)}: {value!r} is not supported"
            file.problems.append(Problem(place=place, message=message, fix=meaning.why))
    elif meaning.ours in values:
        del values[name]
        other = file.written.get((*HYPER, meaning.ours), meaning.ours)
        message = f"{dotted(path)}: {name!r} and {other!r} are one key"
        file.problems.append(Problem(place=place, message=message, fix=msg("keep one of them")))
    else:
        file.rename(path, meaning.ours)
    for key, value in meaning.brings:
        if key not in own:
            target = (*HYPER, key)
            values[key] = value
            file.places[target] = place
            file.written[target] = name
