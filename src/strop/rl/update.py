"""Batch -> the optimizer updates of one step and their metrics: what an update is, for every trainer.

`rl.loop` calls `PolicyLearner.update` and `CriticLearner.update`; all tensors are behind the `PolicyTrainer`
and `ValueTrainer` that they drive. Nothing here knows on which machine or in how many processes those work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from strop.config.job import HyperParameters
from strop.rl.correction import inside_band
from strop.rl.interfaces import PolicyTrainer, Scorer, ValueTrainer
from strop.rl.normalizer import normalized, num_bad_tokens, num_kept
from strop.rl.schedule import learning_rate
from strop.rl.update_metrics import UpdateMetrics, mean
from strop.schema.batch import Batch, LossNormalizer, MiniBatch, OptimStep, Pack, Score
from strop.schema.batch import Sequence as TokenSequence
from strop.schema.weights import WeightsRef

Rows = Sequence[Sequence[float]]
"""One row a sequence, in the order of the packs."""


class PolicyLearner:
    """The policy of a run of `total_steps`. A `teacher` judges every token in place of the advantages in the
    batch."""

    def __init__(
        self,
        trainer: PolicyTrainer,
        hyper_parameters: HyperParameters,
        *,
        total_steps: int,
        teacher: Scorer | None = None,
    ) -> None:
        self.trainer = trainer
        self._hyper = hyper_parameters
        self._total_steps = total_steps
        self._teacher = teacher

    def score(self, batch: Batch) -> list[Score]:
        """Every sequence under the weights of now and of the reference, in the order of the packs."""
        found: list[Score] = []
        for mini in batch.mini_batches:
            old = self.trainer.score(mini.packs).logprobs
            reference = self._reference(mini.packs) if self._hyper.reference_kl else [()] * len(old)
            found += [
                Score(old_logprobs=one, reference_logprobs=tuple(other))
                for one, other in zip(old, reference, strict=True)
            ]
        return found

    def update(self, batch: Batch) -> dict[str, float]:
        """Run the optimizer updates of one step, one a mini-batch.

        Old logprobs are the trainer's own at the step's start. Until the first optimizer step they are the
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
        computed = [self._computed(mini) for mini in batch.mini_batches]
        first = next((index for index, packs in enumerate(computed) if packs), len(computed))
        unknown = 0 if self._hyper.rollout_rs != "none" else first + 1
        metrics = UpdateMetrics()
        with metrics.timed("timing/s/old_log_prob"):
            late = [self._with_old(packs, metrics) if packs else packs for packs in computed[unknown:]]
        for mini, packs in zip(batch.mini_batches, [*computed[:unknown], *late], strict=True):
            metrics.add_nan_tokens(num_bad_tokens(mini.packs))
            if packs:
                self._update_once(mini, packs, rate, metrics)
        return {**metrics.values(), "actor/lr": rate}

    def learned(self) -> bool:
        """Whether any weight is another one than when the run began."""
        return self.trainer.learned()

    @property
    def policy_version(self) -> int:
        """Optimizer steps applied; after a resume it counts on."""
        return self.trainer.policy_version

    def export(self) -> WeightsRef:
        """The weights after the last update."""
        return self.trainer.export()

    def _computed(self, mini: MiniBatch) -> list[Pack]:
        """The packs that must be computed: none where the mini-batch has no gradient at all."""
        if not self._pulls_everywhere and not any(pack.has_advantage for pack in mini.packs):
            return []
        return [
            pack
            for pack in mini.packs
            if self._computes(pack) and any(sequence.num_loss_tokens for sequence in pack.sequences)
        ]

    def _computes(self, pack: Pack) -> bool:
        # What rejection drops of packs without a gradient must be known as well: it leaves the denominators.
        return self._pulls_everywhere or self._hyper.rollout_rs != "none" or pack.has_advantage

    @property
    def _pulls_everywhere(self) -> bool:
        return self._hyper.pulls_everywhere or self._teacher is not None

    def _with_old(self, packs: list[Pack], metrics: UpdateMetrics) -> list[Pack]:
        """The packs with the logprobs of the step's start."""
        result = self.trainer.score(packs)
        metrics.at_start(packs, result)
        return with_rows(packs, old_logprobs=result.logprobs)

    def _update_once(self, mini: MiniBatch, packs: list[Pack], rate: float, metrics: UpdateMetrics) -> None:
        finite = sum(num_kept(row) for row in rows_of(packs))
        packs = self._with_rejection(packs)
        kept = sum(num_kept(row) for row in rows_of(packs))
        metrics.add_rejection(1 - kept / max(finite, 1))
        if not kept:
            return
        on_policy = not any(row.old_logprobs for row in rows_of(packs))
        left_out = [pack for pack in mini.packs if not self._computes(pack)]
        weighed, normalizer = normalized(mini, packs, left_out)
        judged = self._with_reference(self._with_teacher(list(weighed)), metrics)
        result = self.trainer.forward_backward(judged, normalizer)
        if on_policy:
            metrics.at_start(packs, result)
        step = self.trainer.optim_step(rate, max_grad_norm=self._hyper.max_grad_norm)
        metrics.add_update(result, step, num_tokens=normalizer.num_tokens)

    def _with_rejection(self, packs: list[Pack]) -> list[Pack]:
        if self._hyper.rollout_rs == "none":
            return packs
        low, high = self._hyper.rs_band
        kept = [
            inside_band(self._hyper.rollout_rs, row.old_logprobs, row.sampled_behaviour, low=low, high=high)
            for row in rows_of(packs)
        ]
        return with_rows(packs, kept=kept)

    def _with_teacher(self, packs: list[Pack]) -> list[Pack]:
        if self._teacher is None:
            return packs
        return with_rows(packs, teacher_logprobs=self._teacher.score(packs).logprobs)

    def _with_reference(self, packs: list[Pack], metrics: UpdateMetrics) -> list[Pack]:
        """Reference logprobs where a term needs them or they are known anyway; else of one pack a step, which
        is enough for a curve."""
        known = all(row.reference_logprobs for row in rows_of(packs) if row.num_loss_tokens)
        if known or not self._hyper.reference_kl:
            return packs
        if self._hyper.kl_loss_coef > 0:
            return with_rows(packs, reference_logprobs=self._reference(packs))
        if metrics.has_drift:
            return packs
        return [*with_rows(packs[:1], reference_logprobs=self._reference(packs[:1])), *packs[1:]]

    def _reference(self, packs: Sequence[Pack]) -> Rows:
        return self.trainer.score_reference(packs).logprobs


class CriticLearner:
    """The critic of a run: values before an update, and the update towards the returns."""

    def __init__(self, trainer: ValueTrainer, hyper_parameters: HyperParameters, *, total_steps: int) -> None:
        self.trainer = trainer
        self._hyper = hyper_parameters
        self._total_steps = total_steps

    def values(self, batch: Batch) -> list[list[float]]:
        """One list a sequence, in the batch's order: the values of its sampled tokens' contexts."""
        return [list(row) for mini in batch.mini_batches for row in self.trainer.score(mini.packs).logprobs]

    def update(self, batch: Batch) -> dict[str, float]:
        """Run the optimizer updates of one step: one a mini-batch, towards the returns in the batch.

        Returns:
            Metrics under their registry names, averaged over the updates; NaN where there was none. A
            gradient that is not finite changes nothing and is counted.
        Raises:
            ValueError: a batch without returns.
        """
        rows = rows_of(pack for mini in batch.mini_batches for pack in mini.packs)
        if any(len(row.old_values) != row.num_loss_tokens for row in rows):
            raise ValueError("the batch has no returns: its advantages were not made with a critic")
        rate = learning_rate(
            max(0, batch.step - 1),
            self._hyper,
            total_steps=self._total_steps,
            peak=self._hyper.critic_learning_rate,
        )
        updates = [self._update_once(mini, rate) for mini in batch.mini_batches]
        found = [{**metrics, "critic/grad_norm": step.grad_norm} for metrics, step in updates]
        return {
            **{name: mean([update[name] for update in found]) for name in _CRITIC_MEANS},
            "critic/num_updates": float(sum(step.applied for _, step in updates)),
            "critic/skipped_updates": float(sum(not step.applied for _, step in updates)),
            "critic/lr": rate,
        }

    def _update_once(self, mini: MiniBatch, rate: float) -> tuple[dict[str, float], OptimStep]:
        # Every sampled token: whatever the sampler said of it, its context has a return.
        normalizer = LossNormalizer(num_tokens=mini.num_loss_tokens, num_rollouts=mini.num_rollouts)
        result = self.trainer.forward_backward(mini.packs, normalizer)
        return dict(result.metrics), self.trainer.optim_step(rate, max_grad_norm=self._hyper.max_grad_norm)


_CRITIC_MEANS = ("critic/vf_loss", "critic/vf_clipfrac", "critic/vpred_mean", "critic/grad_norm")


def rows_of(packs: Iterable[Pack]) -> Iterable[TokenSequence]:
    return (row for pack in packs for row in pack.sequences)


def with_rows(packs: Sequence[Pack], **fields: Sequence[Sequence[float]]) -> list[Pack]:
    """The packs with fields of their sequences, one value a sequence in the order of the packs, replaced."""
    columns = {name: iter(values) for name, values in fields.items()}
    return [
        replace(
            pack,
            sequences=tuple(
                replace(row, **{name: tuple(next(values)) for name, values in columns.items()})
                for row in pack.sequences
            ),
        )
        for pack in packs
    ]
