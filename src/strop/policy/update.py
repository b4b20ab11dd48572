"""Batch -> new weights and the metrics of the step: the policy update.

`pipeline.loop` calls it through its `Learner` port; the engine copies its weights after each update. It holds
the trainable weights, their optimizer and, with a KL loss, the frozen start weights.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strop.errors import CheckpointError
from strop.policy.forest import Forest, make_forests
from strop.policy.forward import check_trainable, forest_logprobs
from strop.policy.loss import aggregate, kl, policy_loss
from strop.policy.measures import StepMeasures
from strop.policy.optimizer import Optimizer
from strop.policy.precision import working_dtype
from strop.policy.schedule import learning_rate
from strop.policy.weights_file import has_names, read_tensors, sha256_of, write_model, write_tensors
from strop.schema.batch import Batch, MiniBatch
from strop.schema.config import Algorithm, HyperParameters

# Nodes in one forward and backward pass, unless one sequence is longer. Twice as many ran 3 % faster for
# SmolLM2-135M on two cores and took 0.8 GB more for activations.
_MAX_NODES = 768
# Dual clip: what a token of negative advantage may cost at most, in multiples of it (arXiv:1912.09729).
_DUAL_CLIP = 3.0
# A mean over rollouts of the mean over their tokens, as in both papers (arXiv:2402.03300, arXiv:2507.18071).
_AGGREGATION = "seq-mean-token-mean"


class Learner:
    """The trainable weights of one run.

    `model` is taken over: its parameters become the working weights, in the dtype training computes in.
    `notice` warns of a dtype that is slow here. `policy_version` counts the optimizer steps
    taken.

    Concurrency: not thread-safe; `update`, `save` and `load` must not overlap, nor a reader of `weights()`
    with them.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        hyper_parameters: HyperParameters,
        *,
        total_steps: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype` overrides what `hyper_parameters.train_dtype` means on this machine.

        Raises:
            ModelError: a model that the packed forward pass would not compute right.
        """
        self._hyper = hyper_parameters
        self._total_steps = total_steps
        self._tokenizer = tokenizer
        self._saved_dtype = next(model.parameters()).dtype
        chosen, self.notice = working_dtype(hyper_parameters.train_dtype)
        # Nothing here is random: no dropout, so that old logprobs and policy logprobs are one function.
        self._model = model.eval().requires_grad_(True)
        check_trainable(model)
        start = dict(model.named_parameters())
        exact = {name: weight.detach().to(_exact(weight.dtype)) for name, weight in start.items()}
        model.to(dtype or chosen)
        if hyper_parameters.freeze_embeddings:
            _freeze_embeddings(model)
        self._reference: nn.Module | None = None
        if hyper_parameters.kl_loss_coef > 0:
            self._reference = copy.deepcopy(model).requires_grad_(False)
        self._optimizer = Optimizer(model, weight_decay=hyper_parameters.weight_decay)
        self._optimizer.load_state(exact, {})
        # What is not trained is saved as it came, not as its working copy was rounded.
        self._frozen = {
            name: exact[name] for name, weight in model.named_parameters() if not weight.requires_grad
        }
        # Neither is in a checkpoint: a resumed run must find in the model what this one did.
        unchanged = exact if self._reference is not None else self._frozen
        self._start_sha256 = sha256_of(unchanged) if unchanged else None
        self.policy_version = 0

    def weights(self) -> nn.Module:
        """The model that the engine copies from: always the weights after the last update."""
        return self._model

    def update(self, batch: Batch) -> dict[str, float]:
        """Run the optimizer updates of one step.

        Old logprobs are the learner's own at the step's start. Until the first optimizer step they are the
        policy logprobs of that very pass, so that the ratio is exactly 1; later mini-batches get a pass of
        their own first. Packs whose advantages are all 0 have no gradient and are not computed, unless a KL
        loss pulls at them: entropy, mismatch and drift are means over the tokens that were computed.

        Returns:
            Metrics under their registry names; NaN for a mean over nothing. A mini-batch without any gradient
            makes no optimizer step. Without a step the weights are unchanged.
        """
        rate = learning_rate(max(0, batch.step - 1), self._hyper, total_steps=self._total_steps)
        forests = [self._forests(mini) for mini in batch.mini_batches]
        measures = StepMeasures(with_reference=self._reference is not None)
        first = next((index for index, found in enumerate(forests) if found), len(forests))
        old: list[list[Tensor | None]] = [[None for _ in found] for found in forests[: first + 1]]
        with measures.timed("timing/s/old_log_prob"):
            old += [
                [self._old_logprobs(forest, measures) for forest in found] for found in forests[first + 1 :]
            ]
        for mini, found, known in zip(batch.mini_batches, forests, old, strict=True):
            if found:
                self._update_once(mini, found, known, rate, measures)
        return {**measures.values(), "actor/lr": rate}

    def save(self, folder: Path, *, trainer_state: bool = True) -> None:
        """Write a Hugging Face model folder and, below `trainer/`, what training needs to go on exactly.

        Weights are in the dtype that the model came in; the trainer's are the full-precision ones.
        """
        masters = self._optimizer.masters
        write_model(folder, self._model, self._tokenizer, {**self._frozen, **masters}, self._saved_dtype)
        if not trainer_state:
            return
        state = folder / "trainer"
        state.mkdir()
        # Where the model's own file holds the master weights already, they are not written twice.
        exact = all(weight.dtype == self._saved_dtype for weight in masters.values())
        if not (exact and has_names(folder, set(masters))):
            write_tensors(state / "masters.safetensors", masters)
        write_tensors(state / "optimizer.safetensors", self._optimizer.state())
        write_tensors(state / "rng.safetensors", {"torch": torch.get_rng_state()})
        told = {"policy_version": self.policy_version, "start_sha256": self._start_sha256}
        (state / "state.json").write_text(json.dumps(told))

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote. The reference stays what the learner was made with: the start
        weights, which must be those of the run that saved.

        Raises:
            CheckpointError: no trainer state, another model, or other start weights.
        """
        state = folder / "trainer"
        if not (state / "state.json").is_file():
            raise CheckpointError(
                f"{str(folder)!r} holds no trainer state: it can be served, but not resumed",
                fix="resume from a checkpoint of the run, not from an exported model",
            )
        told = json.loads((state / "state.json").read_text())
        if told["start_sha256"] != self._start_sha256:
            raise CheckpointError(
                f"the run of {str(folder)!r} began with other weights: its KL reference or frozen weights are "
                "not those of the model that is named now",
                fix="restore the model as it was, or start a new job with the checkpoint's folder as its model",
            )
        masters = state / "masters.safetensors"
        saved = read_tensors(masters if masters.is_file() else folder)
        missing = sorted(set(self._optimizer.masters) - set(saved))
        if missing:
            raise CheckpointError(f"{str(folder)!r} is of another model: it has no {missing[0]!r}")
        self._optimizer.load_state(saved, read_tensors(state / "optimizer.safetensors"))
        torch.set_rng_state(read_tensors(state / "rng.safetensors")["torch"])
        self.policy_version = int(told["policy_version"])

    def _forests(self, mini: MiniBatch) -> list[Forest]:
        """The forests of a mini-batch that have a gradient."""
        packs = [
            pack
            for pack in mini.packs
            if self._reference is not None or any(sequence.advantage for sequence in pack.sequences)
        ]
        return make_forests(packs, max_nodes=_MAX_NODES)

    @torch.no_grad()
    def _old_logprobs(self, forest: Forest, measures: StepMeasures) -> Tensor | None:
        old_E, entropies_E = forest_logprobs(self._model, forest)
        measures.at_start(forest, old_E, entropies_E)
        return old_E

    def _update_once(
        self,
        mini: MiniBatch,
        forests: Sequence[Forest],
        old: Sequence[Tensor | None],
        rate: float,
        measures: StepMeasures,
    ) -> None:
        self._optimizer.zero_gradients()
        for forest, old_E in zip(forests, old, strict=True):
            policy_E, entropies_E = forest_logprobs(self._model, forest)
            if old_E is None:
                old_E = policy_E.detach()
                measures.at_start(forest, old_E, entropies_E)
            loss = self._loss(mini, forest, policy_E, old_E, measures)
            loss.backward()
        stepped, norm = self._optimizer.step(rate, max_grad_norm=self._hyper.max_grad_norm)
        self.policy_version += stepped
        measures.end_update(stepped=stepped, grad_norm=norm)

    def _loss(
        self, mini: MiniBatch, forest: Forest, policy_E: Tensor, old_E: Tensor, measures: StepMeasures
    ) -> Tensor:
        """This forest's part of the mini-batch's loss: the parts add up to the whole."""
        rows = forest.sequence_edges_ST
        policy_ST = policy_E[rows]
        low, high = self._hyper.clip_range
        grpo = self._hyper.algorithm is Algorithm.GRPO
        whole = {
            "weights_B": forest.weights_S,
            "num_tokens": mini.num_loss_tokens,
            "num_rows": mini.num_rollouts,
        }
        loss, metrics = policy_loss(
            "ppo" if grpo else "gspo",
            policy_logprobs_BT=policy_ST,
            old_logprobs_BT=old_E[rows],
            advantages_BT=forest.advantages_S[:, None],
            mask_BT=forest.mask_ST,
            clip_low=low,
            clip_high=high,
            dual_clip=_DUAL_CLIP if grpo else None,
            aggregation=_AGGREGATION,
            **whole,
        )
        measures.add_policy(forest, loss.item(), metrics, num_tokens=mini.num_loss_tokens)
        if self._reference is None:
            return loss
        with torch.no_grad():
            reference_ST = forest_logprobs(self._reference, forest)[0][rows]
        kl_loss = aggregate(kl("k2", policy_ST, reference_ST), forest.mask_ST, _AGGREGATION, **whole)
        measures.add_reference(
            forest, kl_loss.item(), policy_ST.detach(), reference_ST, self._hyper.kl_loss_coef
        )
        return loss + self._hyper.kl_loss_coef * kl_loss


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _freeze_embeddings(model: nn.Module) -> None:
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):  # pyright: ignore[reportCallIssue]
        module.requires_grad_(False)
