"""The Llama family (Llama, Mistral, Qwen2, Qwen3) with as few operations a layer as plain torch allows.

Query, key and value weights are one matrix, gate and up another; residuals are added by the multiplication
before them. Rows of query and key weights are reordered so that the two numbers a position rotates lie side
by side: the rotation is then one complex multiplication in place, and scores, being sums over all of them,
do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from strop.errors import EngineError
from strop.inference.local.adapter import Adapter, LowRank, add_changes, fused_pair
from strop.inference.local.attention import Attention
from strop.inference.local.batch import StepBatch
from strop.inference.local.linear import Linear, make_linear, packing_works
from strop.inference.local.support import kv_shape
from strop.inference.local.weights import to_sampling
from strop.locales import msg

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
OUT = ("self_attn.o_proj",)
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
DOWN = ("mlp.down_proj",)
"""Weights that are multiplied as one. Adapters know each by its first name."""

FUSED_CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether `FusedLlama` computes what this model does; checked again on numbers when the engine starts."""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        type(model).__name__ in FUSED_CLASSES
        and getattr(config, "hidden_act", None) == "silu"
        and rope.get("rope_type", "default") in ("default", "linear", "llama3", "yarn")
        and rope.get("partial_rotary_factor", 1.0) == 1.0
    )


@dataclass(slots=True)
class _Layer:
    norm_in_E: Tensor
    qkv: Linear
    q_norm_D: Tensor | None
    k_norm_D: Tensor | None
    out: Linear
    norm_mlp_E: Tensor
    gate_up: Linear
    down: Linear


class FusedLlama:
    """Holds its own copy of the weights, in the sampling precision."""

    def __init__(
        self, model: PreTrainedModel, *, dtype: torch.dtype, device: torch.device, vocab: int, max_length: int
    ) -> None:
        config = model.config
        shape = kv_shape(model, dtype)
        self._dtype, self._device, self._vocab = dtype, device, vocab
        self._num_layers = shape.num_layers
        self._num_heads, self._kv_heads = int(config.num_attention_heads), shape.num_kv_heads
        self._head_dim = shape.head_dim
        self._hidden, self._inner = int(config.hidden_size), int(config.intermediate_size)
        self._eps = float(config.rms_norm_eps)
        self._packed = packing_works(dtype, device)
        half = shape.head_dim // 2
        self._side_by_side = torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).flatten()
        self._rotation_L1D = _rotations(model, max_length).to(device)
        self._layers: list[_Layer]
        self._embedding_VE: Tensor
        self._norm_E: Tensor
        self._head: Linear | None
        self.drop()

    def load(self, weights: Mapping[str, Tensor]) -> None:
        self.drop()
        # One layer after the other, so that never more than one layer exists twice in the source's precision.
        layers = [self._load_layer(weights, f"model.layers.{index}.") for index in range(self._num_layers)]
        self._embedding_VE = self._own(weights["model.embed_tokens.weight"])
        self._norm_E = self._own(weights["model.norm.weight"])
        head_VE = weights["lm_head.weight"][: self._vocab]
        self._head = make_linear(self._own(head_VE, copy=not self._packed), None, packed=self._packed)
        self._layers = layers

    def drop(self) -> None:
        self._layers, self._head = [], None
        self._embedding_VE = self._norm_E = torch.empty(0)

    def logits(self, batch: StepBatch, attention: Attention) -> Tensor:
        if self._head is None:
            raise EngineError(msg("the engine has no weights yet"), fix=msg("call load_weights first"))
        x_NE = F.embedding(batch.ids_N, self._embedding_VE)
        rotation_N1D = self._rotation_L1D[batch.positions_N]
        for index, layer in enumerate(self._layers):
            normed_NE = F.rms_norm(x_NE, x_NE.shape[1:], layer.norm_in_E, self._eps)
            attended_NE = self._attend(index, layer, normed_NE, rotation_N1D, batch, attention)
            x_NE = layer.out.plus(attended_NE, x_NE)
            add_changes(batch.adapted, index, OUT[0], attended_NE, x_NE)
            normed_NE = F.rms_norm(x_NE, x_NE.shape[1:], layer.norm_mlp_E, self._eps)
            both_NF = layer.gate_up(normed_NE)
            add_changes(batch.adapted, index, GATE_UP[0], normed_NE, both_NF)
            gate_NF, up_NF = both_NF.chunk(2, dim=-1)
            inner_NF = F.silu(gate_NF).mul_(up_NF)
            x_NE = layer.down.plus(inner_NF, x_NE)
            add_changes(batch.adapted, index, DOWN[0], inner_NF, x_NE)
        if batch.logit_rows_M is not None:
            x_NE = x_NE[batch.logit_rows_M]
        return self._head(F.rms_norm(x_NE, x_NE.shape[1:], self._norm_E, self._eps)).float()

    def adapt(self, change: LowRank) -> Adapter:
        prefixes = [f"model.layers.{index}." for index in range(self._num_layers)]
        known = {prefix + name for prefix in prefixes for name in (*QKV, *OUT, *GATE_UP, *DOWN)}
        if unknown := sorted(change.sites.keys() - known):
            raise EngineError(
                msg("the adapter changes {unknown}, which is no layer of this model", unknown=unknown[0])
            )
        return Adapter(layers=[self._adapt_layer(change, prefix) for prefix in prefixes])

    def _adapt_layer(self, change: LowRank, prefix: str) -> dict[str, tuple[Tensor, Tensor]]:
        head, kv = self._num_heads * self._head_dim, self._kv_heads * self._head_dim
        inputs = {QKV: self._hidden, OUT: head, GATE_UP: self._hidden, DOWN: self._inner}
        outputs = {
            QKV: (head, kv, kv),
            OUT: (self._hidden,),
            GATE_UP: (self._inner,) * 2,
            DOWN: (self._hidden,),
        }
        pairs: dict[str, tuple[Tensor, Tensor]] = {}
        for names, widths in outputs.items():

            def reorder(index: int, b_OR: Tensor, rotated: bool = names is QKV) -> Tensor:
                return self._reordered(b_OR) if rotated and index < 2 else b_OR

            whole = [prefix + name for name in names]
            pair = fused_pair(change, whole, widths, reorder=reorder, own=self._own)
            if pair is not None:
                if pair[0].shape[1] != inputs[names]:
                    raise EngineError(msg("the adapter's shapes do not fit {whole}", whole=whole[0]))
                pairs[names[0]] = pair
        return pairs

    def _attend(
        self,
        index: int,
        layer: _Layer,
        normed_NE: Tensor,
        rotation_N1D: Tensor,
        batch: StepBatch,
        attention: Attention,
    ) -> Tensor:
        heads, kv_heads, head_dim = self._num_heads, self._kv_heads, self._head_dim
        qkv_NF = layer.qkv(normed_NE)
        add_changes(batch.adapted, index, QKV[0], normed_NE, qkv_NF)
        qkv_NHD = qkv_NF.view(-1, heads + 2 * kv_heads, head_dim)
        if layer.q_norm_D is not None:
            q_NHD, k_NHD = qkv_NHD[:, :heads], qkv_NHD[:, heads : heads + kv_heads]
            q_NHD.copy_(F.rms_norm(q_NHD, (head_dim,), layer.q_norm_D, self._eps))
            k_NHD.copy_(F.rms_norm(k_NHD, (head_dim,), layer.k_norm_D, self._eps))
        _rotate(qkv_NHD[:, : heads + kv_heads], rotation_N1D)
        return attention(batch, index, qkv_NHD[:, :heads], qkv_NHD[:, heads:], head_dim**-0.5)

    def _load_layer(self, weights: Mapping[str, Tensor], prefix: str) -> _Layer:
        def own(name: str) -> Tensor | None:
            tensor = weights.get(prefix + name)
            return None if tensor is None else self._own(tensor)

        def needed(name: str) -> Tensor:
            return self._own(weights[prefix + name])

        def fused(names: tuple[str, ...], *, rotated: tuple[str, ...] = ()) -> Linear:
            parts: dict[str, list[Tensor]] = {"weight": [], "bias": []}
            for name in names:
                for kind, tensors in parts.items():
                    tensor = weights.get(f"{prefix}{name}.{kind}")
                    if tensor is not None:
                        tensors.append(self._reordered(tensor) if name in rotated else tensor)
            bias = self._own(torch.cat(parts["bias"])) if parts["bias"] else None
            weight, *more = parts["weight"]
            if more:  # what is put together is ours already
                weight = torch.cat(parts["weight"])
            return make_linear(self._own(weight, copy=not (more or self._packed)), bias, packed=self._packed)

        q_norm, k_norm = own("self_attn.q_norm.weight"), own("self_attn.k_norm.weight")
        return _Layer(
            norm_in_E=needed("input_layernorm.weight"),
            qkv=fused(QKV, rotated=QKV[:2]),
            q_norm_D=None if q_norm is None else self._reordered(q_norm),
            k_norm_D=None if k_norm is None else self._reordered(k_norm),
            out=fused(OUT),
            norm_mlp_E=needed("post_attention_layernorm.weight"),
            gate_up=fused(GATE_UP),
            down=fused(DOWN),
        )

    def _own(self, tensor: Tensor, *, copy: bool = True) -> Tensor:
        """In the sampling precision; with `copy`, never the source's memory."""
        return to_sampling(tensor, self._dtype, self._device, copy=copy)

    def _reordered(self, tensor: Tensor) -> Tensor:
        """Rows of each head from (first halves, second halves) to pairs side by side."""
        by_head = tensor.view(-1, self._head_dim, *tensor.shape[1:])
        return by_head[:, self._side_by_side.to(tensor.device)].reshape(tensor.shape)


def _rotations(model: PreTrainedModel, max_length: int) -> Tensor:
    """cos + i sin of every position and pair, scaled as the model does it: (max_length, 1, head_dim / 2)."""
    rotary = model.model.rotary_emb
    positions = torch.arange(max_length, device=rotary.inv_freq.device)[None]
    cos_1LD, sin_1LD = rotary(torch.empty(0, dtype=torch.float32, device=positions.device), positions)
    half = cos_1LD.shape[-1] // 2
    return torch.complex(cos_1LD[0, :, :half], sin_1LD[0, :, :half])[:, None]


def _rotate(x_NHD: Tensor, rotation_N1D: Tensor) -> None:
    """Turn each pair of neighbours by its position's angle, in place."""
    pairs_NHP2 = x_NHD.unflatten(-1, (-1, 2))
    if x_NHD.dtype == torch.float32:
        torch.view_as_complex(pairs_NHP2).mul_(rotation_N1D)
    else:
        turned = torch.view_as_complex(pairs_NHP2.float()).mul_(rotation_N1D)
        pairs_NHP2.copy_(torch.view_as_real(turned))
