"""YAML or SDK call -> a job that means what it says; the unknown and out of range is refused by field path.

The names are those of Bailian's training configuration and the `dashscope` tuning model; `pipeline.config`
reads the file and reports every problem with its line. Nothing here touches a disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from strop.algorithms import Aggregation, Algorithm, algorithm, algorithm_names, bound_knobs, nearest_name
from strop.schema.function import FunctionType
from strop.schema.knob_rules import Contradiction, contradictions


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), populate_by_name=True, frozen=True)


MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
"""What a published model may be called: it becomes a folder."""


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

KlKind = Literal["k1", "k2", "k3", "k3+", "abs"]


class Scheduler(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class TrainingType(StrEnum):
    """What a job learns from: rewards, a teacher that judges the student's own tokens, answers, preferences,
    or plain text."""

    REINFORCEMENT = "reinforcement"
    PG_OPD = "pg_opd"
    SFT = "sft"
    DPO = "dpo"
    CPT = "cpt"

    @property
    def offline(self) -> bool:
        """Whether it learns from rows alone: nothing is sampled and no function runs."""
        return self in (TrainingType.SFT, TrainingType.DPO, TrainingType.CPT)


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


class HyperParameters(_Config):
    """What steers training; Bailian's names and ranges first, then ours.

    Units:
        batch_size and ppo_mini_batch_size count prompts (samples); lengths count tokens; `max_steps` stops
        before the epochs are through; `eval_steps`, `save_steps`, `lr_warmup_steps` count steps, -1 warm-up
        steps means 3 % of the run; `kl_loss_coef` and `kl_reward_coef` weigh estimates of the KL to the start
        weights, in the loss and in the reward; `entropy_coeff` weighs the entropy bonus. `dual_clip` is in
        multiples of the advantage, 0 turns it off. The thresholds of `rollout_is` and `rollout_rs` are ratios
        of old to behaviour probability. The dtype `auto` is bfloat16 where the processor multiplies it in
        hardware, else float32. `ppo_epochs` are passes over one batch; `max_num_gen_batches` rounds of
        sampling a step, the first included; `overlong_buffer_len` the last tokens of an answer's limit, 0 for
        none, and `overlong_penalty_factor` what an answer at that limit costs. `critic_warmup` counts steps
        in which the critic alone learns; `cliprange_value` is in units of the reward, 0 turns it off.
        `lora_rank` trains low-rank adapters of `target_modules` (every linear layer but the output) in place
        of the model, scaled by `lora_alpha / lora_rank`. In the offline trainings `batch_size` counts rows,
        in CPT pieces of text.
    """

    algorithm: AlgorithmName = "gspo"
    kl_loss_coef: float = Field(default=0.0, ge=0, le=10)
    learning_rate: float = Field(default=1e-6, ge=0, le=1)
    lr_scheduler_type: Scheduler = Scheduler.COSINE
    lr_warmup_steps: int = Field(default=-1, ge=-1)
    n_epochs: int = Field(default=1, ge=1, le=200)
    batch_size: int = Field(default=8, ge=1, le=100_000)
    n_rollouts: int = Field(default=8, ge=1, le=1024)
    ppo_mini_batch_size: int | None = Field(default=None, ge=1, le=100_000)
    ppo_epochs: int = Field(default=1, ge=1, le=100)
    max_length: int = Field(default=1024, ge=2, le=131_072)
    max_prompt_length: int = Field(default_factory=_half_of_max_length, ge=1, le=131_072)
    eval_steps: int = Field(default=10, ge=1, le=999_999)
    save_steps: int = Field(default=100, ge=1, le=999_999)
    save_strategy: SaveStrategy = SaveStrategy.EPOCH
    save_total_limit: int = Field(default=2, ge=1, le=200)

    seed: int = Field(default=42, ge=0, lt=2**63)
    max_steps: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, gt=0, le=10)
    max_tokens: int | None = Field(default=None, ge=1)
    clip_ratio_low: float | None = Field(default=None, gt=0, le=1)
    clip_ratio_high: float | None = Field(default=None, gt=0)
    dual_clip: float | None = Field(default=None, ge=0)
    tau_pos: float = Field(default=1.0, gt=0)
    tau_neg: float = Field(default=1.05, gt=0)
    gamma: float = Field(default=1.0, gt=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    cliprange_value: float = Field(default=0.5, ge=0)
    critic_learning_rate: float = Field(default=1e-5, ge=0, le=1)
    critic_warmup: int = Field(default=0, ge=0)
    loss_agg_mode: Aggregation | None = None
    entropy_coeff: float = Field(default=0.0, ge=0, le=10)
    kl_loss_type: KlKind = "k2"
    kl_reward_coef: float = Field(default=0.0, ge=0, le=10)
    kl_reward_type: KlKind = "k1"
    reference_kl: bool = True
    rollout_is: Literal["none", "token", "sequence"] = "none"
    rollout_is_threshold: float | None = Field(default=None, ge=1)
    rollout_rs: Literal["none", "token", "geometric"] = "none"
    rollout_rs_low: float | None = Field(default=None, gt=0, lt=1)
    rollout_rs_high: float | None = Field(default=None, gt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    freeze_embeddings: bool = False
    lora_rank: int | None = Field(default=None, ge=1, le=4096)
    lora_alpha: float = Field(default=32.0, gt=0)
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: tuple[str, ...] | None = Field(default=None, min_length=1)
    dpo_loss: DpoLoss = DpoLoss.SIGMOID
    dpo_beta: float = Field(default=0.1, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    train_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    sampling_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    filter_groups: bool | None = None
    max_num_gen_batches: int = Field(default=10, ge=1, le=1000)
    overlong_buffer_len: int | None = Field(default=None, ge=0, le=131_072)
    overlong_penalty_factor: float = Field(default=1.0, gt=0, le=100)
    truncation_policy: TruncationPolicy = TruncationPolicy.KEEP
    max_attempts: int = Field(default=3, ge=1, le=100)
    max_failure_rate: float = Field(default=0.5, gt=0, le=1)

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
        for knob in sorted((given & bound_knobs()) - chosen.knobs):
            readers = [name for name in algorithm_names() if knob in algorithm(name).knobs]
            yield f"{knob}: has no effect with {chosen.name}; it belongs to {', '.join(readers)}"
        if self.dual_clip is not None and 0 < self.dual_clip <= 1:
            yield f"dual_clip: must be above 1, or 0 for none; found {self.dual_clip}"
        for knob, needed in (("kl_loss_type", "kl_loss_coef"), ("kl_reward_type", "kl_reward_coef")):
            if knob in given and not getattr(self, needed):
                yield f"{knob}: has no effect while {needed} is 0"
        if not self.reference_kl and self.needs_reference:
            yield "reference_kl: cannot be off, a KL term needs the reference anyway"
        for knob, switch in (
            ("rollout_is_threshold", "rollout_is"),
            ("rollout_rs_low", "rollout_rs"),
            ("rollout_rs_high", "rollout_rs"),
        ):
            if knob in given and getattr(self, switch) == "none":
                yield f"{knob}: has no effect while {switch} is none"

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


class DataSource(StrEnum):
    FILE_ID = "file_id"


class DatasetConfig(_Config):
    """A file of rows: training, or validation. `file_name` is relative to the configuration file."""

    type: Literal["training", "validation"] = "training"
    data_source_type: DataSource = DataSource.FILE_ID
    file_name: str = Field(min_length=1)


class FunctionModel(_Config):
    """Where a function's code is: `pkg.mod.Class` or `path/file.py:Class`, below `zipdir`."""

    classpath: str = Field(min_length=1)
    zipdir: str = "."


class FunctionRuntime(_Config):
    """How a function runs: what one worker may use, and how many workers there are.

    Units:
        cpu: cores; memory_size, disk_size: MiB; concurrency: calls in flight; all of one worker. The
        capacities count workers: at first, at least, at most. Above a threshold, a share of what the workers
        hold, another one is started. `env` is extra environment, secret.
    """

    concurrency: int = Field(default=64, ge=1, le=10_000)
    env: dict[str, Any] = Field(default_factory=dict)
    cpu: float | None = Field(default=None, gt=0, le=1024)
    memory_size: int | None = Field(default=None, ge=64, le=2**24)
    disk_size: int | None = Field(default=None, ge=1, le=2**28)
    capacity: int | None = Field(default=None, ge=0, le=100_000)
    min_capacity: int | None = Field(default=None, ge=0, le=100_000)
    max_capacity: int | None = Field(default=None, ge=1, le=100_000)
    memory_scale_threshold: float | None = Field(default=None, gt=0, le=1)
    concurrency_scale_threshold: float | None = Field(default=None, gt=0, le=1)

    @property
    def capacities(self) -> tuple[int, int, int]:
        """(at least, at first, at most) workers, with what was left out filled in: one that stays one."""
        asked = 1 if self.capacity is None else self.capacity
        if self.min_capacity is not None:
            least = self.min_capacity
        else:
            least = asked if self.max_capacity is None else min(asked, 1)
        first = max(least, 1) if self.capacity is None else asked
        most = max(first, 1) if self.max_capacity is None else self.max_capacity
        return least, first, most

    @model_validator(mode="after")
    def _agree(self) -> Self:
        least, first, most = self.capacities
        if least > most:
            text = f"min_capacity: {least} is above max_capacity {most}"
            raise Contradiction(text, fix="make min_capacity the smaller one")
        if not least <= first <= most:
            text = f"capacity: {first} is not within min_capacity {least} and max_capacity {most}"
            raise Contradiction(text, fix="let capacity start between the two")
        for knob in ("memory_scale_threshold", "concurrency_scale_threshold"):
            if getattr(self, knob) is not None and least == most:
                text = f"{knob}: has no effect, there are always {most} workers"
                raise Contradiction(text, fix="set max_capacity above min_capacity")
        if self.memory_scale_threshold is not None and self.memory_size is None:
            text = "memory_scale_threshold: has no effect without memory_size, whose share it is"
            raise Contradiction(text, fix="set memory_size")
        return self


class FunctionConfig(_Config):
    """A rollout, reward or group-reward function. `timeout` in seconds a call; `weight` scales a reward."""

    type: FunctionType
    name: str = Field(default="", max_length=256)
    timeout: float = Field(default=600.0, gt=0)
    weight: float = Field(default=1.0, ge=0)
    fcmodel: FunctionModel
    runtime: FunctionRuntime = FunctionRuntime()

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.type is FunctionType.ROLLOUT and "weight" in self.model_fields_set:
            raise Contradiction("weight: has no effect on a rollout function; it scales rewards")
        return self

    @property
    def label(self) -> str:
        """Its name in metrics and logs: `name`, else the class's own."""
        return self.name or self.fcmodel.classpath.replace(":", ".").rsplit(".", 1)[-1]


class Resources(_Config):
    """Cloud billing units. Accepted so that a Bailian file runs as it is; on one machine they choose nothing,
    and the run says so in an event."""

    charge_type: str | None = None
    mtu_spec_code: str | None = None
    mtu_capacity: int | None = Field(default=None, ge=1)


class Training(_Config):
    """How the model is trained. `teacher_model` is named as `model` is; for `pg_opd` alone."""

    type: TrainingType | None = None
    teacher_model: str | None = Field(default=None, min_length=1)
    hyper_parameters: HyperParameters = HyperParameters()
    resources: Resources = Resources()


class FoundationModel(_Config):
    name: str = Field(min_length=1)


class JobConfig(_Config):
    """One training job, as written in `job.yaml`. `model` is a folder, a hub id or `smollm2-135m`.

    What is trained stands in `training.type` or `mode`, whichever is given; `training_type` says it.
    """

    name: str = Field(
        default="strop", min_length=1, max_length=256, validation_alias=AliasChoices("name", "job_name")
    )
    model: Annotated[FoundationModel, Field()]
    mode: TrainingType | None = None
    workspace_dir: str = "."
    tuned_model_name: str | None = Field(default=None, pattern=MODEL_NAME)
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1)
    functions: tuple[FunctionConfig, ...] = ()
    training: Training = Training()
    _origins: dict[str, str] = PrivateAttr(default_factory=dict[str, str])

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        values = cast("dict[str, Any]", data)
        model = values.get("model")
        return {**values, "model": {"name": model}} if isinstance(model, str) else values

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.mode and self.training.type and self.mode is not self.training.type:
            text = f"mode: {self.mode.value} contradicts training.type {self.training.type.value}"
            raise Contradiction(text, fix="keep one of them")
        kinds = [function.type for function in self.functions]
        for kind in (FunctionType.ROLLOUT, FunctionType.GROUP_REWARD):
            if (found := kinds.count(kind)) > 1:
                text = f"functions: at most one of type {kind.value}, found {found}"
                raise Contradiction(text, fix="keep one of them")
        labels = [function.label for function in self.functions]
        for label in labels:
            if labels.count(label) > 1:
                text = f"functions: the name {label!r} stands twice"
                raise Contradiction(text, fix="give each its own name")
        datasets = [dataset.type for dataset in self.datasets]
        if (found := datasets.count("training")) != 1:
            text = f"datasets: expected exactly one of type training, found {found}"
            raise Contradiction(text, fix="put all training rows into one file" if found else "add one")
        if (found := datasets.count("validation")) > 1:
            text = f"datasets: at most one of type validation, found {found}"
            raise Contradiction(text, fix="put all validation rows into one file")
        return self

    @property
    def origins(self) -> dict[str, str]:
        """Where each value came from, by dotted key; empty for a job that was not read from a file."""
        return dict(self._origins)

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """The same job, knowing where its values came from."""
        told = self.model_copy()
        told._origins = {**self._origins, **origins}
        return told

    @property
    def hyper_parameters(self) -> HyperParameters:
        return self.training.hyper_parameters

    @property
    def training_type(self) -> TrainingType:
        return self.training.type or self.mode or TrainingType.REINFORCEMENT

    @property
    def distils(self) -> bool:
        """Whether a teacher judges the tokens, and rewards are only measured."""
        return self.training_type is TrainingType.PG_OPD

    def functions_of(self, kind: FunctionType) -> tuple[FunctionConfig, ...]:
        return tuple(function for function in self.functions if function.type is kind)
