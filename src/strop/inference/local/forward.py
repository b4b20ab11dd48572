"""A batch and the cache -> logits of the rows that sample: the two ways to compute them.

`HubForward` runs the model's own code with attention over our cache, so that any full-attention model works;
`fused.FusedLlama` is faster for the family it knows.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from strop.errors import EngineError
from strop.inference.local.adapter import Adapter, LowRank
from strop.inference.local.attention import Attention
from strop.inference.local.batch import StepBatch
from strop.locales import msg

ATTENTION_NAME = "strop_engine"


class Forward(Protocol):
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copy checked weights, named as in the model's `state_dict`, into the sampling precision."""
        ...

    def drop(self) -> None:
        """Free the weights; `load` brings others before the next logits are asked for."""
        ...

    def logits(self, batch: StepBatch, attention: Attention) -> Tensor:
        """Compute the batch's tokens, write their KV, give float32 logits (M, V) of `logit_rows_M`."""
        ...

    def adapt(self, change: LowRank) -> Adapter:
        """Make a change ready for requests. Raises `EngineError` when it is not one of this model."""
        ...


@dataclass(slots=True)
class _Running:
    """The pass that the calling thread is in; the model's code does not hand it to its attention."""

    batch: StepBatch
    attention: Attention
    num_calls: int = 0


_local = threading.local()

UNKNOWN_TO_ENGINE = ("softcap", "s_aux", "position_bias", "alibi", "head_mask")
"""Arguments of attention that change its result, and that the engine does not compute."""


def cached_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """Attention in the form transformers calls it: one row of all tokens of the step, whatever their
    sequences.

    Shapes:
        query (1, heads, N, head_dim), key and value (1, kv_heads, N, head_dim); gives (1, N, heads,
        head_dim).
    """
    del attention_mask
    running: _Running = _local.running
    odd = [name for name in UNKNOWN_TO_ENGINE if arguments.get(name) is not None]
    if odd:
        raise EngineError(
            msg(
                "{name} attends with {odd!r}, which the engine does not compute",
                name=type(module).__name__,
                odd=odd[0],
            )
        )
    cache, layer = running.attention.cache, module.layer_idx
    num_tokens, head_dim = query.shape[2:]
    if not isinstance(layer, int) or key.shape[1::2] != (cache.shape.num_kv_heads, cache.shape.head_dim):
        raise EngineError(
            msg(
                "{name} gives keys of shape {tuple}, expected {shape}",
                name=type(module).__name__,
                tuple=tuple(key.shape),
                shape=cache.shape,
            )
        )
    if value.shape != key.shape:
        raise EngineError(
            msg(
                "{name} has values of another width ({shape}) than keys ({head_dim})",
                name=type(module).__name__,
                shape=value.shape[-1],
                head_dim=head_dim,
            )
        )
    new_NRD = torch.cat([key[0], value[0]]).transpose(0, 1)
    running.num_calls += 1
    q_NHD = query[0].transpose(0, 1).contiguous()
    scale = head_dim**-0.5 if scaling is None else scaling
    out_NE = running.attention(running.batch, layer, q_NHD, new_NRD, scale)
    return out_NE.view(1, num_tokens, -1, head_dim), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The cache knows who may see what."""


AttentionInterface.register(ATTENTION_NAME, cached_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


class HubForward:
    """A copy of the model, run by its own code."""

    def __init__(
        self, model: PreTrainedModel, *, dtype: torch.dtype, device: torch.device, vocab: int
    ) -> None:
        if not model._supports_attention_backend:
            raise EngineError(
                msg("{name} does not let its attention be replaced", name=type(model).__name__),
                fix=msg("take a model whose transformers class supports the attention interface"),
            )
        self._model = copy.deepcopy(model).eval().requires_grad_(False)
        nn.Module.to(self._model, device, dtype)
        self._model.set_attn_implementation(ATTENTION_NAME)
        self._vocab = vocab
        self._keeps_rows = "logits_to_keep" in inspect.signature(type(self._model).forward).parameters

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for parameter in self._model.parameters():
            storage = parameter.untyped_storage()
            begin = parameter.storage_offset() * parameter.itemsize
            storage.resize_(max(int(storage.nbytes()), int(begin + parameter.nbytes)))
        own = self._model.state_dict()
        for name, tensor in weights.items():
            own[name].copy_(tensor)

    def drop(self) -> None:
        for parameter in self._model.parameters():
            parameter.untyped_storage().resize_(0)

    def adapt(self, change: LowRank) -> Adapter:
        raise EngineError(
            msg(
                "{name} is computed by its own code, which takes no adapters", name=type(self._model).__name__
            ),
            fix=msg("serve the merged model"),
        )

    def logits(self, batch: StepBatch, attention: Attention) -> Tensor:
        rows = batch.logit_rows_M
        kept = {"logits_to_keep": rows} if self._keeps_rows and rows is not None else {}
        _local.running = running = _Running(batch=batch, attention=attention)
        try:
            out = self._model(
                input_ids=batch.ids_N[None], position_ids=batch.positions_N[None], use_cache=False, **kept
            )
        finally:
            _local.running = None
        if running.num_calls != attention.cache.shape.num_layers:
            raise EngineError(
                msg(
                    "{name} attended {num_calls} times in {num_layers} layers; the others "
                    "keep a state unknown to the engine",
                    name=type(self._model).__name__,
                    num_calls=running.num_calls,
                    num_layers=attention.cache.shape.num_layers,
                )
            )
        logits_MV = out.logits[0]
        if rows is not None and not kept:
            logits_MV = logits_MV[rows]
        return logits_MV[:, : self._vocab].to(torch.float32, copy=True)
