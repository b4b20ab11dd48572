"""Checked job -> every value as the run uses it, and where it came from: what is stored and what is shown.

`config.loading` notes the origins while it still has the file; `cli` stores and prints `describe`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from strop.config.file import HYPER, JobFile, KeyPath, dotted
from strop.config.hyper_parameters import effective_keys
from strop.config.job import HyperParameters, JobConfig
from strop.locales import msg

MASK = "***"
DEFAULT, REQUEST = "default", "request"

_ORIGINS = {
    "default": msg("default"),
    "request": msg("request"),
    "this machine": msg("this machine"),
    "default: the whole model is trained": msg("default: the whole model is trained"),
    "default: the run goes to its last step": msg("default: the run goes to its last step"),
}

InUse = tuple[Callable[[HyperParameters], object], Callable[[HyperParameters], str]]


def _method(hyper: HyperParameters) -> str:
    return f"default of {hyper.algorithm}"


IN_USE: dict[str, InUse] = {
    "ppo_mini_batch_size": (lambda hyper: hyper.mini_batch_size, lambda _: "batch_size"),
    "max_tokens": (lambda hyper: hyper.longest_answer, lambda _: "max_length - max_prompt_length"),
    "clip_ratio_low": (lambda hyper: hyper.clip_range[0] or None, _method),
    "clip_ratio_high": (lambda hyper: hyper.clip_range[1] or None, _method),
    "dual_clip": (lambda hyper: hyper.dual_clip_bound, _method),
    "loss_agg_mode": (lambda hyper: hyper.aggregation, _method),
    "filter_groups": (lambda hyper: hyper.filters_groups, _method),
    "overlong_buffer_len": (lambda hyper: hyper.overlong_buffer, _method),
    "rollout_is_threshold": (
        lambda hyper: hyper.is_threshold if hyper.rollout_is != "none" else None,
        lambda hyper: f"default of rollout_is {hyper.rollout_is}",
    ),
    "rollout_rs_low": (
        lambda hyper: hyper.rs_band[0] if hyper.rollout_rs != "none" else None,
        lambda hyper: f"default of rollout_rs {hyper.rollout_rs}",
    ),
    "rollout_rs_high": (
        lambda hyper: hyper.rs_band[1] if hyper.rollout_rs != "none" else None,
        lambda hyper: f"default of rollout_rs {hyper.rollout_rs}",
    ),
    "max_prompt_length": (
        lambda hyper: hyper.max_prompt_length,
        lambda hyper: DEFAULT if hyper.max_prompt_length == 512 else "max_length / 2",
    ),
    "lora_rank": (lambda hyper: hyper.lora_rank, lambda _: "default: the whole model is trained"),
    "target_modules": (
        lambda hyper: (
            list(hyper.target_modules or ()) or (None if hyper.lora_rank is None else "all linear layers")
        ),
        lambda _: DEFAULT,
    ),
    "early_stopping_target": (
        lambda hyper: hyper.early_stopping_target,
        lambda _: "default: the run goes to its last step",
    ),
    "max_steps": (lambda hyper: hyper.max_steps, lambda _: "n_epochs"),
}
"""Hyper-parameters whose value depends on others unless set: the value in use, and what it follows from."""


def describe(config: JobConfig) -> dict[str, Any]:
    """The configuration as the run understands it, defaults filled in, without secrets: plain JSON.

    Values of `runtime.env` are masked; what depends on other keys stands there as it will be used, and what
    does nothing in the job's training type does not stand there. Under
    `origins`, a job that was read from a file tells by dotted key where each value came from.
    """
    described = config.model_dump(mode="json")
    for function in described["functions"]:
        function["runtime"]["env"] = dict.fromkeys(function["runtime"]["env"], MASK)
        if function["preset"] is None:
            del function["preset"], function["params"]
    described["trackers"] = [
        tracker.model_dump(mode="json", exclude_none=True) for tracker in config.trackers
    ]
    if (webhook := described["diagnosis"]["webhook"]) is not None:
        # Whoever knows such an address may post to it.
        address = urlsplit(str(webhook["url"]))
        webhook["url"] = f"{address.scheme}://{address.hostname}/{MASK}"
        webhook["secret"] = None if webhook["secret"] is None else MASK
    hyper = config.hyper_parameters
    values = described["training"]["hyper_parameters"] | {
        name: value(hyper) for name, (value, _) in IN_USE.items()
    }
    known = effective_keys(config.training_type)
    described["training"]["hyper_parameters"] = {name: values[name] for name in values if name in known}
    described["mode"] = described["training"]["type"] = config.training_type.value
    return described | ({"origins": config.origins} if config.origins else {})


def origins_of(config: JobConfig, file: JobFile) -> dict[str, str]:
    """Where each value of `describe` came from, by dotted key.

    `job.yaml:12` for a line, with the name it has there if it is another; the option that overrode it;
    `request` where a request, which has no lines, said it; `default`; or what a default follows from, as in
    `default of dapo` or `batch_size`.
    """
    hyper, plain = config.hyper_parameters, describe(config)
    found: dict[str, str] = {}
    for path in leaves(plain):
        place = _place(file, path)
        name = path[-1]
        if place is not None:
            found[dotted(path)] = place
        elif path[:-1] == HYPER and isinstance(name, str) and name in IN_USE:
            found[dotted(path)] = IN_USE[name][1](hyper)
        else:
            found[dotted(path)] = DEFAULT
    return found


def told_origin(origin: str) -> str:
    """Where a value came from, to be said in the reader's language; a file's line and another setting are
    their own words.

    >>> told_origin("default of gspo").render("zh"), told_origin("job.yaml:3")
    ('gspo 的默认值', 'job.yaml:3')
    """
    word, blank, name = origin.partition(" (")  # the name that a key was given
    if word in _ORIGINS:
        return _ORIGINS[word] + f"{blank}{name}" if name else _ORIGINS[word]
    method = origin.removeprefix("default of ")
    return msg("default of {method}", method=method) if method != origin else origin


def leaves(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of all plain values, in their order."""
    if isinstance(value, dict) and value:
        for key, item in cast("dict[str, object]", value).items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(cast("list[object]", value)):
            yield from leaves(item, (*path, index))
    elif not isinstance(value, dict | list):
        yield path


def _place(file: JobFile, path: KeyPath) -> str | None:
    """Where the file or an override says it; None where nobody does."""
    aliases: dict[KeyPath, tuple[KeyPath, ...]] = {
        ("name",): (("name",), ("job_name",)),
        ("model", "name"): (("model", "name"), ("model",)),
    }
    if path[0] == "trackers" and path[2:] == ("type",):
        aliases[path] = (path, path[:2])  # a tracker may be a word alone
    for known in aliases.get(path, (path,)):
        if known in file.places or _says(file.data, known):
            # Of a list that an option set, the place of all of it; of a request none.
            place = file.place(known)
            name, colon, line = place.rpartition(":")
            short = f"{Path(name).name}:{line}" if colon and line.isdigit() else place or REQUEST
            return f"{short} ({file.written[known]})" if known in file.written else short
    return None


def _says(value: object, path: KeyPath) -> bool:
    """Whether it has a plain value there."""
    for key in path:
        if isinstance(value, dict) and key in value:
            value = cast("dict[object, object]", value)[key]
        elif isinstance(value, list) and isinstance(key, int) and key < len(cast("list[object]", value)):
            value = cast("list[object]", value)[key]
        else:
            return False
    return not isinstance(value, dict | list) and value is not None
