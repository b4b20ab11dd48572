"""Ark's hyper-parameter names -> ours, at the edge and by one table. For `config.loading`.

A section `training.hyper_parameters` may be written in Ark's words. They are read as ours before anything
else looks at them; messages and origins still name what the file says. Ark writes every value as text, so in
a section with a name of Ark's quoted numbers are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from strop.config.file import JobFile, KeyPath, dotted, read_scalar
from strop.errors import Problem

_SECTION: KeyPath = ("training", "hyper_parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArkName:
    """What a name of Ark's means here.

    `ours` is the knob, or None where there is none: then `only` is the one value that asks for nothing, and
    `why` tells what to do about others. `brings` are settings that it implies unless the file has its own.
    """

    ours: str | None = None
    only: float | None = None
    why: str = ""
    brings: tuple[tuple[str, object], ...] = ()


_TOP_P = ArkName(only=1, why="the loss assumes tokens sampled from the whole distribution: set it to 1")
_GREEDY = ArkName(only=1, why="validation here is one greedy answer a row: set it to 1")

ARK_NAMES: dict[str, ArkName] = {
    "num_steps": ArkName(ours="max_steps"),
    "epoch": ArkName(ours="n_epochs"),
    "lr": ArkName(ours="learning_rate"),
    "num_generations": ArkName(ours="n_rollouts"),
    "num_samples": ArkName(ours="n_rollouts"),
    "num_sampling": ArkName(ours="n_rollouts"),
    "n_sampling": ArkName(ours="n_rollouts"),
    "num_iterations_per_batch": ArkName(ours="ppo_epochs"),
    "kl_coefficient": ArkName(ours="kl_loss_coef"),
    "kl_coeffient": ArkName(ours="kl_loss_coef"),  # its own page writes it so, too
    "max_new_tokens": ArkName(ours="max_tokens"),
    "seq_len": ArkName(ours="max_length"),
    "test_every_n_steps": ArkName(ours="eval_steps"),
    "save_every_n_steps": ArkName(ours="save_steps", brings=(("save_strategy", "steps"),)),
    "save_model_limit": ArkName(ours="save_total_limit"),
    "top_p": _TOP_P,
    "test_top_p": _GREEDY,
    "test_num_generations": _GREEDY,
    "save_model_per_epoch": ArkName(
        only=1, why="write save_strategy: epoch or no", brings=(("save_strategy", "epoch"),)
    ),
}
"""Ark's names that differ from ours. `batch_size`, `lr_warmup_steps`, `clip_ratio_low`, `clip_ratio_high`,
`temperature` and `loss_agg_mode` are the same in both."""


def translate_ark_names(file: JobFile) -> None:
    """Give the section our names, where it has Ark's; what cannot be translated is a problem of the file."""
    training = file.data.get("training")
    section = cast("dict[str, Any]", training).get("hyper_parameters") if isinstance(training, dict) else None
    if not isinstance(section, dict):
        return
    values = cast("dict[str, Any]", section)
    found = [name for name in values if name in ARK_NAMES]
    if not found:
        return
    for key, value in values.items():
        values[key] = read_scalar(value) if isinstance(value, str) else value
    own = set(values) - set(found)
    for name in found:
        _translate(file, values, name, own)


def _translate(file: JobFile, values: dict[str, Any], name: str, own: set[str]) -> None:
    meaning, path = ARK_NAMES[name], (*_SECTION, name)
    place = file.place(path)
    if meaning.ours is None:
        value = values.pop(name)
        if value != meaning.only:
            file.problems.append(
                Problem(place=place, message=f"{dotted(path)}: {value!r} cannot be had", fix=meaning.why)
            )
    elif meaning.ours in values:
        del values[name]
        other = file.written.get((*_SECTION, meaning.ours), meaning.ours)
        message = f"{dotted(path)}: {name!r} and {other!r} are one key"
        file.problems.append(Problem(place=place, message=message, fix="keep one of them"))
    else:
        file.rename(path, meaning.ours)
    for key, value in meaning.brings:
        if key not in own:
            target = (*_SECTION, key)
            values[key] = value
            file.places[target] = place
            file.written[target] = name
