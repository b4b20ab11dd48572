"""What steers training, checked by itself -> values that mean what they say: Bailian's names and ours.

`config.job` has the job around it; `config.hyper_parameter_rules` what would contradict or do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from strop.algorithms import Aggregation, Algorithm, algorithm, algorithm_names, bound_knobs, nearest_name
from strop.config.hyper_parameter_rules import contradictions
from strop.schema.sampling import MIN_TRAINED_TEMPERATURE
from strop.schema.section import Contradiction, Section
from strop.schema.training import TrainingType


class OneOf:
    """Marks a text field whose words are known only at run time, so that errors can list them."""

    def words(self) -> tuple[str, ...]:
        return algorithm_names()


def _known_algorithm(name: str) -> str:
    if name in algorithm_names():
        return name
    near = nearest_name(name)
    raise PydanticCustomError(
        "enum",
        "expected one of {words}; found '{name}'{hint}",
        {
            "words": ", ".join(algorithm_names()),
            "name": name,
            "hint": f"; did you mean '{near}'?" if near else "",
        },
    )


AlgorithmName = Annotated[str, AfterValidator(_known_algorithm), OneOf()]

MAX_STEPS = 10_000_000
"""More than any run has."""

MAX_TARGET = 1_000_000
"""Beyond any reward or loss to aim at."""

KlKind = Literal["k1", "k2", "k3", "k3+", "abs"]


class Scheduler(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class DpoLoss(StrEnum):
    SIGMOID = "sigmoid"
    ROBUST = "robust"
    IPO = "ipo"


class SaveStrategy(StrEnum):
    STEPS = "steps"
    EPOCH = "epoch"
    NO = "no"


class TruncationPolicy(StrEnum):
    """What becomes of a rollout with an answer that its token limit cut off."""

    KEEP = "keep"
    PENALISE = "penalise"
    MASK = "mask"


def _half_of_max_length(given: dict[str, Any]) -> int:
    """512, or half of a shorter `max_length`."""
    return max(1, min(512, given.get("max_length", 1024) // 2))


class HyperParameters(Section):
    """What steers training; Bailian's names and ranges first, then ours.

    The docstring of a field is what documents and pages say of it.

    Units:
        lengths count tokens; the thresholds of `rollout_is` and `rollout_rs` are ratios of old to behaviour
        probability; `kl_loss_coef` and `kl_reward_coef` weigh estimates of the KL to the start weights.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    algorithm: AlgorithmName = "gspo"
    """The method, see algorithms.md. It sets the defaults for clipping, aggregation and dynamic sampling."""
    kl_loss_coef: float = Field(default=0.0, ge=0, le=10)
    """Weight of the KL to the start weights in the loss."""
    learning_rate: float = Field(default=1e-6, gt=0, le=1)  # of 0 nothing is ever learned
    """Peak of the learning rate."""
    lr_scheduler_type: Scheduler = Scheduler.COSINE
    """How the rate changes after the warm-up, over the planned steps."""
    lr_warmup_steps: int = Field(default=-1, ge=-1, le=MAX_STEPS)
    """Steps in which the rate rises; -1 is 3 % of the run."""
    n_epochs: int = Field(default=1, ge=1, le=200)
    """Passes over the training rows."""
    batch_size: int = Field(default=8, ge=1, le=100_000)
    """Prompts a step; in the offline trainings rows, in CPT pieces of text."""
    n_rollouts: int = Field(default=8, ge=1, le=1024)
    """Rollouts a prompt: the size of a group."""
    ppo_mini_batch_size: int | None = Field(default=None, ge=1, le=100_000)
    """Prompts an optimizer update; divides batch_size."""
    ppo_epochs: int = Field(default=1, ge=1, le=100)
    """Passes over the batch of a step."""
    max_length: int = Field(default=1024, ge=2, le=131_072)
    """Tokens of prompt and answers together."""
    max_prompt_length: int = Field(default_factory=_half_of_max_length, ge=1, le=131_072)
    """Longest prompt in tokens; longer rows are refused."""
    eval_steps: int = Field(default=10, ge=1, le=999_999)
    """Steps between validations; also before the first step and after the last."""
    save_steps: int = Field(default=100, ge=1, le=999_999)
    """Steps between checkpoints when save_strategy is steps."""
    save_strategy: SaveStrategy = SaveStrategy.EPOCH
    """When checkpoints are saved: every save_steps, at each epoch's end, or only at the end of the run."""
    save_total_limit: int = Field(default=2, ge=1, le=200)
    """Checkpoints kept. The best by validation and the newest are never removed."""

    early_stopping_target: float | None = Field(default=None, ge=-MAX_TARGET, le=MAX_TARGET)
    """End the run once validation is this good: mean@1 at least, offline the loss at most."""
    early_stopping_count: int = Field(default=1, ge=1, le=1000)
    """Validations in a row that must reach early_stopping_target, not counting the one before step 1."""
    seed: int = Field(default=42, ge=0, lt=2**63)
    """Seed of data order, sampling and adapters."""
    max_steps: int | None = Field(default=None, ge=1, le=MAX_STEPS)
    """Stop after this many steps."""
    temperature: float = Field(default=1.0, ge=MIN_TRAINED_TEMPERATURE, le=10)
    """Temperature of training rollouts; loss and entropy are computed at it, too."""
    max_tokens: int | None = Field(default=None, ge=1, le=131_072)
    """Longest answer of a turn in tokens."""
    clip_ratio_low: float | None = Field(default=None, gt=0, le=1)
    """How far the ratio may fall below 1."""
    clip_ratio_high: float | None = Field(default=None, gt=0, le=100)
    """How far the ratio may rise above 1."""
    dual_clip: float | None = Field(default=None, ge=0, le=1000)
    """Upper bound on the loss of a token with negative advantage, in multiples of that; 0 for no bound."""
    tau_pos: float = Field(default=1.0, ge=0.01, le=100)
    """SAPO: temperature of the gate where the advantage is positive."""
    tau_neg: float = Field(default=1.05, ge=0.01, le=100)
    """SAPO: temperature of the gate where the advantage is negative."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of later rewards, a sampled token."""
    lam: float = Field(default=1.0, ge=0, le=1)
    """GAE: how far advantages look ahead."""
    cliprange_value: float = Field(default=0.5, ge=0, le=1_000_000)
    """How far a value may move in a step, in units of the reward; 0 for any distance."""
    critic_learning_rate: float = Field(default=1e-5, ge=0, le=1)
    """Learning rate of the critic."""
    critic_warmup: int = Field(default=0, ge=0, le=MAX_STEPS)
    """Steps at the start in which only the critic learns."""
    loss_agg_mode: Aggregation | None = None
    """How the losses of tokens become one number."""
    entropy_coeff: float = Field(default=0.0, ge=0, le=10)
    """Weight of the entropy bonus."""
    kl_loss_type: KlKind = "k2"
    """Estimator of the KL in the loss."""
    kl_reward_coef: float = Field(default=0.0, ge=0, le=10)
    """Weight of the KL to the start weights that is taken off the reward."""
    kl_reward_type: KlKind = "k1"
    """Estimator of the KL in the reward."""
    reference_kl: bool = True
    """Measure the distance to the start weights in every run."""
    rollout_is: Literal["none", "token", "sequence"] = "none"
    """Correct for the difference of engine and learner by truncated importance weights."""
    rollout_is_threshold: float | None = Field(default=None, ge=1, le=1_000_000)
    """What such a weight is cut at."""
    rollout_rs: Literal["none", "token", "geometric"] = "none"
    """Leave out tokens, or whole sequences, on which engine and learner disagree too much."""
    rollout_rs_low: float | None = Field(default=None, gt=0, lt=1)
    """Lowest ratio that is kept."""
    rollout_rs_high: float | None = Field(default=None, gt=1, le=1_000_000)
    """Highest ratio that is kept."""
    max_grad_norm: float = Field(default=1.0, ge=1e-12, le=1_000_000_000)
    """Gradients are scaled down to this norm."""
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    """AdamW's weight decay."""
    freeze_embeddings: bool = False
    """Leave input and output embeddings as they are."""
    lora_rank: int | None = Field(default=None, ge=1, le=4096)
    """Train low-rank adapters of this rank in place of the whole model."""
    lora_alpha: float = Field(default=32.0, ge=0.001, le=65_536)
    """Adapters are scaled by lora_alpha / lora_rank."""
    lora_dropout: float = Field(default=0.0, ge=0, le=0.9)
    """Dropout before adapters, in the offline trainings."""
    target_modules: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Linear layers that get adapters."""
    dpo_loss: DpoLoss = DpoLoss.SIGMOID
    """Form of the preference loss."""
    dpo_beta: float = Field(default=0.1, ge=0.0001, le=100)
    """How tightly DPO holds the policy to its start."""
    label_smoothing: float = Field(default=0.0, ge=0, le=0.49)
    """Share of preferences taken to be wrong."""
    train_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the learner; auto is bfloat16 where the processor multiplies it in hardware."""
    sampling_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the engine; auto as above."""
    filter_groups: bool | None = None
    """Dynamic sampling: leave out groups of equal scores and sample further prompts in their place."""
    max_num_gen_batches: int = Field(default=10, ge=1, le=1000)
    """Rounds of sampling a step at most, the first included; then it trains on what was found."""
    overlong_buffer_len: int | None = Field(default=None, ge=0, le=131_072)
    """The last tokens of an answer's limit, in which length costs reward; 0 for none."""
    overlong_penalty_factor: float = Field(default=1.0, gt=0, le=100)
    """What an answer at its limit, or one cut off, loses."""
    truncation_policy: TruncationPolicy = TruncationPolicy.KEEP
    """Answers cut off by the engine: keep them, penalise them, or mask them out of the loss."""
    max_attempts: int = Field(default=3, ge=1, le=100)
    """Tries of a rollout, and of each reward call, before it has failed."""
    max_staleness: int = Field(default=0, ge=0, le=8)
    """Steps that may be sampled ahead while others are learned from; 0 samples each with the newest weights,
    and only then does a run repeat bit for bit."""
    max_failure_rate: float = Field(default=0.5, gt=0, le=1)
    """Share of a step's rollouts that may fail before the run stops; it stops anyway when all did."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if complaint := next(self._without_effect(), None):
            raise Contradiction(complaint)
        if contradiction := next(contradictions(self), None):
            raise contradiction
        return self

    def _without_effect(self) -> Iterator[str]:
        """Settings that were given and would do nothing, or contradict each other."""
        given, chosen = self.model_fields_set, self.method
        for name in sorted((given & bound_knobs()) - chosen.knobs):
            readers = [one for one in algorithm_names() if name in algorithm(one).knobs]
            yield f"{name}: has no effect with {chosen.name}; it belongs to {', '.join(readers)}"
        if self.dual_clip is not None and 0 < self.dual_clip <= 1:
            yield f"dual_clip: must be above 1, or 0 for none; found {self.dual_clip}"
        for name, needed in (("kl_loss_type", "kl_loss_coef"), ("kl_reward_type", "kl_reward_coef")):
            if name in given and not getattr(self, needed):
                yield f"{name}: has no effect while {needed} is 0"
        if not self.reference_kl and self.needs_reference:
            yield "reference_kl: cannot be off, a KL term needs the reference anyway"
        for name, switch in (
            ("rollout_is_threshold", "rollout_is"),
            ("rollout_rs_low", "rollout_rs"),
            ("rollout_rs_high", "rollout_rs"),
        ):
            if name in given and getattr(self, switch) == "none":
                yield f"{name}: has no effect while {switch} is none"

    @property
    def mini_batch_size(self) -> int:
        """Prompts in one optimizer update; the whole batch unless set."""
        return self.ppo_mini_batch_size or self.batch_size

    @property
    def method(self) -> Algorithm:
        """What the chosen algorithm is made of."""
        return algorithm(self.algorithm)

    @property
    def longest_answer(self) -> int:
        """Tokens that one answer may have; what a prompt may leave of `max_length`, unless set."""
        return self.max_tokens or self.max_length - self.max_prompt_length

    @property
    def filters_groups(self) -> bool:
        """Whether groups of equal rewards are replaced by others before training."""
        return self.method.dynamic_sampling if self.filter_groups is None else self.filter_groups

    @property
    def overlong_buffer(self) -> int:
        """Tokens before an answer's limit in which the penalty grows; 0 for none."""
        share = self.method.overlong_buffer_share
        return (
            int(self.longest_answer * share) if self.overlong_buffer_len is None else self.overlong_buffer_len
        )

    @property
    def clip_range(self) -> tuple[float, float]:
        """(low, high) distances from ratio 1; the algorithm's own unless set, (0, 0) where none is used."""
        low, high = self.method.clip_range or (0.0, 0.0)
        return self.clip_ratio_low or low, self.clip_ratio_high or high

    @property
    def dual_clip_bound(self) -> float | None:
        """The bound in use, None for none."""
        bound = self.method.dual_clip if self.dual_clip is None else self.dual_clip
        return bound or None

    @property
    def aggregation(self) -> Aggregation:
        return self.loss_agg_mode or self.method.aggregation

    @property
    def is_threshold(self) -> float:
        """What an importance weight is cut at: 2 for a token's, 5 for a whole sequence's."""
        return self.rollout_is_threshold or (5.0 if self.rollout_is == "sequence" else 2.0)

    @property
    def rs_band(self) -> tuple[float, float]:
        """Ratios that are kept: wide for single tokens (IcePop, arXiv:2510.18855), tight for the mean over a
        sequence."""
        low, high = (0.99, 1.01) if self.rollout_rs == "geometric" else (0.5, 5.0)
        return self.rollout_rs_low or low, self.rollout_rs_high or high

    @property
    def needs_reference(self) -> bool:
        """Whether a term of loss or reward is made from the reference's logprobs."""
        return self.kl_loss_coef > 0 or self.kl_reward_coef > 0

    @property
    def pulls_everywhere(self) -> bool:
        """Whether sequences of advantage 0 have a gradient too."""
        return self.kl_loss_coef > 0 or self.entropy_coeff > 0


_OF_ROWS = frozenset(
    {
        "learning_rate",
        "lr_scheduler_type",
        "lr_warmup_steps",
        "n_epochs",
        "batch_size",
        "max_length",
        "eval_steps",
        "early_stopping_target",
        "early_stopping_count",
        "save_steps",
        "save_strategy",
        "save_total_limit",
        "seed",
        "max_steps",
        "max_grad_norm",
        "weight_decay",
        "freeze_embeddings",
        "train_dtype",
        "lora_rank",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
    }
)
"""What an update needs wherever its rows come from."""
_OF_PREFERENCES = frozenset({"dpo_loss", "dpo_beta", "label_smoothing"})
_OF_REWARDS = frozenset(
    {
        "kl_loss_coef",
        "kl_loss_type",
        "kl_reward_coef",
        "kl_reward_type",
        "gamma",
        "lam",
        "cliprange_value",
        "critic_learning_rate",
        "critic_warmup",
        "filter_groups",
        "max_num_gen_batches",
        "overlong_buffer_len",
        "overlong_penalty_factor",
    }
)
"""What shapes rewards or holds the policy to its start: in distillation the teacher does both."""


def effective_keys(kind: TrainingType) -> frozenset[str]:
    """The hyper-parameters that do something in a training of this type.

    >>> sorted(effective_keys(TrainingType.REINFORCEMENT) - effective_keys(TrainingType.PG_OPD))[:2]
    ['cliprange_value', 'critic_learning_rate']
    >>> sorted(effective_keys(TrainingType.DPO) - effective_keys(TrainingType.SFT))
    ['dpo_beta', 'dpo_loss', 'label_smoothing']
    """
    match kind:
        case TrainingType.SFT | TrainingType.CPT:
            return _OF_ROWS
        case TrainingType.DPO:
            return _OF_ROWS | _OF_PREFERENCES
        case TrainingType.PG_OPD:
            return frozenset(HyperParameters.model_fields) - _OF_PREFERENCES - _OF_REWARDS
        case TrainingType.REINFORCEMENT:
            return frozenset(HyperParameters.model_fields) - _OF_PREFERENCES
