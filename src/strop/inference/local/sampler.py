"""Logits -> sampled ids and their logprobs, for a whole batch at once.

Every random number is a function of a request's seed and the token's place in its answer, so that neither the
other sequences of the batch nor the order of requests changes what is sampled. Pure: no state, no generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strop.schema.sampling import TopLogprobs

SHORT_LIST = 1024
"""Most likely tokens that top-p looks at before it sorts the whole vocabulary."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How to sample each row of a batch.

    Shapes:
        all (M,). `uniform_M` in [0, 1). `temperature_M` 0 is greedy; `top_k_M` 0 and `top_p_M` 1 mean off.
    """

    temperature_M: npt.NDArray[np.float32]
    top_p_M: npt.NDArray[np.float32]
    top_k_M: npt.NDArray[np.int64]
    uniform_M: npt.NDArray[np.float64]


def uniforms(seed_M: npt.NDArray[np.uint64], index_M: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for token `index` of the request with `seed`.

    Source:
        splitmix64 (Steele, Lea, Flood 2014) as a hash: the seed's hash starts the counter, `index` counts.
    """
    with np.errstate(over="ignore"):
        state_M = _mix(seed_M + GOLDEN) + (index_M.astype(np.uint64) + np.uint64(1)) * GOLDEN
        bits_M = _mix(state_M) >> np.uint64(11)
    return bits_M.astype(np.float64) * 2.0**-53


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def sample(logits_MV: Tensor, draws: Draws) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Sample one token a row.

    Temperature first, then top-k, then top-p of what top-k left; exactly k tokens stay, ties in the order of
    `torch.topk`. A random row takes the first token at which the cumulated probability passes its uniform
    number.

    Shapes:
        logits_MV: (M, V) float32; may be overwritten.
    Units:
        logprobs in nats, of the distribution sampled from. A greedy row has no randomness: its logprob is
        that of the unchanged distribution (temperature 1). A row of logits that are not finite gives NaN.
    """
    if logits_MV.shape[0] == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
    greedy_M = draws.temperature_M == 0.0
    tempered_M = ~greedy_M & (draws.temperature_M != 1.0)
    if tempered_M.any():
        scale_M = np.where(tempered_M, draws.temperature_M, np.float32(1.0))
        logits_MV.div_(_column(scale_M, logits_MV))
    top_M = torch.argmax(logits_MV, dim=-1) if greedy_M.any() else None
    probs_MV = torch.softmax(logits_MV, dim=-1)
    cut_M = ~greedy_M & ((draws.top_p_M < 1.0) | (draws.top_k_M > 0))
    if greedy_M.all():
        assert top_M is not None
        id_M = top_M
        prob_M = probs_MV.gather(1, id_M[:, None])[:, 0]
    else:
        id_M, prob_M = _inverse_cdf(probs_MV, draws.uniform_M)
        if top_M is not None:
            id_M = torch.where(torch.from_numpy(greedy_M).to(id_M.device), top_M, id_M)
            prob_M = probs_MV.gather(1, id_M[:, None])[:, 0]
        for rows in _alike(cut_M, draws):
            index = torch.from_numpy(rows).to(id_M.device)
            id_M[index], prob_M[index] = _sample_cut(
                probs_MV[index], draws.top_k_M[rows], draws.top_p_M[rows], draws.uniform_M[rows]
            )
    return id_M.cpu().numpy(), prob_M.log().cpu().numpy()


def top_logprobs(logits_MV: Tensor, rows: Sequence[int], counts: Sequence[int]) -> list[TopLogprobs]:
    """The most likely tokens of some rows, after `sample` has applied the temperature.

    Shapes:
        logits_MV: (M, V). rows, counts: (R,) which rows, and how many tokens of each.
    """
    logprobs_RV = torch.log_softmax(logits_MV[list(rows)], dim=-1)
    best_RK, ids_RK = torch.topk(logprobs_RV, min(max(counts), logprobs_RV.shape[1]), dim=-1)
    return [
        tuple(zip(ids[:count], best[:count], strict=True))
        for ids, best, count in zip(ids_RK.tolist(), best_RK.tolist(), counts, strict=True)
    ]


def _alike(cut_M: npt.NDArray[np.bool_], draws: Draws) -> list[npt.NDArray[np.int64]]:
    """Rows to be cut, those with top-k apart from those that may need more of the vocabulary."""
    groups = (cut_M & (draws.top_k_M > 0), cut_M & (draws.top_k_M == 0))
    return [np.flatnonzero(group) for group in groups if group.any()]


def _sample_cut(
    probs_MV: Tensor,
    top_k_M: npt.NDArray[np.int64],
    top_p_M: npt.NDArray[np.float32],
    uniform_M: npt.NDArray[np.float64],
) -> tuple[Tensor, Tensor]:
    """Sample from the most likely tokens only; probabilities are of what was kept."""
    width_V = probs_MV.shape[1]
    limited = bool((top_k_M > 0).all())
    length = min(width_V, int(top_k_M.max()) if limited else SHORT_LIST)
    probs_MK, ids_MK = torch.topk(probs_MV, length, dim=-1)
    # The mass of a short list is compared with a margin: float sums of it and of the whole row differ.
    if not limited and bool((probs_MK.sum(-1) < _column(top_p_M, probs_MK)[:, 0] + 1e-4).any()):
        probs_MK, ids_MK = torch.sort(probs_MV, dim=-1, descending=True)
    if limited:
        rank_K = torch.arange(probs_MK.shape[1], device=probs_MK.device)
        probs_MK = probs_MK.masked_fill(rank_K >= _column(top_k_M, probs_MK), 0.0)
        probs_MK = probs_MK / probs_MK.sum(-1, keepdim=True)
    before_MK = probs_MK.cumsum(-1) - probs_MK
    # The token that passes the threshold is kept, hence the mass before it decides; the first always stays.
    dropped_MK = (before_MK >= _column(top_p_M, probs_MK)) & (_column(top_p_M, probs_MK) < 1.0)
    dropped_MK[:, 0] = False
    kept_MK = probs_MK.masked_fill(dropped_MK, 0.0)
    kept_MK = kept_MK / kept_MK.sum(-1, keepdim=True)
    place_M, prob_M = _inverse_cdf(kept_MK, uniform_M)
    return ids_MK.gather(1, place_M[:, None])[:, 0], prob_M


def _inverse_cdf(probs_MV: Tensor, uniform_M: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    cumulated_MV = probs_MV.cumsum(-1)
    target_M1 = _column(uniform_M.astype(np.float32), probs_MV) * cumulated_MV[:, -1:]
    id_M1 = torch.searchsorted(cumulated_MV, target_M1, right=True).clamp_(max=probs_MV.shape[1] - 1)
    prob_M = probs_MV.gather(1, id_M1)[:, 0]
    empty_M = prob_M == 0.0
    if bool(empty_M.any()):
        # A uniform number that rounds to 1 points behind the last token that has any mass.
        best_M = probs_MV.argmax(-1)
        id_M1 = torch.where(empty_M, best_M, id_M1[:, 0])[:, None]
        prob_M = probs_MV.gather(1, id_M1)[:, 0]
    return id_M1[:, 0], prob_M


def _column(values_M: npt.NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values_M)).to(like.device)[:, None]
