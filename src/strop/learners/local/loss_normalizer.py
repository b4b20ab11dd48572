"""Mini-batch, forests -> which tokens count, how much each row weighs, the denominators of the update.

Tokens leave a mini-batch before its first backward pass: those whose behaviour logprob is not a finite
number, and those that rejection drops. They leave numerators and denominators alike; a rollout that loses all
of its tokens is no rollout of the update. Where several processes share an update, what each of them loses is
summed over all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from strop.learners.local.packed_trees import PackedTrees
from strop.schema.batch import MiniBatch, Pack


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNormalizer:
    """A forest's part of an update.

    Shapes:
        mask_ST: tokens that count. weights_S: what each row counts in a mean over rollouts.
    Units:
        num_tokens, num_rows: tokens and rollouts of the whole update.
    """

    mask_ST: Tensor
    weights_S: Tensor
    num_tokens: int
    num_rows: int


def shares(
    mini: MiniBatch, forests: Sequence[PackedTrees], masks: Sequence[Tensor], left_out: Sequence[Pack] = ()
) -> list[LossNormalizer]:
    """The share of each forest, with `masks` of what is kept of it.

    `left_out` are packs of the mini-batch that are in no forest, because they have no gradient; they count in
    the denominators all the same. The counts in `mini` are those of the whole update; a process of several
    hands in the packs that it computes.

    Concurrency:
        In a process group every rank must call it for each mini-batch: the lost tokens are summed over them.
    """
    kept = [mask.sum(-1) for mask in masks]
    lost_tokens = sum(int((forest.lengths_S - one).sum()) for forest, one in zip(forests, kept, strict=True))
    lost_tokens += sum(_num_bad(pack) for pack in left_out)
    raw = [forest.weights_S * one / forest.lengths_S for forest, one in zip(forests, kept, strict=True)]
    totals: defaultdict[str, float] = defaultdict(float)
    for forest, weights_S in zip(forests, raw, strict=True):
        for rollout_id, weight in zip(forest.rollout_ids, weights_S.tolist(), strict=True):
            totals[rollout_id] += weight
    lost_rows = sum(total == 0 for total in totals.values())
    lost_rows += sum(_num_lost_rollouts(pack) for pack in left_out)
    lost_tokens, lost_rows = _over_ranks(lost_tokens, lost_rows)
    if not lost_tokens:
        return [
            LossNormalizer(
                mask_ST=mask,
                weights_S=forest.weights_S,
                num_tokens=mini.num_loss_tokens,
                num_rows=mini.num_rollouts,
            )
            for forest, mask in zip(forests, masks, strict=True)
        ]
    return [
        LossNormalizer(
            mask_ST=mask,
            weights_S=weights_S / torch.tensor([totals[one] or 1.0 for one in forest.rollout_ids]),
            num_tokens=mini.num_loss_tokens - lost_tokens,
            num_rows=mini.num_rollouts - lost_rows,
        )
        for forest, mask, weights_S in zip(forests, masks, raw, strict=True)
    ]


def num_bad_tokens(mini: MiniBatch) -> int:
    """Sampled tokens whose behaviour logprob is not a finite number."""
    return sum(_num_bad(pack) for pack in mini.packs)


def _num_bad(pack: Pack) -> int:
    return sum(not math.isfinite(value) for item in pack.sequences for value in item.behaviour_logprobs)


def _num_lost_rollouts(pack: Pack) -> int:
    good: defaultdict[str, int] = defaultdict(int)
    for item in pack.sequences:
        pairs = zip(item.loss_mask, item.behaviour_logprobs, strict=True)
        good[item.rollout_id] += sum(sampled and math.isfinite(value) for sampled, value in pairs)
    sampled = {item.rollout_id for item in pack.sequences if item.num_loss_tokens}
    return sum(good[rollout_id] == 0 for rollout_id in sampled)


def _over_ranks(*counts: int) -> tuple[int, ...]:
    """Each summed over the processes that share the update; as it is where there is one."""
    if not (dist.is_available() and dist.is_initialized()):
        return counts
    totals = torch.tensor(counts)
    dist.all_reduce(totals)
    return tuple(totals.tolist())
