"""Model configuration -> what the engine must know of it, or the reason why the model cannot be sampled here.

The engine keeps the keys and values of every token and lets each token attend to all before it; a model
that does something else is refused before any work.
"""

from __future__ import annotations

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from strop.errors import EngineError
from strop.inference.local.kv_cache import KVShape
from strop.locales import msg

ADVICE = "take a model with full attention in every layer, or a smaller max_length where a window is named"


def refuse_unsupported(model: PreTrainedModel, max_length: int) -> None:
    """Raises `EngineError` that names what the engine lacks for this model."""
    config = text_config(model)
    name = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise EngineError(
            msg("{name} is an encoder-decoder model; the engine samples decoders", name=name), fix=ADVICE
        )
    if getattr(model, "_is_stateful", False):
        raise EngineError(
            msg("{name} has recurrent layers, whose state the engine cannot keep", name=name), fix=ADVICE
        )
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or (["sliding_attention"] if window else ["full_attention"])
    for kind in sorted(set(kinds) - {"full_attention"}):
        if kind != "sliding_attention":
            raise EngineError(
                msg(
                    "{name} has layers of kind {kind!r}; the engine knows full attention",
                    name=name,
                    kind=kind,
                ),
                fix=ADVICE,
            )
        if window is not None and window < max_length:
            raise EngineError(
                msg(
                    "{name} attends to a window of {window} tokens, max_length is {max_length}",
                    name=name,
                    window=window,
                    max_length=max_length,
                ),
                fix=ADVICE,
            )
    _refuse_changing_rope(config, name, max_length)


def _refuse_changing_rope(config: PreTrainedConfig, name: str, max_length: int) -> None:
    """Rotations that change with the longest sequence of a batch would disagree with cached keys."""
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    trained = rope.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", None)
    if kind in ("dynamic", "longrope") and trained is not None and max_length > trained:
        raise EngineError(
            msg(
                "{name} rotates positions by the {kind!r} rule, which changes beyond "
                "{trained} tokens; max_length is {max_length}",
                name=name,
                kind=kind,
                trained=trained,
                max_length=max_length,
            ),
            fix=msg("set max_length to at most {trained}", trained=trained),
        )


def text_config(model: PreTrainedModel) -> PreTrainedConfig:
    return model.config.get_text_config(decoder=True)


def resolve_max_length(model: PreTrainedModel, wanted: int | None) -> int:
    made_for = getattr(text_config(model), "max_position_embeddings", None)
    if wanted is None:
        if made_for is None:
            raise EngineError(
                msg("{name} names no longest sequence", name=type(model).__name__), fix=msg("set max_length")
            )
        return int(made_for)
    if made_for is not None and wanted > made_for:
        raise EngineError(
            msg(
                "max_length {wanted} is beyond the {made_for} positions {name} was made for",
                wanted=wanted,
                made_for=made_for,
                name=type(model).__name__,
            ),
            fix=msg("set max_length to at most {made_for}", made_for=made_for),
        )
    return wanted


def kv_shape(model: PreTrainedModel, dtype: torch.dtype) -> KVShape:
    config = text_config(model)
    num_heads = int(config.num_attention_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    kv_heads = getattr(config, "num_key_value_heads", None)
    if kv_heads is None and getattr(config, "multi_query", False):
        kv_heads = 1
    return KVShape(
        num_layers=int(config.num_hidden_layers),
        num_kv_heads=int(kv_heads or num_heads),
        head_dim=int(head_dim),
        dtype=dtype,
    )
