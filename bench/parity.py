"""Paths to verl's and SkyRL's sources -> how far our losses, gradients and advantages are from theirs.

    python -m bench.parity --verl path/to/verl --skyrl path/to/SkyRL [--fixtures 1000] [--seed 0]

Runs their own code on random fixtures beside ours, in float64. Their functions are taken from their files as
they stand, without importing the packages, so that nothing of theirs needs to be installed. Prints the
largest difference of each comparison and ends with status 1 if one exceeds the tolerance.

What is not compared, because they define it otherwise: verl's `seq-mean-token-sum-norm` is no mean over rows
in every version; both count fully masked rows in some denominators; both let REINFORCE++ step over
observation tokens by padding, so masks have no holes there; both clamp k3 to 10, so fixtures stay below.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.parity_sources import Peer, skyrl, verl
from strop.learners.losses.policy import aggregate, kl, policy_loss, value_loss
from strop.rl.advantage import gae, group_advantages
from strop.rl.token_advantage import discounted_returns, token_rewards, whitened_tokens

# verl adds 1e-8 to what it divides by; SkyRL takes its exponentials in float32, and its GRPO statistics.
TOLERANCE = 1e-6


class Fixture:
    """Random rows: lengths, logprobs, advantages by row or by token, rewards in two groups."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.rows, self.tokens = 2 * self.whole(1, 4), self.whole(2, 12)
        lengths = torch.tensor([self.whole(1, self.tokens) for _ in range(self.rows)])
        self.mask = (torch.arange(self.tokens)[None, :] < lengths[:, None]).double()
        holes = (self.uniform(self.rows, self.tokens) < 0.8).double()
        holes[:, 0] = 1.0
        self.holed_mask = self.mask * holes
        self.policy = -3 * self.uniform(self.rows, self.tokens)
        spread = (0.0, 1e-3, 0.3, 1.5)[self.whole(0, 3)]
        self.old = self.policy + spread * self.normal(self.rows, self.tokens)
        self.reference = self.policy + 0.5 * self.normal(self.rows, self.tokens)
        by_row = self.normal(self.rows, 1).expand(self.rows, self.tokens)
        self.advantages = by_row if self.whole(0, 1) else self.normal(self.rows, self.tokens)
        self.low, self.high = 0.3 * float(self.uniform(1)), 0.4 * float(self.uniform(1))
        self.dual = 1.0 + 4 * float(self.uniform(1)) + 1e-3
        self.rewards = self.normal(self.rows)
        self.values = self.normal(self.rows, self.tokens)
        self.returns = self.normal(self.rows, self.tokens)
        self.gamma, self.lam = 0.5 + 0.5 * float(self.uniform(1)), float(self.uniform(1))

    def whole(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    @property
    def token_level_rewards(self) -> Tensor:
        """The reward at each row's last token."""
        last = self.mask.sum(-1).long() - 1
        return torch.zeros_like(self.mask).scatter_(1, last[:, None], self.rewards[:, None])

    @property
    def groups(self) -> np.ndarray:
        return np.arange(self.rows) // max(2, self.rows // 2)


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Relative to the size of the numbers where that is above 1."""
    scale = max(1.0, float(theirs.detach().abs().max()))
    return float((ours.detach() - theirs.detach()).abs().max()) / scale


def with_gradient(compute: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    variable = at.clone().requires_grad_()
    value = compute(variable)
    value.backward()
    assert variable.grad is not None
    return value.detach(), variable.grad


Found = dict[str, float]


def compare_losses(peer: Peer, one: Fixture, found: Found) -> None:
    for kind in ("ppo", "ppo dual clip", "gspo", "cispo", "sapo"):
        dual = one.dual if kind == "ppo dual clip" else None
        for aggregation in peer.aggregations(kind):
            length = one.tokens if aggregation == "seq-mean-token-sum-norm" else None

            def ours(policy: Tensor, kind=kind, dual=dual, aggregation=aggregation, length=length) -> Tensor:
                return policy_loss(
                    kind.split()[0],
                    policy_logprobs_BT=policy,
                    old_logprobs_BT=one.old,
                    advantages_BT=one.advantages,
                    mask_BT=one.holed_mask,
                    clip_low=one.low,
                    clip_high=one.high,
                    dual_clip=dual,
                    aggregation=aggregation,
                    max_length=length,
                )[0]

            def theirs(policy: Tensor, kind=kind, dual=dual, aggregation=aggregation) -> Tensor:
                return peer.policy_loss(kind.split()[0], one, policy, dual, aggregation)

            note(
                found,
                f"{kind}, {aggregation}",
                with_gradient(ours, one.policy),
                with_gradient(theirs, one.policy),
            )


def compare_kl(peer: Peer, one: Fixture, found: Found) -> None:
    for kind in peer.kl_kinds:

        def ours(policy: Tensor, kind=kind) -> Tensor:
            return aggregate(kl(kind, policy, one.reference), one.holed_mask, "token-mean")

        def theirs(policy: Tensor, kind=kind) -> Tensor:
            return (peer.kl(kind, policy, one.reference) * one.holed_mask).sum() / one.holed_mask.sum()

        note(found, f"KL {kind}", with_gradient(ours, one.policy), with_gradient(theirs, one.policy))


def compare_value_loss(peer: Peer, one: Fixture, found: Found) -> None:
    if peer.value_loss is None:
        return

    def ours(values: Tensor) -> Tensor:
        return value_loss(
            values_BT=values,
            old_values_BT=one.values,
            returns_BT=one.returns,
            mask_BT=one.holed_mask,
            clip=one.high + 0.01,
        )[0]

    def theirs(values: Tensor) -> Tensor:
        return peer.value_loss(one, values, one.high + 0.01)

    at = one.values + 0.5 * one.policy
    note(found, "value loss", with_gradient(ours, at), with_gradient(theirs, at))


def compare_advantages(peer: Peer, one: Fixture, found: Found) -> None:
    lengths = one.mask.sum(-1).long().tolist()
    rows = [[0.0] * length for length in lengths]
    rewards = one.rewards.tolist()
    groups: defaultdict[int, list[float]] = defaultdict(list)
    for group, reward in zip(one.groups.tolist(), rewards, strict=True):
        groups[group].append(reward)
    for kind in ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"):
        if peer.advantages.get(kind) is None or any(len(members) < 2 for members in groups.values()):
            continue
        by_row = [value for members in groups.values() for value in group_advantages(kind, members)]
        made = [[value] * length for value, length in zip(by_row, lengths, strict=True)]
        if kind == "reinforce_pp_baseline":
            made = whitened_tokens(made)
        found_here = difference(padded(made, one), peer.advantages[kind](one) * one.mask)
        worst(found, f"advantage {kind}", found_here)
    returns = [
        discounted_returns(token_rewards(reward, row), [True] * len(row), gamma=one.gamma)
        for reward, row in zip(rewards, rows, strict=True)
    ]
    if sum(lengths) > 1:
        theirs = peer.advantages["reinforce_pp"](one)
        worst(
            found,
            "advantage reinforce_pp",
            difference(padded(whitened_tokens(returns), one), theirs * one.mask),
        )
        by_gae = [
            gae(
                token_rewards(reward, row),
                values[: len(row)],
                [True] * len(row),
                gamma=one.gamma,
                lam=one.lam,
            )
            for reward, row, values in zip(rewards, rows, one.values.tolist(), strict=True)
        ]
        advantages = padded(whitened_tokens([each for each, _ in by_gae]), one)
        worst(found, "advantage gae", difference(advantages, peer.advantages["gae"](one) * one.mask))


def padded(rows: list[list[float]], one: Fixture) -> Tensor:
    return torch.tensor([row + [0.0] * (one.tokens - len(row)) for row in rows], dtype=torch.float64)


def note(found: Found, name: str, ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    worst(found, f"{name}: value", difference(ours[0], theirs[0]))
    worst(found, f"{name}: gradient", difference(ours[1], theirs[1]))


def worst(found: Found, name: str, value: float) -> None:
    # A NaN is not the largest of anything, but it is the worst.
    found[name] = value if value != value else max(found.get(name, 0.0), value)


def run(peer: Peer, fixtures: int, seed: int) -> bool:
    generator = torch.Generator().manual_seed(seed)
    found: Found = {}
    for _ in range(fixtures):
        one = Fixture(generator)
        compare_losses(peer, one, found)
        compare_kl(peer, one, found)
        compare_value_loss(peer, one, found)
        compare_advantages(peer, one, found)
    print(f"\n{peer.name}: {fixtures} fixtures, largest differences, tolerance {TOLERANCE:g}")
    for name, value in found.items():
        print(f"  {name:50} {value:.1e}{'' if value <= TOLERANCE else '   TOO FAR'}")
    return all(value <= TOLERANCE for value in found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare losses with verl's and SkyRL's own code.")
    parser.add_argument("--verl", type=Path, help="a checkout of verl")
    parser.add_argument("--skyrl", type=Path, help="a checkout of SkyRL")
    parser.add_argument("--fixtures", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given: Any = parser.parse_args()
    peers = [make(path) for make, path in ((verl, given.verl), (skyrl, given.skyrl)) if path is not None]
    if not peers:
        parser.error("give --verl, --skyrl or both")
    near = [run(peer, given.fixtures, given.seed) for peer in peers]  # all of them, whatever one says
    sys.exit(0 if all(near) else 1)


if __name__ == "__main__":
    main()
