"""`reward_metric_weight` -> how the parts of one reward function are added up: the third layer of weights.

    reward = sum over functions of  weight * sum over parts of  share * score

A part of a decorated class has the share `sub_weight * reward_metric_weight`, scaled so that all shares make
what the sub-weights do. Of an undecorated function the parts are its reward metrics, and their shares add
up to 1. Called by the worker, once at its start and after every call.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, cast

from strop.errors import FunctionError
from strop.locales import msg


def reweigh(sub_weights: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    """The shares of a decorated class's parts; a part without a factor has 1.

    Where the factors only repeat the sub-weights nothing changes: the DashScope SDK sends them so when its
    user set none.

    >>> reweigh({"safe": 0.5, "kind": 0.5}, {"safe": 3})
    {'safe': 0.75, 'kind': 0.25}
    >>> reweigh({"safe": 0.7, "kind": 0.3}, {"safe": 0.7, "kind": 0.3})
    {'safe': 0.7, 'kind': 0.3}
    """
    if all(factors.get(name, weight) == weight for name, weight in sub_weights.items()):
        return dict(sub_weights)
    products = {name: weight * factors.get(name, 1.0) for name, weight in sub_weights.items()}
    before, after = sum(sub_weights.values()), sum(products.values())
    # Penalties have negative weights; a sum about 0 is no scale.
    scale = before / after if before > 0 and after > 0 else 1.0
    return {name: product * scale for name, product in products.items()}


def shares(factors: Mapping[str, float]) -> dict[str, float]:
    """The shares of an undecorated function's metrics.

    >>> shares({"exact": 3, "brief": 1})
    {'exact': 0.75, 'brief': 0.25}
    """
    total = sum(factors.values())
    return {name: factor / total for name, factor in factors.items()}


def take_weights(processor: Any, factors: Mapping[str, float]) -> dict[str, float]:
    """Give the weights of a job to the processor that a worker has made.

    Returns:
        The shares by which its metrics are to be added; none where it adds its parts itself.
    Raises:
        FunctionError: a name that is no part of a decorated class.
    Side effects:
        Sets the weights of the processor's own parts.
    """
    target = getattr(processor, "hosted", processor)
    # The SDK reads weights from the source and takes every decorated method for a part.
    asked = {name: one for name, one in factors.items() if not _is_method(target, name)}
    meta: Any = getattr(processor, "reward_meta", None)
    parts: dict[str, Any] = meta.sub_functions if meta is not None else {}
    if not parts:
        return shares(asked) if sum(asked.values()) > 0 else {}
    asked = {name: one for name, one in factors.items() if name in parts or name in asked}
    for name in asked:
        if name not in parts:
            near = difflib.get_close_matches(name, parts, n=1)
            raise FunctionError(
                msg(
                    "reward_metric_weight: {name} has no part {name2!r}",
                    name=type(target).__name__,
                    name2=name,
                ),
                fix=f"did you mean {near[0]!r}?" if near else f"its parts: {', '.join(parts)}",
            )
    named: dict[str, float] = {name: part.weight for name, part in parts.items()}
    for name, weight in reweigh(named, asked).items():
        parts[name].weight = weight
        known: Any = getattr(target, "reward_meta", meta)
        theirs = known.sub_functions.get(name)
        if theirs is not None:
            theirs.weight = weight
    return {}


def add_up(output: dict[str, Any], by_metric: Mapping[str, float]) -> str | None:
    """Put the weighted sum of its metrics in place of each reward's score.

    Returns:
        What is wrong with the output, if a metric is missing.
    """
    reward = cast("dict[str, Any]", output["reward"])
    many = cast("list[dict[str, Any]] | None", reward.get("rewards"))
    for one in many if many is not None else [reward]:
        metrics: Mapping[str, float] = one.get("reward_metrics") or {}
        missing = [name for name in by_metric if name not in metrics]
        if missing:
            known = ", ".join(metrics) or "none"
            return f"has no reward metric {missing[0]!r}, which reward_metric_weight counts; it has: {known}"
        one["reward_score"] = sum(share * metrics[name] for name, share in by_metric.items())
    return None


def _is_method(target: object, name: str) -> bool:
    """Whether a name in the weights is one of the class's methods, and not a metric."""
    return callable(getattr(type(target), name, None))
