"""A model and the engine's way to compute it -> the same logits, or a refusal before anything is sampled.

The engine's attention stands in for the model's; an architecture that does more than it seems would sample
nonsense without an error. A dozen tokens tell: as a prompt, as a continued prompt, and one by one.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from strop.errors import EngineError
from strop.inference.local.attention import Attention
from strop.inference.local.batch import make_batch
from strop.inference.local.forward import Forward
from strop.locales import msg

TAKES = (6, 3, 1, 1)

ALONE, AMONG, PARTS = 40, 12, (0.4, 0.3, 0.05, 1.0)
"""Tokens, sequences and shares that tell whether a sequence's bits depend on the others."""


def check_forward(model: PreTrainedModel, forward: Forward, attention: Attention, vocab: int) -> None:
    """Raises `EngineError` when the engine's logits are not the model's. Uses and empties slot 0."""
    cache = attention.cache
    length = min(sum(TAKES), cache.max_length)
    ids = (np.arange(length, dtype=np.int64) * 7919 + 13) % vocab
    expected_LV = _plain_logits(model, ids)[:, :vocab]
    cache.tokens_SL[0, :length] = ids
    worst = 0.0
    for take in TAKES:
        begin = int(cache.num_cached_S[0])
        if begin + take > length:
            break
        logits_1V = forward.logits(make_batch(cache, np.array([take]), np.array([True])), attention).cpu()
        cache.num_cached_S[0] += take
        difference = (logits_1V[0] - expected_LV[begin + take - 1]).abs().mean()
        worst = max(worst, float(difference / expected_LV.std().clamp_min(1e-6)))
    cache.empty(0)
    exact = cache.shape.dtype == torch.float32 and model.dtype == torch.float32
    if not worst <= (1e-3 if exact else 0.1):
        raise EngineError(
            msg(
                "the engine's logits of {name} differ from the model's own by {worst:.3g} of their spread",
                name=type(model).__name__,
                worst=worst,
            ),
            fix=msg("this architecture's attention does something the engine does not know; take another"),
        )


def check_neighbours(forward: Forward, attention: Attention, vocab: int) -> bool:
    """Whether a sequence's logits are the same, bit for bit, alone and prefilled whole as in parts and among
    others. Uses and empties the first slots."""
    cache = attention.cache
    length, num_slots = min(ALONE, cache.max_length - 1), min(AMONG, cache.num_slots)
    if length < len(PARTS):
        return True
    cache.tokens_SL[:num_slots, :length] = (np.arange(length, dtype=np.int64) * 6151 + 7) % vocab
    alone_1V = forward.logits(make_batch(cache, np.array([length]), np.array([True])), attention).clone()
    cache.empty(0)
    logits_MV = alone_1V
    for part in PARTS:
        left_S = length - cache.num_cached_S[:num_slots]
        take_S = np.minimum(1 + np.arange(num_slots) % 5, left_S)
        take_S[0] = max(1, int(part * length)) if part < 1 else left_S[0]
        logits_MV = forward.logits(make_batch(cache, take_S, take_S > 0), attention)
        cache.num_cached_S[:num_slots] += take_S
    for slot in range(num_slots):
        cache.empty(slot)
    return torch.equal(alone_1V[0], logits_MV[0])


def _plain_logits(model: PreTrainedModel, ids: np.ndarray) -> torch.Tensor:
    training = model.training
    model.eval()
    try:
        out = model(input_ids=torch.from_numpy(ids)[None].to(model.device), use_cache=False)
    finally:
        model.train(training)
    return out.logits[0].float().cpu()
