"""Packs -> gradients, optimizer steps, logprobs: a policy on one machine, trained on prefix trees.

What `rl.update` drives as a `PolicyTrainer`. It holds the trainable weights, their optimizer and, unless
`reference_kl` is off, the frozen start weights.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strop.config.job import HyperParameters
from strop.errors import CheckpointError
from strop.learners.local.forward import Collected, check_trainable, scored, tree_logprobs
from strop.learners.local.lora import Adapter, AdapterOptimizer
from strop.learners.local.objective import objective
from strop.learners.local.optimizer import Optimizer
from strop.learners.local.packed_trees import MAX_NODES, pack_trees
from strop.learners.precision import compute_in, working_dtype
from strop.learners.weights_file import (
    check_finite,
    has_names,
    read_tensors,
    sha256_of,
    write_model,
    write_tensors,
)
from strop.locales import msg
from strop.schema.batch import ForwardResult, LossNormalizer, OptimStep, Pack
from strop.schema.weights import WeightsRef


class LocalPolicyTrainer:
    """The trainable weights of one run.

    `model` is taken over: its parameters become the working weights, in the dtype training computes in.
    `notice` warns of a dtype that is slow here. `policy_version` counts the optimizer steps
    taken.

    Concurrency: not thread-safe; no two of its methods may overlap, nor a reader of `weights()` or of what
    `export` gave with them.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        hyper_parameters: HyperParameters,
        *,
        teacher_sha256: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype` overrides what `hyper_parameters.train_dtype` means on this machine. `teacher_sha256` is
        that of the teacher's weights, where the run has one: a run goes on with no other.

        Raises:
            ModelError: a model that the packed forward pass would not compute right, or whose weights are
                not finite in that dtype.
        """
        self._hyper = hyper_parameters
        self._tokenizer = tokenizer
        self._teacher_sha256 = teacher_sha256
        self._saved_dtype = next(model.parameters()).dtype
        chosen, self.notice = working_dtype(hyper_parameters.train_dtype)
        # Nothing here is random: no dropout, so that old logprobs and policy logprobs are one function.
        self._model = model.eval().requires_grad_(True)
        check_trainable(model)
        start = dict(model.named_parameters())
        exact = {name: weight.detach().to(_exact(weight.dtype)) for name, weight in start.items()}
        compute_in(model, dtype or chosen)
        if hyper_parameters.freeze_embeddings:
            _freeze_embeddings(model)
        self._adapter = _adapter(model, exact, hyper_parameters)
        self._reference: nn.Module | None = None
        if hyper_parameters.reference_kl:
            frozen = copy.deepcopy(model) if self._adapter is None else self._adapter.base_model()
            self._reference = frozen.requires_grad_(False)
        if self._adapter is None:
            self._optimizer = Optimizer(model, weight_decay=hyper_parameters.weight_decay)
            self._optimizer.load_state(exact, {})
        else:
            self._optimizer = AdapterOptimizer(self._adapter, weight_decay=hyper_parameters.weight_decay)
        # What is not trained is saved as it came, not as its working copy was rounded.
        self._frozen = {
            name: exact[name] for name, weight in model.named_parameters() if not weight.requires_grad
        }
        # They are in no checkpoint, and a resumed run needs them: as reference, as base, as what is frozen.
        self._start_sha256 = sha256_of(exact)
        self._named = str(getattr(model, "name_or_path", "") or "the model")
        self.policy_version = 0
        self._summed = False
        """Whether the gradients are those of the optimizer step to come."""

    def weights(self) -> nn.Module:
        """The model in training: always the weights after the last step."""
        return self._model

    @torch.no_grad()
    def score(self, packs: Sequence[Pack]) -> ForwardResult:
        """Logprobs of every sequence under the weights of now, and the entropy there."""
        return scored(self._model, pack_trees(packs, max_nodes=MAX_NODES), packs)

    @torch.no_grad()
    def score_reference(self, packs: Sequence[Pack]) -> ForwardResult:
        """The same under the frozen start weights.

        Raises:
            ValueError: the job keeps no reference.
        """
        if self._reference is None:
            raise ValueError("there is no reference: the job sets reference_kl to false")
        return scored(self._reference, pack_trees(packs, max_nodes=MAX_NODES), packs)

    def forward_backward(self, packs: Sequence[Pack], normalizer: LossNormalizer) -> ForwardResult:
        """Add the gradient of the loss of `packs` to what was summed since the last optimizer step.

        What a row does not bring of its own is this pass's: its old logprobs, at which the ratio is 1. Rows
        that bring reference logprobs are measured against them; all do where the loss has a KL term.
        """
        self._begin_sum()
        result = Collected()
        pulls_entropy = {"entropy_gradient": True} if self._hyper.entropy_coeff > 0 else {}
        for trees in pack_trees(packs, max_nodes=MAX_NODES):
            policy_E, entropies_E = tree_logprobs(self._model, trees, **pulls_entropy)
            result.add_pass(trees, policy_E.detach(), entropies_E.detach())
            rows = trees.sequence_edges_ST
            loss, metrics = objective(
                self._hyper, trees, normalizer, policy_ST=policy_E[rows], entropies_ST=entropies_E[rows]
            )
            result.add_metrics(metrics)
            loss.backward()
        return result.over(packs)

    def optim_step(self, learning_rate: float, *, max_grad_norm: float) -> OptimStep:
        """Step along the summed gradient, clipped to a global norm; what is summed next begins at 0."""
        stepped, norm = self._optimizer.step(learning_rate, max_grad_norm=max_grad_norm)
        self._summed = False
        self.policy_version += stepped
        return OptimStep(applied=stepped, grad_norm=norm)

    def export(self) -> WeightsRef:
        """The weights after the last step, as tensors of this process: not copied, and merged with any
        adapter."""
        return WeightsRef(tensors=self._model.state_dict())

    def save(self, folder: Path, *, trainer_state: bool = True) -> None:
        """Write a Hugging Face model folder and, below `trainer/`, what training needs to go on exactly.

        Weights are in the dtype that the model came in; the trainer's are the full-precision ones. With LoRA
        the folder is the merged model, `adapter/` the adapter alone in PEFT's format.
        """
        masters = self._optimizer.masters
        trained = masters if self._adapter is None else self._adapter.merged()
        write_model(folder, self._model, self._tokenizer, {**self._frozen, **trained}, self._saved_dtype)
        if self._adapter is not None:
            self._adapter.export(folder / "adapter")
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
        told = {
            "policy_version": self.policy_version,
            "start_sha256": self._start_sha256,
            "start": self._named,
            "teacher_sha256": self._teacher_sha256,
        }
        (state / "state.json").write_text(json.dumps(told))

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote. The reference stays what the learner was made with: the start
        weights, which must be those of the run that saved.

        Raises:
            CheckpointError: no trainer state, another model, other start weights, another teacher, or
                weights or an optimizer that are not finite. The learner is as it was then.
        """
        state = folder / "trainer"
        if not (state / "state.json").is_file():
            raise CheckpointError(
                msg(
                    "{folder!r} holds no trainer state: it can be served, but not resumed", folder=str(folder)
                ),
                fix=msg("resume from a checkpoint of the run, not from an exported model"),
            )
        told = json.loads((state / "state.json").read_text())
        if told["start_sha256"] != self._start_sha256:
            raise CheckpointError(
                msg(
                    "the run of {folder!r} began with other weights, those that {told!r} "
                    "had; the job's model is {named!r} now",
                    folder=str(folder),
                    told=told["start"],
                    named=self._named,
                ),
                fix=msg("restore the model as it was, or start a new job with the checkpoint as its model"),
            )
        if self._teacher_sha256 is not None and told["teacher_sha256"] != self._teacher_sha256:
            raise CheckpointError(
                msg(
                    "the run of {folder!r} learned from another teacher than the job's is now",
                    folder=str(folder),
                ),
                fix=msg("restore the teacher, or start a new job with the checkpoint as its model"),
            )
        masters = state / "masters.safetensors"
        saved = read_tensors(masters if masters.is_file() else folder)
        missing = sorted(set(self._optimizer.masters) - set(saved))
        if missing:
            raise CheckpointError(
                msg(
                    "{folder!r} is of another model: it has no {missing!r}",
                    folder=str(folder),
                    missing=missing[0],
                )
            )
        # With an adapter what is saved is added to the weights, not rounded in their place.
        working = next(self._model.parameters()).dtype if self._adapter is None else None
        check_finite(f"the model in {str(folder)!r}", saved, working=working)
        steps = read_tensors(state / "optimizer.safetensors")
        check_finite(f"the optimizer in {str(folder)!r}", steps)
        self._summed = False
        self._optimizer.load_state(saved, steps)
        torch.set_rng_state(read_tensors(state / "rng.safetensors")["torch"])
        self.policy_version = int(told["policy_version"])

    def learned(self) -> bool:
        """Whether any trained weight differs from what the model had when the run began."""
        if self._adapter is not None:  # what it adds is 0 as long as B is
            return any(bool(site.b_OR.any()) for site in self._adapter.sites.values())
        return sha256_of({**self._frozen, **self._optimizer.masters}) != self._start_sha256

    def _begin_sum(self) -> None:
        """Clear the gradients of the step before: they are kept until others are summed."""
        if not self._summed:
            self._optimizer.zero_gradients()
            self._summed = True


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _adapter(model: nn.Module, exact: dict[str, Tensor], hyper: HyperParameters) -> Adapter | None:
    if hyper.lora_rank is None:
        return None
    return Adapter(
        model,
        exact,
        rank=hyper.lora_rank,
        alpha=hyper.lora_alpha,
        dropout=hyper.lora_dropout,
        target_modules=hyper.target_modules,
        seed=hyper.seed,
    )


def _freeze_embeddings(model: nn.Module) -> None:
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):  # pyright: ignore[reportCallIssue]
        module.requires_grad_(False)
