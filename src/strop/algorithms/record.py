"""What one algorithm is: the record that built-in files and plugins declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Aggregation = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)
"""How one loss a token becomes one scalar; `strop.learners.losses.aggregation` computes them."""

ADVANTAGES = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "reinforce_pp", "gae")
"""Kinds of `strop.rl.advantage`. The last two may differ from token to token."""

POLICY_LOSSES = ("ppo", "gspo", "cispo", "sapo")
"""Kinds of `strop.learners.losses.policy.policy_loss`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What an online algorithm is made of, and what it takes where the job sets nothing.

    `clip_range` are the default (low, high) distances of the ratio from 1, None where nothing is clipped;
    `dual_clip` bounds the loss of negative advantages, None: off by default or not there at all. `knobs` are
    the hyper-parameters that it reads and that not every algorithm does: given for an algorithm without them
    they are refused. `dynamic_sampling`: groups of equal rewards are replaced by default.
    `overlong_buffer_share`: the last part of an answer's limit in which length costs reward by default.
    `critic`: it trains a value model beside the policy.

    Raises:
        ValueError: a field that names nothing; checked when the record is made.
    """

    name: str
    advantage: str
    policy_loss: str
    aggregation: Aggregation
    clip_range: tuple[float, float] | None
    dual_clip: float | None
    paper: str
    en: str
    zh: str
    critic: bool = False
    dynamic_sampling: bool = False
    overlong_buffer_share: float = 0.0
    knobs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"an algorithm's name is letters, digits and _, found {self.name!r}")
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(
                f"algorithm {self.name!r}: aggregation must be one of {', '.join(AGGREGATIONS)}; "
                f"found {self.aggregation!r}"
            )
        for what, value, known in (
            ("advantage", self.advantage, ADVANTAGES),
            ("policy_loss", self.policy_loss, POLICY_LOSSES),
        ):
            if value not in known and ":" not in value:
                raise ValueError(
                    f"algorithm {self.name!r}: {what} must be one of {', '.join(known)} or module:function; "
                    f"found {value!r}"
                )

    @property
    def by_token(self) -> bool:
        """Whether its advantages may differ between the tokens of one rollout."""
        return self.advantage in ("reinforce_pp", "gae")
