"""Packs -> a value for every sampled token, and gradients towards their returns: PPO's second model.

A copy of the start weights with one number as its head and an optimizer of its own. It reads the same prefix
trees as the policy: a context shared by rollouts has one value, and nothing is padded. `rl.update` drives it
as a `ValueTrainer`, before and beside the policy.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from strop.config.job import HyperParameters
from strop.errors import CheckpointError
from strop.learners.local.forward import Collected, hidden_at
from strop.learners.local.optimizer import Optimizer
from strop.learners.local.packed_trees import MAX_NODES, PackedTrees, pack_trees
from strop.learners.losses.value import value_loss
from strop.learners.precision import compute_in, working_dtype
from strop.learners.weights_file import check_finite, read_tensors, write_tensors
from strop.locales import msg
from strop.schema.batch import ForwardResult, LossNormalizer, OptimStep, Pack

_METRICS = ("critic/vf_loss", "critic/vf_clipfrac", "critic/vpred_mean")


class ValueNetwork(nn.Module):
    """A decoder of its own, copied from a causal language model, and a linear head of width one.

    The head begins at 0, so that every value does: what it learns first is the mean return.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.config: Any = model.config
        self.decoder: nn.Module = copy.deepcopy(model.get_decoder())  # pyright: ignore[reportCallIssue]
        width: int = model.get_output_embeddings().weight.shape[1]  # pyright: ignore[reportCallIssue]
        self.head = nn.Linear(width, 1, dtype=next(model.parameters()).dtype)
        for weight in self.head.parameters():
            nn.init.zeros_(weight)

    def get_decoder(self) -> nn.Module:
        """As transformers' causal models do: for `learners.local.forward`."""
        return self.decoder

    def forward(self, trees: PackedTrees) -> Tensor:
        """(E,) the value of each sampled token's context; at least float32."""
        # Once a context: tokens that were sampled in the same one have exactly one value.
        nodes_C, context_E = trees.edge_nodes_E.unique(return_inverse=True)
        hidden_CH = hidden_at(self, trees, nodes_C)
        exact = torch.promote_types(hidden_CH.dtype, torch.float32)
        weight, bias = self.head.weight.to(exact), self.head.bias.to(exact)
        return F.linear(hidden_CH.to(exact), weight, bias)[context_E, 0]


class LocalValueTrainer:
    """The critic of one run. Made before the policy's trainer, from the same model, whose weights it copies.

    Concurrency: not thread-safe; no two of its methods may overlap.
    """

    def __init__(
        self,
        model: nn.Module,
        hyper_parameters: HyperParameters,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype` overrides what `hyper_parameters.train_dtype` means on this machine."""
        self._hyper = hyper_parameters
        self._network = ValueNetwork(model).eval().requires_grad_(True)
        if hyper_parameters.freeze_embeddings:
            decoder: Any = self._network.decoder
            decoder.get_input_embeddings().requires_grad_(False)
        exact = {
            name: weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
            for name, weight in self._network.named_parameters()
        }
        compute_in(self._network, dtype or working_dtype(hyper_parameters.train_dtype)[0])
        self._optimizer = Optimizer(self._network, weight_decay=hyper_parameters.weight_decay)
        self._optimizer.load_state(exact, {})
        self._summed = False

    def network(self) -> ValueNetwork:
        """The weights after the last update."""
        return self._network

    @torch.no_grad()
    def score(self, packs: Sequence[Pack]) -> ForwardResult:
        """The values of the contexts of each sequence's sampled tokens."""
        found = Collected()
        for trees in pack_trees(packs, max_nodes=MAX_NODES):
            found.add_rows(trees, self._values(trees))
        return found.over(packs)

    def forward_backward(self, packs: Sequence[Pack], normalizer: LossNormalizer) -> ForwardResult:
        """Add the gradient towards the returns of `packs` to what was summed since the last optimizer
        step."""
        if not self._summed:
            self._optimizer.zero_gradients()
            self._summed = True
        found = Collected()
        found.add_metrics(dict.fromkeys(_METRICS, 0.0))
        for trees in pack_trees(packs, max_nodes=MAX_NODES):
            values_ST = self._values(trees)
            loss, metrics = value_loss(
                values_BT=values_ST,
                old_values_BT=trees.old_values_ST,
                returns_BT=trees.returns_ST,
                # Not the trees' mask: whatever the engine said of a token, its context has a return.
                mask_BT=torch.arange(values_ST.shape[1])[None, :] < trees.lengths_S[:, None],
                clip=self._hyper.cliprange_value or None,
                num_tokens=normalizer.num_tokens,
            )
            loss.backward()
            found.add_rows(trees, values_ST.detach())
            found.add_metrics({"critic/vf_loss": loss.item(), **metrics})
        return found.over(packs)

    def optim_step(self, learning_rate: float, *, max_grad_norm: float) -> OptimStep:
        """Step along the summed gradient, clipped to a global norm; what is summed next begins at 0."""
        stepped, norm = self._optimizer.step(learning_rate, max_grad_norm=max_grad_norm)
        self._summed = False
        return OptimStep(applied=stepped, grad_norm=norm)

    def save(self, folder: Path) -> None:
        """Write what the critic needs to go on exactly, below `trainer/`."""
        state = folder / "trainer"
        state.mkdir(exist_ok=True)
        write_tensors(state / "critic.safetensors", self._optimizer.masters)
        write_tensors(state / "critic_optimizer.safetensors", self._optimizer.state())

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        path = folder / "trainer" / "critic.safetensors"
        if not path.is_file():
            raise CheckpointError(
                msg(
                    "{folder!r} holds no critic, and PPO cannot go on without the one it had",
                    folder=str(folder),
                ),
                fix=msg(
                    "resume from a checkpoint of a PPO run, or start a new job with this folder as its model"
                ),
            )
        masters = read_tensors(path)
        missing = sorted(set(self._optimizer.masters) - set(masters))
        if missing:
            raise CheckpointError(
                msg(
                    "the critic in {folder!r} is of another model: no {missing!r}",
                    folder=str(folder),
                    missing=missing[0],
                )
            )
        check_finite(
            f"the critic in {str(folder)!r}", masters, working=next(self._network.parameters()).dtype
        )
        state = read_tensors(folder / "trainer" / "critic_optimizer.safetensors")
        check_finite(f"the critic's optimizer in {str(folder)!r}", state)
        self._summed = False
        self._optimizer.load_state(masters, state)

    def _values(self, trees: PackedTrees) -> Tensor:
        return self._network(trees)[trees.sequence_edges_ST]
