"""Mini-batch, old logprobs -> which tokens count, what each row weighs, the denominators of the update.

Pure Python: no torch, no I/O. Tokens leave a mini-batch before its first backward pass: those whose
behaviour logprob is not a finite number, and those that rejection drops. They leave numerators and
denominators alike; a rollout that loses all of its tokens is no rollout of the update.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from strop.schema.batch import LossNormalizer, MiniBatch, Pack
from strop.schema.batch import Sequence as TokenSequence


def num_bad_tokens(packs: Iterable[Pack]) -> int:
    """Sampled tokens whose behaviour logprob is not a finite number."""
    return sum(len(row.sampled_behaviour) - len(finite_tokens(row)) for row in _rows(packs))


def finite_tokens(row: TokenSequence) -> list[int]:
    """The indices, among the sampled tokens, of those whose behaviour logprob is a finite number."""
    return [index for index, value in enumerate(row.sampled_behaviour) if math.isfinite(value)]


def num_kept(row: TokenSequence) -> int:
    """Sampled tokens that count."""
    finite = finite_tokens(row)
    return sum(row.kept[index] for index in finite) if row.kept else len(finite)


def normalized(
    mini: MiniBatch, packs: Sequence[Pack], left_out: Sequence[Pack] = ()
) -> tuple[tuple[Pack, ...], LossNormalizer]:
    """The packs that are computed, their rows weighed by what is kept of them, and the update's denominators.

    `left_out` are packs of the mini-batch that are not computed, because they have no gradient; they count in
    the denominators all the same.
    """
    lost_tokens = sum(row.num_loss_tokens - num_kept(row) for row in _rows((*packs, *left_out)))
    if not lost_tokens:
        whole = LossNormalizer(num_tokens=mini.num_loss_tokens, num_rollouts=mini.num_rollouts)
        return tuple(packs), whole
    lost_rollouts = 0
    for some in (packs, left_out):
        totals = _kept_weights(some)
        lost_rollouts += sum(total == 0 for total in totals.values())
    totals = _kept_weights(packs)

    def weighed(row: TokenSequence) -> TokenSequence:
        if not row.num_loss_tokens:
            return row
        return replace(row, weight=_kept_weight(row) / (totals[row.rollout_id] or 1.0))

    return (
        tuple(replace(pack, sequences=tuple(map(weighed, pack.sequences))) for pack in packs),
        LossNormalizer(
            num_tokens=mini.num_loss_tokens - lost_tokens, num_rollouts=mini.num_rollouts - lost_rollouts
        ),
    )


def _kept_weights(packs: Iterable[Pack]) -> dict[str, float]:
    """What is left of each rollout that sampled a token."""
    totals: defaultdict[str, float] = defaultdict(float)
    for row in _rows(packs):
        if row.num_loss_tokens:
            totals[row.rollout_id] += _kept_weight(row)
    return totals


def _kept_weight(row: TokenSequence) -> float:
    return row.weight * num_kept(row) / row.num_loss_tokens


def _rows(packs: Iterable[Pack]) -> Iterable[TokenSequence]:
    return (row for pack in packs for row in pack.sequences)
