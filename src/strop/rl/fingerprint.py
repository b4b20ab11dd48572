"""Job + rows -> what a run is made from, and what of that is no longer so when it is to go on.

Stored in every checkpoint, flat and readable, so that a run that is resumed as something else is told which
values were other ones. Used by `rl.train_state`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from strop.config.job import FunctionConfig, JobConfig
from strop.locales import Message, msg

MAY_CHANGE = {
    "n_epochs",
    "max_steps",
    "eval_steps",
    "early_stopping_target",
    "early_stopping_count",
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "max_attempts",
    "max_failure_rate",
    "max_staleness",
}
"""Hyper-parameters that say how long, how often and how patiently, not what is computed in a step.

`n_epochs` and `max_steps` do move a linear or cosine schedule; a run is often prolonged on purpose.
"""

_TRAINING, _VALIDATION, _FUNCTIONS = "training rows", "validation rows", "functions."
_MISSING = object()

RunFingerprint = Mapping[str, Any]
"""Dotted keys of the job, and what the rows and the functions' code are known by -> plain JSON values."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between a checkpoint and the job that is to go on with it. `lines` say it for people.

    `acceptable`: only who judges (functions, their code and weights) and what is validated on; the weights so
    far are as good as before, and what was learned from before is in them.
    """

    lines: tuple[str, ...]
    acceptable: bool


def run_fingerprint(
    config: JobConfig,
    training: Iterable[object],
    validation: Iterable[object] | None,
    code: Mapping[str, str],
) -> RunFingerprint:
    """What decides on the steps of a run, beside the weights it began with, which the learner knows itself.

    `training` and `validation` are the rows in a form that JSON can say; `code` is the hash of each
    function's code by its label.
    """
    fixed = config.hyper_parameters.model_dump(mode="json", exclude=MAY_CHANGE)
    found: dict[str, Any] = {
        "training.type": config.training_type.value,
        **{f"training.hyper_parameters.{name}": value for name, value in fixed.items()},
        _TRAINING: _rows(training),
        _VALIDATION: None if validation is None else _rows(validation),
    }
    for function in config.functions:
        for key, value in _judges(function).items():
            found[f"{_FUNCTIONS}{function.label}.{key}"] = value
        if function.preset is None:
            found[f"{_FUNCTIONS}{function.label}.code"] = code.get(function.label)
    return json.loads(json.dumps(found, default=str))


def changes(was: RunFingerprint, now: RunFingerprint) -> Changes | None:
    """What is other than it was, in the job's order; None where nothing is.

    >>> changes({"training.type": "sft"}, {"training.type": "dpo"}).lines
    ("training.type was 'sft', is 'dpo'",)
    """
    keys = [key for key in {**now, **was} if was.get(key, _MISSING) != now.get(key, _MISSING)]
    lines = dict.fromkeys(_line(key, was, now) for key in keys)
    if not lines:
        return None
    judging = all(key.startswith(_FUNCTIONS) or key == _VALIDATION for key in keys)
    return Changes(lines=tuple(lines), acceptable=judging)


def _judges(function: FunctionConfig) -> dict[str, Any]:
    """What of a function bears on rewards; where and how long it runs does not."""
    of_code = {"classpath": function.fcmodel.classpath} if function.preset is None else {}
    of_preset = {} if function.preset is None else {"preset": function.preset, "params": function.params}
    weights = {"weight": function.weight, "reward_metric_weight": function.reward_metric_weight}
    return {"type": function.type.value, **of_code, **of_preset, **weights}


def _rows(rows: Iterable[object]) -> str:
    listed = list(rows)
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True, default=str).encode()).hexdigest()
    return f"{len(listed)} rows ({digest[:12]})"


def _line(key: str, was: RunFingerprint, now: RunFingerprint) -> Message:
    """A function that is new or gone is one line, and code is known by the beginning of its hash."""
    if key.startswith(_FUNCTIONS):
        function = key.rpartition(".")[0]
        there, here = (any(one.startswith(f"{function}.") for one in side) for side in (was, now))
        if there != here:
            return (
                msg("{function} is gone", function=function)
                if there
                else msg("{function} is new", function=function)
            )
        if key.endswith(".code"):
            return _changed(key, _short(was.get(key)), _short(now.get(key)))
    if key in (_TRAINING, _VALIDATION):
        old, new = was.get(key) or "none", now.get(key) or "none"
        return msg("{key} were {old}, are {new}", key=key, old=old, new=new)
    return _changed(key, repr(was.get(key)), repr(now.get(key)))


def _changed(key: str, was: str, now: str) -> Message:
    return msg("{key} was {was}, is {now}", key=key, was=was, now=now)


def _short(digest: object) -> str:
    return str(digest)[:12] if digest else "unknown"
