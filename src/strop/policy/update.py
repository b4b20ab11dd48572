"""Batch -> new weights and the metrics of the step: the policy update.

`pipeline.loop` calls it through its `Learner` port; the engine copies its weights after each update. It holds
the trainable weights, their optimizer and, unless `reference_kl` is off, the frozen start weights.
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
from strop.policy.forest import MAX_NODES, Forest, make_forests
from strop.policy.forward import check_trainable, forest_logprobs
from strop.policy.lora import Adapter, AdapterOptimizer
from strop.policy.measures import StepMeasures
from strop.policy.objective import kept_tokens, objective
from strop.policy.optimizer import Optimizer
from strop.policy.precision import compute_in, working_dtype
from strop.policy.schedule import learning_rate
from strop.policy.share import Share, num_bad_tokens, shares
from strop.policy.teacher import Teacher
from strop.policy.weights_file import (
    check_finite,
    has_names,
    read_tensors,
    sha256_of,
    write_model,
    write_tensors,
)
from strop.schema.batch import Batch, MiniBatch, Pack, Score
from strop.schema.config import HyperParameters


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
        teacher: Teacher | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype` overrides what `hyper_parameters.train_dtype` means on this machine. A `teacher` judges
        every token in place of the advantages in the batch.

        Raises:
            ModelError: a model that the packed forward pass would not compute right, or whose weights are
                not finite in that dtype.
        """
        self._hyper = hyper_parameters
        self._total_steps = total_steps
        self._tokenizer = tokenizer
        self._teacher = teacher
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

    def weights(self) -> nn.Module:
        """The model that the engine copies from: always the weights after the last update."""
        return self._model

    @torch.no_grad()
    def score(self, batch: Batch) -> list[Score]:
        """Logprobs of every sequence under the weights of now and of the reference, in the packs' order."""
        found: list[Score] = []
        for mini in batch.mini_batches:
            for forest in make_forests(mini.packs, max_nodes=MAX_NODES):
                rows = forest.sequence_edges_ST
                old_ST = forest_logprobs(self._model, forest)[0][rows]
                reference_ST = self._reference_logprobs(forest)
                for index, length in enumerate(forest.lengths_S.tolist()):
                    reference = () if reference_ST is None else tuple(reference_ST[index, :length].tolist())
                    old = tuple(old_ST[index, :length].tolist())
                    found.append(Score(old_logprobs=old, reference_logprobs=reference))
        sampled = iter(found)  # forests leave out sequences without a sampled token
        packs = (pack for mini in batch.mini_batches for pack in mini.packs)
        sequences = (sequence for pack in packs for sequence in pack.sequences)
        return [
            next(sampled) if sequence.num_loss_tokens else Score(old_logprobs=()) for sequence in sequences
        ]

    def update(self, batch: Batch) -> dict[str, float]:
        """Run the optimizer updates of one step.

        Old logprobs are the learner's own at the step's start. Until the first optimizer step they are the
        policy logprobs of that very pass, so that the ratio is exactly 1; later mini-batches get a pass of
        their own first, and with rejection every mini-batch does, because it must be known before any
        backward pass what counts. Packs whose advantages are all 0 have no gradient and are not computed,
        unless a KL loss or an entropy bonus pulls at them: entropy, mismatch and drift are means over the
        tokens that were computed. Without a KL term the drift from the reference is measured on the step's
        first pack alone.

        Returns:
            Metrics under their registry names; NaN for a mean over nothing. A mini-batch without any gradient
            makes no optimizer step. Without a step the weights are unchanged.
        """
        rate = learning_rate(max(0, batch.step - 1), self._hyper, total_steps=self._total_steps)
        forests = [self._forests(mini) for mini in batch.mini_batches]
        measures = StepMeasures()
        first = next((index for index, found in enumerate(forests) if found), len(forests))
        known_late = 0 if self._hyper.rollout_rs != "none" else first + 1
        old: list[list[Tensor | None]] = [[None for _ in found] for found in forests[:known_late]]
        with measures.timed("timing/s/old_log_prob"):
            old += [
                [self._old_logprobs(forest, measures) for forest in found] for found in forests[known_late:]
            ]
        for mini, found, known in zip(batch.mini_batches, forests, old, strict=True):
            measures.add_nan_tokens(num_bad_tokens(mini))
            if found:
                self._update_once(mini, found, known, rate, measures)
        return {**measures.values(), "actor/lr": rate}

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
            "teacher_sha256": self._teacher.sha256 if self._teacher is not None else None,
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
                f"{str(folder)!r} holds no trainer state: it can be served, but not resumed",
                fix="resume from a checkpoint of the run, not from an exported model",
            )
        told = json.loads((state / "state.json").read_text())
        if told["start_sha256"] != self._start_sha256:
            raise CheckpointError(
                f"the run of {str(folder)!r} began with other weights, those that {told['start']!r} had; "
                f"the job's model is {self._named!r} now",
                fix="restore the model as it was, or start a new job with the checkpoint as its model",
            )
        if self._teacher is not None and told["teacher_sha256"] != self._teacher.sha256:
            raise CheckpointError(
                f"the run of {str(folder)!r} learned from another teacher than the job's is now",
                fix="restore the teacher, or start a new job with the checkpoint as its model",
            )
        masters = state / "masters.safetensors"
        saved = read_tensors(masters if masters.is_file() else folder)
        missing = sorted(set(self._optimizer.masters) - set(saved))
        if missing:
            raise CheckpointError(f"{str(folder)!r} is of another model: it has no {missing[0]!r}")
        # With an adapter what is saved is added to the weights, not rounded in their place.
        working = next(self._model.parameters()).dtype if self._adapter is None else None
        check_finite(f"the model in {str(folder)!r}", saved, working=working)
        steps = read_tensors(state / "optimizer.safetensors")
        check_finite(f"the optimizer in {str(folder)!r}", steps)
        self._optimizer.load_state(saved, steps)
        torch.set_rng_state(read_tensors(state / "rng.safetensors")["torch"])
        self.policy_version = int(told["policy_version"])

    def learned(self) -> bool:
        """Whether any trained weight is another one than the model had when the run began."""
        if self._adapter is not None:  # what it adds is 0 as long as B is
            return any(bool(site.b_OR.any()) for site in self._adapter.sites.values())
        return sha256_of({**self._frozen, **self._optimizer.masters}) != self._start_sha256

    def _forests(self, mini: MiniBatch) -> list[Forest]:
        """What must be computed of a mini-batch: nothing where it has no gradient at all."""
        if not self._pulls_everywhere and not any(pack.has_advantage for pack in mini.packs):
            return []
        return make_forests([pack for pack in mini.packs if self._computes(pack)], max_nodes=MAX_NODES)

    def _computes(self, pack: Pack) -> bool:
        # What rejection drops of packs without a gradient must be known as well: it leaves the denominators.
        everything = self._pulls_everywhere or self._hyper.rollout_rs != "none"
        return everything or pack.has_advantage

    @property
    def _pulls_everywhere(self) -> bool:
        return self._hyper.pulls_everywhere or self._teacher is not None

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
        masks = [kept_tokens(self._hyper, forest, old_E) for forest, old_E in zip(forests, old, strict=True)]
        kept = sum(int(mask.sum()) for mask in masks)
        measures.add_rejection(1 - kept / max(sum(forest.num_loss_tokens for forest in forests), 1))
        if not kept:
            return
        left_out = [pack for pack in mini.packs if not self._computes(pack)]
        parts = shares(mini, forests, masks, left_out)
        self._accumulate(forests, old, parts, measures)
        stepped, norm = self._optimizer.step(rate, max_grad_norm=self._hyper.max_grad_norm)
        self.policy_version += stepped
        measures.end_update(stepped=stepped, grad_norm=norm, num_tokens=parts[0].num_tokens)

    def _accumulate(
        self,
        forests: Sequence[Forest],
        old: Sequence[Tensor | None],
        parts: Sequence[Share],
        measures: StepMeasures,
    ) -> None:
        """Sum the gradients of an update's forests into the buffers."""
        self._optimizer.zero_gradients()
        pulls_entropy = {"entropy_gradient": True} if self._hyper.entropy_coeff > 0 else {}
        for forest, old_E, share in zip(forests, old, parts, strict=True):
            policy_E, entropies_E = forest_logprobs(self._model, forest, **pulls_entropy)
            if old_E is None:
                old_E = policy_E.detach()
                measures.at_start(forest, old_E, entropies_E.detach())
            rows = forest.sequence_edges_ST
            policy_ST = policy_E[rows]
            reference_ST = self._wanted_reference(forest, measures)
            told: dict[str, float] = {}
            if self._teacher is not None:
                forest, told = self._teacher.judged(
                    forest, old_E[rows], share.mask_ST, num_tokens=share.num_tokens
                )
            loss, metrics = objective(
                self._hyper,
                forest,
                share,
                policy_ST=policy_ST,
                old_ST=old_E[rows],
                entropies_ST=entropies_E[rows],
                reference_ST=reference_ST,
            )
            measures.add_loss(metrics | told, num_tokens=int(share.mask_ST.sum()))
            if reference_ST is not None:
                rows, longest = reference_ST.shape
                known = slice(rows), slice(longest)
                measures.add_drift(share.mask_ST[known], policy_ST.detach()[known], reference_ST)
            loss.backward()

    def _wanted_reference(self, forest: Forest, measures: StepMeasures) -> Tensor | None:
        """Reference logprobs where a term needs them or they are known anyway; else of one pack a step, which
        is enough for a curve."""
        if self._hyper.kl_loss_coef > 0 or forest.reference_logprobs_ST is not None:
            return self._reference_logprobs(forest)
        return None if measures.has_drift else self._reference_logprobs(forest.first_pack())

    @torch.no_grad()
    def _reference_logprobs(self, forest: Forest) -> Tensor | None:
        if forest.reference_logprobs_ST is not None:
            return forest.reference_logprobs_ST
        if self._reference is None:
            return None
        return forest_logprobs(self._reference, forest)[0][forest.sequence_edges_ST]


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
