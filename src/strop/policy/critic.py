"""Batch -> a value for every sampled token, and a critic that learns them: PPO's second model.

A copy of the start weights with one number as its head, its own optimizer and its own learning rate. It reads
the same prefix trees as the policy: a context shared by rollouts has one value, and nothing is padded.
`pipeline.loop` calls it through its `Critic` port, before and beside the learner.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from strop.errors import CheckpointError
from strop.policy.forest import MAX_NODES, Forest, make_forests
from strop.policy.forward import hidden_at
from strop.policy.optimizer import Optimizer
from strop.policy.precision import compute_in, working_dtype
from strop.policy.schedule import learning_rate
from strop.policy.value_loss import value_loss
from strop.policy.weights_file import check_finite, read_tensors, write_tensors
from strop.schema.batch import Batch, MiniBatch
from strop.schema.config import HyperParameters

_UPDATE_MEANS: tuple[str, ...] = (
    "critic/vf_loss",
    "critic/vf_clipfrac",
    "critic/vpred_mean",
    "critic/grad_norm",
)


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
        """As transformers' causal models do: for `policy.forward`."""
        return self.decoder

    def forward(self, forest: Forest) -> Tensor:
        """(E,) the value of each sampled token's context; at least float32."""
        # Once a context: tokens that were sampled in the same one have exactly one value.
        nodes_C, context_E = forest.edge_nodes_E.unique(return_inverse=True)
        hidden_CH = hidden_at(self, forest, nodes_C)
        exact = torch.promote_types(hidden_CH.dtype, torch.float32)
        weight, bias = self.head.weight.to(exact), self.head.bias.to(exact)
        return F.linear(hidden_CH.to(exact), weight, bias)[context_E, 0]


class Critic:
    """The critic of one run. Made before the learner, from the same model, whose weights it copies.

    Concurrency: not thread-safe; no two of its methods may overlap.
    """

    def __init__(
        self,
        model: nn.Module,
        hyper_parameters: HyperParameters,
        *,
        total_steps: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype` overrides what `hyper_parameters.train_dtype` means on this machine."""
        self._hyper = hyper_parameters
        self._total_steps = total_steps
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

    def network(self) -> ValueNetwork:
        """The weights after the last update."""
        return self._network

    @torch.no_grad()
    def values(self, batch: Batch) -> list[list[float]]:
        """One list a sequence, in the batch's order: the values of its sampled tokens' contexts."""
        found: list[list[float]] = []
        for mini in batch.mini_batches:
            rows = (
                values_T[:length].tolist()
                for forest in self._forests(mini)
                for values_T, length in zip(self._values(forest), forest.lengths_S.tolist(), strict=True)
            )
            # Forests leave out sequences without a sampled token.
            found += [
                next(rows) if sequence.num_loss_tokens else []
                for pack in mini.packs
                for sequence in pack.sequences
            ]
        return found

    def update(self, batch: Batch) -> dict[str, float]:
        """Run the optimizer updates of one step: one a mini-batch, towards the returns in the batch.

        Returns:
            Metrics under their registry names, averaged over the updates; NaN where there was none. A
            gradient that is not finite changes nothing and is counted.
        Raises:
            ValueError: a batch without returns.
        """
        sequences = (one for mini in batch.mini_batches for pack in mini.packs for one in pack.sequences)
        if any(len(one.old_values) != one.num_loss_tokens for one in sequences):
            raise ValueError("the batch has no returns: its advantages were not made with a critic")
        rate = learning_rate(
            max(0, batch.step - 1),
            self._hyper,
            total_steps=self._total_steps,
            peak=self._hyper.critic_learning_rate,
        )
        updates = [self._update_once(mini, rate) for mini in batch.mini_batches]
        return {
            **{name: _mean([update[name] for update in updates]) for name in _UPDATE_MEANS},
            "critic/num_updates": sum(update["stepped"] for update in updates),
            "critic/skipped_updates": sum(1.0 - update["stepped"] for update in updates),
            "critic/lr": rate,
        }

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
                f"{str(folder)!r} holds no critic, and PPO cannot go on without the one it had",
                fix="resume from a checkpoint of a PPO run, or start a new job with this folder as its model",
            )
        masters = read_tensors(path)
        missing = sorted(set(self._optimizer.masters) - set(masters))
        if missing:
            raise CheckpointError(f"the critic in {str(folder)!r} is of another model: no {missing[0]!r}")
        check_finite(
            f"the critic in {str(folder)!r}", masters, working=next(self._network.parameters()).dtype
        )
        state = read_tensors(folder / "trainer" / "critic_optimizer.safetensors")
        check_finite(f"the critic's optimizer in {str(folder)!r}", state)
        self._optimizer.load_state(masters, state)

    def _forests(self, mini: MiniBatch) -> list[Forest]:
        return make_forests(mini.packs, max_nodes=MAX_NODES)

    def _values(self, forest: Forest) -> Tensor:
        return self._network(forest)[forest.sequence_edges_ST]

    def _update_once(self, mini: MiniBatch, rate: float) -> dict[str, float]:
        sums = self._accumulate(mini)
        stepped, sums["critic/grad_norm"] = self._optimizer.step(
            rate, max_grad_norm=self._hyper.max_grad_norm
        )
        return {**sums, "stepped": float(stepped)}

    def _accumulate(self, mini: MiniBatch) -> dict[str, float]:
        """Sum the gradients of a mini-batch's forests into the buffers, and their metrics."""
        self._optimizer.zero_gradients()
        sums = dict.fromkeys(_UPDATE_MEANS, 0.0)
        for forest in self._forests(mini):
            values_ST = self._values(forest)
            loss, metrics = value_loss(
                values_BT=values_ST,
                old_values_BT=forest.old_values_ST,
                returns_BT=forest.returns_ST,
                # Not the forest's mask: whatever the engine said of a token, its context has a return.
                mask_BT=torch.arange(values_ST.shape[1])[None, :] < forest.lengths_S[:, None],
                clip=self._hyper.cliprange_value or None,
                num_tokens=mini.num_loss_tokens,
            )
            loss.backward()
            for name, value in {"critic/vf_loss": loss.item(), **metrics}.items():
                sums[name] += value
        return sums


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
