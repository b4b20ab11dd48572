"""One file an algorithm family: log ratios, advantages -> the loss of every token, before any aggregation.

`losses.policy.policy_loss` prepares the `Inputs`, so that no NaN and nothing outside the mask reaches these
functions, and aggregates what they give. A plugin's `policy_loss="module:function"` is such a function too.
"""

from __future__ import annotations

from collections.abc import Callable

from strop.algorithms import load_named
from strop.learners.losses.surrogates.cispo import cispo
from strop.learners.losses.surrogates.gspo import gspo
from strop.learners.losses.surrogates.inputs import Inputs, TokenLoss, token_ratio
from strop.learners.losses.surrogates.ppo import ppo
from strop.learners.losses.surrogates.sapo import sapo

Surrogate = Callable[[Inputs], TokenLoss]

_BUILTIN: dict[str, Surrogate] = {"ppo": ppo, "gspo": gspo, "cispo": cispo, "sapo": sapo}

__all__ = ["Inputs", "Surrogate", "TokenLoss", "surrogate", "token_ratio"]


def surrogate(kind: str) -> Surrogate:
    """The function of a built-in kind, or of a plugin's `module:function`.

    Raises:
        ValueError: an unknown kind. AlgorithmError: a function that cannot be imported.
    """
    if kind in _BUILTIN:
        return _BUILTIN[kind]
    if ":" not in kind:
        raise ValueError(
            f"unknown policy loss {kind!r}; known: {', '.join(_BUILTIN)}, or a plugin's module:function"
        )
    return load_named(kind)
