"""Model, trees -> logprob and entropy of each of their sampled tokens.

One forward pass over all trees. Llama-like models run on `llama`; every other full-attention causal
model of transformers runs as it is, with the trees as its 4D attention mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from strop.errors import ModelError
from strop.learners.local import llama
from strop.learners.local.logprobs import edge_logprobs
from strop.learners.local.packed_trees import PackedTrees
from strop.learners.weights_file import not_finite
from strop.locales import msg
from strop.schema.batch import ForwardResult, Pack


def tree_logprobs(
    model: nn.Module, trees: PackedTrees, *, entropy_gradient: bool = False, as_module: bool = False
) -> tuple[Tensor, Tensor]:
    """(E,) logprobs, with gradient where it is enabled, and (E,) entropies, each at its token's temperature.

    Entropies have a gradient only with `entropy_gradient`, which costs time. `as_module` runs the
    transformers module also where the faster path exists.
    """
    hidden_EH = hidden_at(model, trees, trees.edge_nodes_E, as_module=as_module)
    head: Any = model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
    return edge_logprobs(
        hidden_EH,
        head.weight,
        head.bias,
        trees.edge_tokens_E,
        trees.edge_temperatures_E,
        entropy_gradient=entropy_gradient,
    )


def scored(model: nn.Module, micro_batches: Sequence[PackedTrees], packs: Sequence[Pack]) -> ForwardResult:
    """One pass over `packs`, of which `micro_batches` were made: what `model` says of them, without
    gradient."""
    found = Collected()
    for trees in micro_batches:
        found.add_pass(trees, *tree_logprobs(model, trees))
    return found.over(packs)


class Collected:
    """Adds up what a pass found in the trees of some packs."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []
        self._entropy = 0.0
        self.metrics: dict[str, float] = {}

    def add_pass(self, trees: PackedTrees, logprobs_E: Tensor, entropies_E: Tensor) -> None:
        self.add_rows(trees, logprobs_E[trees.sequence_edges_ST])
        self._entropy += float(entropies_E[trees.sequence_edges_ST[trees.mask_ST]].sum())

    def add_rows(self, trees: PackedTrees, values_ST: Tensor) -> None:
        pairs = zip(values_ST, trees.lengths_S.tolist(), strict=True)
        self._rows += [tuple(values_T[:length].tolist()) for values_T, length in pairs]

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + value

    def over(self, packs: Sequence[Pack]) -> ForwardResult:
        """All of it, with an empty row for each sequence that no tree holds: it sampled no token."""
        rows: Iterator[tuple[float, ...]] = iter(self._rows)
        sequences = (sequence for pack in packs for sequence in pack.sequences)
        return ForwardResult(
            logprobs=tuple(next(rows) if sequence.num_loss_tokens else () for sequence in sequences),
            entropy=self._entropy,
            metrics=self.metrics,
        )


def hidden_at(model: nn.Module, trees: PackedTrees, nodes_E: Tensor, *, as_module: bool = False) -> Tensor:
    """(E, H) last hidden states of these nodes, after the final norm.

    Of `model` only the decoder and its configuration are used.
    """
    if llama.supports(model) and not as_module:
        return llama.final_norm(model, llama.hidden_states(model, trees)[nodes_E])
    return _module_hidden(model, trees)[nodes_E]


def _module_hidden(model: nn.Module, trees: PackedTrees) -> Tensor:
    decoder: Any = model.get_decoder()  # pyright: ignore[reportCallIssue]
    output = decoder(
        input_ids=trees.token_ids_N[None],
        position_ids=trees.positions_N[None],
        attention_mask=trees.attention_mask(),
        use_cache=False,
    )
    return output.last_hidden_state[0]


@torch.no_grad()
def check_trainable(model: nn.Module) -> None:
    """Refuse a model whose logprobs these functions would not compute.

    Raises:
        ModelError: weights that are not finite; attention that is not full (a tree mask would be ignored or
            cut), or logits that are not simply the output embedding of the last hidden states (soft caps,
            scales).
    """
    config: Any = model.config
    if (broken := not_finite(dict(model.named_parameters()))) is not None:
        raise ModelError(
            msg(
                "the weights of the model are not all finite: {broken!r} holds NaN or infinity", broken=broken
            ),
            fix=msg("take a model, or a checkpoint, from before its numbers went wrong"),
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if kinds != {"full_attention"} or (window and getattr(config, "layer_types", None) is None):
        raise ModelError(
            msg(
                "{model_type!r} models do not attend to everything before ({kinds}, window "
                "{window}); training packs rollouts as trees, which needs full attention",
                model_type=config.model_type,
                kinds=", ".join(sorted(kinds)),
                window=window,
            ),
            fix=msg("train a full-attention model (Llama, Qwen2, Qwen3, SmolLM2, ...)"),
        )
    ids = torch.tensor([[0, 1, 2]])
    head: Any = model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
    decoder: Any = model.get_decoder()  # pyright: ignore[reportCallIssue]
    hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state
    if not torch.allclose(head(hidden), model(input_ids=ids, use_cache=False).logits, rtol=1e-3, atol=1e-3):
        raise ModelError(
            msg(
                "{model_type!r} models change the logits after the output embedding; training would not",
                model_type=config.model_type,
            ),
            fix=msg("train a model without logit soft-capping or scaling"),
        )
