"""YAML or SDK call -> a job that means what it says; the unknown and out of range is refused by field path.

The names are those of Bailian's training configuration and the `dashscope` tuning model; `pipeline.config`
reads the file and reports every problem with its line. Nothing here touches a disk.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from strop.schema.function import FunctionType


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), populate_by_name=True, frozen=True)


MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
"""What a published model may be called: it becomes a folder."""


class Algorithm(StrEnum):
    GSPO = "gspo"
    GRPO = "grpo"


class Scheduler(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class TrainingType(StrEnum):
    """What a job does: learn from rewards, from answers, from preferences, or from plain text."""

    REINFORCEMENT = "reinforcement"
    SFT = "sft"
    DPO = "dpo"
    CPT = "cpt"

    @property
    def offline(self) -> bool:
        """Whether it learns from rows alone: nothing is sampled and no function runs."""
        return self is not TrainingType.REINFORCEMENT


class DpoLoss(StrEnum):
    SIGMOID = "sigmoid"
    ROBUST = "robust"
    IPO = "ipo"


class SaveStrategy(StrEnum):
    STEPS = "steps"
    EPOCH = "epoch"
    NO = "no"


def _half_of_max_length(given: dict[str, Any]) -> int:
    """512, or half of a shorter `max_length`."""
    return max(1, min(512, given.get("max_length", 1024) // 2))


class HyperParameters(_Config):
    """What steers training; Bailian's names and ranges first, then ours.

    Units:
        batch_size and ppo_mini_batch_size count prompts (samples); lengths count tokens; `max_steps` stops
        before the epochs are through; `eval_steps`, `save_steps`, `lr_warmup_steps` count steps, -1 warm-up
        steps means 3 % of the run; `kl_loss_coef` weighs the k2 estimator of the KL to the start weights. The
        dtype `auto` is bfloat16 where the processor multiplies it in hardware, else float32. `lora_rank` trains
        low-rank adapters of `target_modules` (every linear layer but the output) instead of the model, scaled
        by `lora_alpha / lora_rank`. In the offline trainings `batch_size` counts rows, in CPT pieces of text.
    """

    algorithm: Algorithm = Algorithm.GSPO
    kl_loss_coef: float = Field(default=0.0, ge=0, le=10)
    learning_rate: float = Field(default=1e-6, ge=0, le=1)
    lr_scheduler_type: Scheduler = Scheduler.COSINE
    lr_warmup_steps: int = Field(default=-1, ge=-1)
    n_epochs: int = Field(default=1, ge=1, le=200)
    batch_size: int = Field(default=8, ge=1, le=100_000)
    n_rollouts: int = Field(default=8, ge=2, le=1024)
    ppo_mini_batch_size: int | None = Field(default=None, ge=1, le=100_000)
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
    clip_ratio_low: float | None = Field(default=None, gt=0, lt=1)
    clip_ratio_high: float | None = Field(default=None, gt=0)
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
    max_attempts: int = Field(default=3, ge=1, le=100)
    max_failure_rate: float = Field(default=0.5, gt=0, le=1)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.max_prompt_length >= self.max_length:
            raise ValueError(
                f"max_prompt_length ({self.max_prompt_length}) must be below max_length ({self.max_length}): "
                "the difference is what the model may answer with"
            )
        if self.mini_batch_size > self.batch_size or self.batch_size % self.mini_batch_size:
            raise ValueError(
                f"ppo_mini_batch_size ({self.mini_batch_size} prompts) must divide "
                f"batch_size ({self.batch_size} prompts)"
            )
        low, high = self.clip_range
        if low > high:
            raise ValueError(f"clip_ratio_low ({low}) must not exceed clip_ratio_high ({high})")
        if self.lora_rank is None:
            for key in ("lora_alpha", "lora_dropout", "target_modules"):
                if key in self.model_fields_set:
                    raise ValueError(f"{key}: has no effect without lora_rank")
        elif self.freeze_embeddings:
            raise ValueError("freeze_embeddings: has no effect with lora_rank, which freezes the whole model")
        smoothed = self.label_smoothing > 0
        if self.dpo_loss is DpoLoss.IPO and smoothed:
            raise ValueError("label_smoothing: has no effect with dpo_loss ipo")
        if self.dpo_loss is DpoLoss.ROBUST and not smoothed:
            raise ValueError("dpo_loss: robust is sigmoid without label_smoothing, the share of wrong labels")
        return self

    @property
    def mini_batch_size(self) -> int:
        """Prompts in one optimizer update; the whole batch unless set."""
        return self.ppo_mini_batch_size or self.batch_size

    @property
    def clip_range(self) -> tuple[float, float]:
        """(low, high) distances from ratio 1. GSPO's ratio is a mean over the sequence, hence so much tighter
        (arXiv:2507.18071)."""
        low, high = (3e-4, 4e-4) if self.algorithm is Algorithm.GSPO else (0.2, 0.2)
        return self.clip_ratio_low or low, self.clip_ratio_high or high


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
    """How a function runs. `concurrency`: calls in flight in its worker; `env`: extra environment, secret."""

    concurrency: int = Field(default=64, ge=1, le=10_000)
    env: dict[str, Any] = Field(default_factory=dict)


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
            raise ValueError("weight has no effect on a rollout function; it scales rewards")
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
    type: TrainingType | None = None
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
            raise ValueError(f"mode: {self.mode.value} contradicts training.type {self.training.type.value}")
        kinds = [function.type for function in self.functions]
        if kinds.count(FunctionType.ROLLOUT) > 1:
            found = kinds.count(FunctionType.ROLLOUT)
            raise ValueError(f"functions: at most one rollout function, found {found}")
        if kinds.count(FunctionType.GROUP_REWARD) > 1:
            raise ValueError("functions: at most one group_reward function")
        labels = [function.label for function in self.functions]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"functions: the name {label!r} stands twice; give each its own name")
        datasets = [dataset.type for dataset in self.datasets]
        if (found := datasets.count("training")) != 1:
            raise ValueError(f"datasets: expected exactly one of type training, found {found}")
        if datasets.count("validation") > 1:
            raise ValueError("datasets: at most one of type validation")
        return self

    @property
    def hyper_parameters(self) -> HyperParameters:
        return self.training.hyper_parameters

    @property
    def training_type(self) -> TrainingType:
        return self.training.type or self.mode or TrainingType.REINFORCEMENT

    def functions_of(self, kind: FunctionType) -> tuple[FunctionConfig, ...]:
        return tuple(function for function in self.functions if function.type is kind)
