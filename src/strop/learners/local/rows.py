"""Packs of rows -> gradients: SFT, continued pre-training and DPO.

One objective for all three: the weighted mean over taught tokens of their negative logprob, plus the mean DPO
loss over preference pairs; a row brings what it has. `rl.offline` drives it as a `RowTrainer`. Weights,
optimizer, checkpoints and adapters are those of `learners.local.policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from strop.config.job import DpoLoss, HyperParameters
from strop.learners.local.forward import Collected, tree_logprobs
from strop.learners.local.packed_trees import MAX_NODES, PackedTrees, pack_trees
from strop.learners.local.policy import LocalPolicyTrainer
from strop.learners.losses.dpo import dpo_loss
from strop.schema.batch import ForwardResult, LossNormalizer, Pack

Report = Callable[[int, int], None]
"""Told (done, total) packs; what it raises ends the work."""

_Said = tuple[tuple[int, ...], tuple[bool, ...]]
"""Tokens and mask of an answer in its context. Not its id: rows of two files may share theirs."""


class LocalRowTrainer(LocalPolicyTrainer):
    """The trainable weights of one offline run."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        hyper_parameters: HyperParameters,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """As `learners.local.policy.LocalPolicyTrainer`.

        Side effects:
            With `lora_dropout` it seeds torch's own generator: what is dropped follows from the job's seed.
        """
        # What DPO wants of a reference is remembered, not computed again: no second model is kept.
        hyper = hyper_parameters.model_copy(update={"reference_kl": False})
        super().__init__(model, tokenizer, hyper, dtype=dtype)
        if hyper_parameters.lora_dropout > 0:
            torch.manual_seed(hyper_parameters.seed)
        self._remembered: dict[_Said, Tensor] = {}

    @torch.no_grad()
    def remember_reference(self, packs: Sequence[Pack], report: Report | None = None) -> None:
        """Compute the reference logprob of every answer that is compared, once, with the weights of now.

        They must be the start weights: call it before the first step and before `load`.
        """
        for group, trees in _micro_batches([pack for pack in packs if pack.pairs], report):
            logprobs_S = self._answer_logprobs(trees, tree_logprobs(self._model, trees)[0])
            self._remembered |= dict(zip(_said(group), logprobs_S, strict=True))

    def forward_backward(self, packs: Sequence[Pack], normalizer: LossNormalizer) -> ForwardResult:
        """Add the gradient of the loss of `packs` to what was summed since the last optimizer step."""
        self._begin_sum()
        found = Collected()
        with nullcontext() if self._adapter is None else self._adapter.dropping():
            for group, trees in _micro_batches(packs):
                loss, metrics = self._part(group, trees, normalizer, training=True)
                loss.backward()
                found.add_metrics(metrics)
        return ForwardResult(metrics=found.metrics)

    @torch.no_grad()
    def evaluate(
        self, packs: Sequence[Pack], normalizer: LossNormalizer, report: Report | None = None
    ) -> ForwardResult:
        """The same loss and metrics on rows that are not trained on."""
        found = Collected()
        for group, trees in _micro_batches(packs, report):
            found.add_metrics(self._part(group, trees, normalizer, training=False)[1])
        return ForwardResult(metrics=found.metrics)

    def _part(
        self, group: Sequence[Pack], trees: PackedTrees, whole: LossNormalizer, *, training: bool
    ) -> tuple[Tensor, dict[str, float]]:
        """These trees' part of the loss and of its metrics: the parts add up to the whole."""
        dropped = training and self._adapter is not None and self._adapter.dropout > 0
        policy_E, _ = tree_logprobs(self._model, trees, as_module=dropped)
        rows_ST = torch.where(trees.mask_ST, policy_E[trees.sequence_edges_ST], 0.0)
        loss, found = policy_E.sum() * 0.0, {}
        if whole.num_tokens:
            tokens = -(rows_ST.sum(-1) * trees.weights_S).sum() / whole.num_tokens
            loss, found["lm/loss"] = loss + tokens, float(tokens.detach())
        if whole.num_pairs:
            pairs, metrics = self._pair_loss(group, self._answer_logprobs(trees, policy_E), whole.num_pairs)
            loss, found = loss + pairs, found | metrics
        return loss, {**found, "actor/loss": float(loss.detach())}

    def _pair_loss(
        self, group: Sequence[Pack], policy_S: Tensor, num_pairs: int
    ) -> tuple[Tensor, dict[str, float]]:
        chosen, rejected = _pair_rows(group)
        return dpo_loss(
            self._hyper.dpo_loss.value,
            policy_chosen_logprobs_P=policy_S[chosen],
            policy_rejected_logprobs_P=policy_S[rejected],
            reference_chosen_logprobs_P=self._reference_of(group, chosen).to(policy_S),
            reference_rejected_logprobs_P=self._reference_of(group, rejected).to(policy_S),
            beta=self._hyper.dpo_beta,
            label_smoothing=self._hyper.label_smoothing,
            num_pairs=num_pairs,
        )

    def _reference_of(self, group: Sequence[Pack], rows: Sequence[int]) -> Tensor:
        """What is remembered of these rows of the trees; rows that are compared with none have nothing."""
        said = _said(group)
        return torch.stack([self._remembered[said[row]] for row in rows]) if rows else torch.zeros(0)

    def _answer_logprobs(self, trees: PackedTrees, logprobs_E: Tensor) -> Tensor:
        """(S,) what the DPO losses compare: sums over an answer's tokens, for IPO means."""
        rows_ST = torch.where(trees.mask_ST, logprobs_E[trees.sequence_edges_ST], 0.0)
        sums_S = rows_ST.sum(-1)
        return sums_S / trees.mask_ST.sum(-1) if self._hyper.dpo_loss is DpoLoss.IPO else sums_S


def _said(group: Sequence[Pack]) -> list[_Said]:
    return [(sequence.token_ids, sequence.loss_mask) for pack in group for sequence in pack.sequences]


def _micro_batches(
    packs: Sequence[Pack], report: Report | None = None
) -> Iterator[tuple[list[Pack], PackedTrees]]:
    """Join packs, in order, into micro-batches of a bounded number of nodes. No row is cut: pairs stay
    together. `report` hears of each micro-batch once its user comes for the next.

    Every sequence of a pack must teach a token, so that the rows of the trees are the sequences of its packs.
    """
    group: list[Pack] = []
    done = 0
    for pack in packs:
        if group and _nodes([*group, pack]) > MAX_NODES:
            yield group, _one_micro_batch(group)
            done, group = done + len(group), []
            if report is not None:
                report(done, len(packs))
        group.append(pack)
    if group:
        yield group, _one_micro_batch(group)
        if report is not None:
            report(len(packs), len(packs))


def _one_micro_batch(group: Sequence[Pack]) -> PackedTrees:
    [trees] = pack_trees(group, max_nodes=_nodes(group))
    return trees


def _nodes(group: Sequence[Pack]) -> int:
    return sum(len(pack.token_ids) for pack in group)


def _pair_rows(group: Sequence[Pack]) -> tuple[list[int], list[int]]:
    """Rows of the preferred and of the rejected answers in the trees of `group`."""
    chosen: list[int] = []
    rejected: list[int] = []
    start = 0
    for pack in group:
        chosen += [start + better for better, _ in pack.pairs]
        rejected += [start + worse for _, worse in pack.pairs]
        start += len(pack.sequences)
    return chosen, rejected
