"""A model and the engine's way to compute it -> the same logits, or a refusal before anything is sampled.

The engine's attention stands in for the model's; an architecture that does more than it seems would sample
nonsense without an error. A dozen tokens tell: as a prompt, as a continued prompt, and one by one.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from strop.engine.attention import Attention
from strop.engine.batch import make_batch
from strop.engine.forward import Forward
from strop.errors import EngineError

TAKES = (6, 3, 1, 1)


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
            f"the engine's logits of {type(model).__name__} differ from the model's own by {worst:.3g} of "
            "their spread",
            fix="this architecture's attention does something the engine does not know; take another",
        )


def _plain_logits(model: PreTrainedModel, ids: np.ndarray) -> torch.Tensor:
    training = model.training
    model.eval()
    try:
        out = model(input_ids=torch.from_numpy(ids)[None].to(model.device), use_cache=False)
    finally:
        model.train(training)
    return out.logits[0].float().cpu()
