"""Jobs that learn from rows: what they may set, and what would do nothing."""

# ruff: noqa: E501  a table reads best with a case a line

from pathlib import Path

import pytest

from strop.config.describing import describe
from strop.config.job import TrainingType
from strop.config.loading import load_job
from strop.config.notes import notes
from strop.errors import ConfigError

JOB = """\
model: smollm2-135m
datasets: [{file_name: train.jsonl}]
training:
  type: dpo
  hyper_parameters:
    batch_size: 4
    max_length: 64
"""
H = "training.hyper_parameters"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.jsonl").write_text("{}\n" * 20)
    (tmp_path / "reward.py").write_text("class Right: ...\n")
    return tmp_path


def load(folder: Path, text: str = JOB):
    (folder / "job.yaml").write_text(text)
    return load_job(folder / "job.yaml")


def edited(old: str, new: str) -> str:
    assert old in JOB
    return JOB.replace(old, new)


@pytest.mark.parametrize("kind", ["sft", "dpo", "cpt"])
def test_the_type_stands_in_training_or_in_mode(folder: Path, kind: str) -> None:
    config = load(folder, edited("type: dpo", f"type: {kind}"))
    assert config.training_type is TrainingType(kind)
    config = load(folder, edited("  type: dpo\n", "").replace("training:", f"mode: {kind}\ntraining:"))
    assert config.training_type is TrainingType(kind)
    assert describe(config)["mode"] == describe(config)["training"]["type"] == kind


def test_only_what_does_something_is_described(folder: Path) -> None:
    config = load(folder, edited("    max_length: 64\n", "    lora_rank: 8\n    dpo_beta: 0.3\n"))
    hyper = describe(config)["training"]["hyper_parameters"]
    assert (hyper["dpo_beta"], hyper["lora_rank"], hyper["lora_alpha"]) == (0.3, 8, 32.0)
    assert not hyper.keys() & {"algorithm", "n_rollouts", "temperature", "clip_ratio_low", "max_tokens"}
    sft = describe(load(folder, edited("type: dpo", "type: sft")))["training"]["hyper_parameters"]
    assert "dpo_beta" not in sft


BAD = [
    ("type: dpo", "type: dpoo", 4, "training.type", "found 'dpoo'", "'dpo'?"),
    ("type: dpo", "type: efficient_sft", 4, "training.type", "found", "write sft and set lora_rank"),
    ("type: dpo", "type: DPOLoRA", 4, "training.type", "found", "write dpo and set lora_rank"),
    ("type: dpo", "type: Pretrain", 4, "training.type", "found", "write cpt"),
    ("model: s", "mode: sft\nmodel: s", 1, "mode", "sft contradicts training.type dpo", None),
    ("training:", "functions: [{type: reward, fcmodel: {classpath: reward.py:Right}}]\ntraining:", 3,
     "functions", "nothing is sampled", "remove"),
    ("  type: dpo\n", "", 1, "functions", "missing", "add functions"),
    ("batch_size: 4", "n_rollouts: 4", 6, f"{H}.n_rollouts", "no effect in training type dpo", "for reinforcement"),
    ("batch_size: 4", "algorithm: gspo", 6, f"{H}.algorithm", "no effect in training type dpo", None),
    ("batch_size: 4", "temperature: 0.5", 6, f"{H}.temperature", "no effect", None),
    ("batch_size: 4", "kl_loss_coef: 0.1", 6, f"{H}.kl_loss_coef", "no effect", None),
    ("batch_size: 4", "clip_ratio_low: 0.1", 6, f"{H}.clip_ratio_low", "no effect", None),
    ("batch_size: 4", "max_prompt_length: 32", 6, f"{H}.max_prompt_length", "no effect", None),
    ("batch_size: 4", "max_tokens: 32", 6, f"{H}.max_tokens", "no effect", None),
    ("batch_size: 4", "sampling_dtype: float32", 6, f"{H}.sampling_dtype", "no effect", None),
    ("batch_size: 4", "beta: 0.1", 6, f"{H}.beta", "unknown key", "'dpo_beta'"),
    ("batch_size: 4", "dpo_beta: 0", 6, f"{H}.dpo_beta", "[0.0001, 100]", None),
    ("batch_size: 4", "label_smoothing: 0.5", 6, f"{H}.label_smoothing", "[0, 0.49]", None),
    ("batch_size: 4", "dpo_loss: hinge", 6, f"{H}.dpo_loss", "sigmoid, robust, ipo", None),
    ("batch_size: 4", "dpo_loss: robust", 6, f"{H}.dpo_loss", "while label_smoothing is 0", None),
    ("batch_size: 4", "label_smoothing: 0.1\n    dpo_loss: ipo", 6, f"{H}.label_smoothing", "no effect", None),
    ("batch_size: 4", "lora_rank: 0", 6, f"{H}.lora_rank", "[1, 4096]", None),
    ("batch_size: 4", "lora_alpha: 8", 6, f"{H}.lora_alpha", "without lora_rank", None),
    ("batch_size: 4", "lora_dropout: 0.1", 6, f"{H}.lora_dropout", "without lora_rank", None),
    ("batch_size: 4", "target_modules: [q_proj]", 6, f"{H}.target_modules", "without lora_rank", None),
    ("batch_size: 4", "lora_rank: 4\n    target_modules: q_proj", 7, f"{H}.target_modules", "a list", None),
    ("batch_size: 4", "lora_rank: 4\n    target_modules: []", 7, f"{H}.target_modules", "empty", None),
    ("batch_size: 4", "lora_rank: 4\n    lora_dropout: 1", 7, f"{H}.lora_dropout", "[0, 0.9]", None),
    ("batch_size: 4", "lora_rank: 4\n    freeze_embeddings: true", 7, f"{H}.freeze_embeddings", "lora_rank", None),
    ("batch_size: 4", "lora_r: 4", 6, f"{H}.lora_r", "unknown key", "'lora_rank'"),
    ("batch_size: 4", "batch_size: 21", 6, f"{H}.batch_size", "more than the 20 rows", None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "key", "message", "fix"), BAD)
def test_a_bad_job_is_refused_with_line_key_and_fix(folder, old, new, line, key, message, fix) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, edited(old, new))
    found = caught.value.problems
    assert [problem.place for problem in found] == [f"{folder / 'job.yaml'}:{line}"], found
    assert found[0].message.startswith(f"{key}: ")
    assert message in found[0].message
    assert fix is None or fix in (found[0].fix or "")


RL = """\
model: smollm2-135m
datasets: [{file_name: train.jsonl}]
functions: [{type: reward, fcmodel: {classpath: reward.py:Right}}]
training:
  hyper_parameters:
    lora_rank: 4
"""


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("dpo_beta: 0.2", "no effect in training type reinforcement"),
        ("lora_dropout: 0.1", "must come from the same function"),
    ],
)
def test_reinforcement_refuses_what_is_only_for_rows(folder: Path, key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, RL + f"    {key}\n")
    [problem] = caught.value.problems
    assert problem.place.endswith("job.yaml:7")
    assert message in problem.message


def test_reinforcement_takes_lora(folder: Path) -> None:
    assert load(folder, RL).hyper_parameters.lora_rank == 4


def test_notes_speak_of_what_offline_jobs_have(folder: Path) -> None:
    told = notes(load(folder), num_samples=20)
    assert told == ["no validation dataset: nothing distinguishes learning from memorization"]


def test_a_text_may_give_more_examples_than_rows(folder: Path) -> None:
    config = load(folder, edited("type: dpo", "type: cpt").replace("batch_size: 4", "batch_size: 30"))
    assert config.hyper_parameters.batch_size == 30


ONCE = """\
model: smollm2-135m
datasets: [{file_name: train.jsonl}]
functions: [{type: reward, fcmodel: {classpath: reward.py:Right}}]
training:
  hyper_parameters:
    n_rollouts: 1
"""


@pytest.mark.parametrize(
    ("more", "message", "fix"),
    [
        (
            "algorithm: gspo",
            "1 leaves gspo without a baseline: it compares the rollouts of a prompt",
            "which need no group",
        ),
        ("algorithm: dapo", "1 leaves dapo without a baseline", "at least 2"),
        (
            "algorithm: reinforce_pp_baseline",
            "1 leaves reinforce_pp_baseline without a baseline",
            "at least 2",
        ),
        (
            "algorithm: ppo\n    filter_groups: true",
            "1 leaves filter_groups no group to keep",
            "filter_groups: false",
        ),
        (
            "algorithm: reinforce_pp\n    filter_groups: true",
            "1 leaves filter_groups no group to keep",
            "at least 2",
        ),
        (
            "algorithm: reinforce_pp\n    batch_size: 1",
            "1 with batch_size 1 leaves reinforce_pp nothing to compare",
            "raise one",
        ),
    ],
)
def test_a_prompt_is_answered_once_only_where_something_can_be_learned_from_it(
    folder: Path, more: str, message: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, ONCE + f"    {more}\n")
    (problem,) = caught.value.problems
    assert problem.place == f"{folder}/job.yaml:6"
    assert problem.message.startswith(f"{H}.n_rollouts: {message}")
    assert fix in (problem.fix or "")


@pytest.mark.parametrize(
    "more", ["algorithm: ppo", "algorithm: reinforce_pp", "algorithm: ppo\n    batch_size: 1"]
)
def test_a_critic_or_the_whole_step_judges_a_lone_rollout(folder: Path, more: str) -> None:
    assert load(folder, ONCE + f"    {more}\n").hyper_parameters.n_rollouts == 1


def test_a_teacher_judges_a_lone_rollout_and_has_no_use_for_a_critic(folder: Path) -> None:
    taught = ONCE.replace("training:\n", "training:\n  type: pg_opd\n  teacher_model: smollm2-135m\n")
    config = load(folder, taught)
    assert config.hyper_parameters.n_rollouts == 1
    unused = {"lam", "gamma", "cliprange_value", "critic_learning_rate", "critic_warmup"}
    assert not unused & describe(config)["training"]["hyper_parameters"].keys()
    with pytest.raises(ConfigError, match=r"critic_warmup: has no effect in training type pg_opd"):
        load(folder, taught + "    critic_warmup: 1\n")


def test_a_dataset_without_rows_is_said_to_be_empty(folder: Path) -> None:
    (folder / "train.jsonl").write_text("\n\n")
    with pytest.raises(ConfigError, match=r"datasets\[0\].file_name: no rows to train on \(write one"):
        load(folder)


@pytest.mark.parametrize("kind", ["sft", "reinforcement"])
def test_a_target_of_validation_wants_rows_to_validate_on(folder: Path, kind: str) -> None:
    text = edited("type: dpo", f"type: {kind}").replace("batch_size: 4", "early_stopping_target: 0.9")
    if kind == "reinforcement":
        text = text.replace(
            "training:", "functions: [{type: reward, fcmodel: {classpath: reward.py:Right}}]\ntraining:"
        )
        text = text.replace("    max_length: 64\n", "")
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    [found] = caught.value.problems
    line = 1 + text.splitlines().index("    early_stopping_target: 0.9")
    assert found.place == f"{folder / 'job.yaml'}:{line}"
    assert found.message == f"{H}.early_stopping_target: has no effect without a validation dataset"
    assert found.fix == "add a dataset of type validation, or remove it"
    (folder / "held.jsonl").write_text("{}\n" * 3)
    rows = "[{file_name: train.jsonl}, {type: validation, file_name: held.jsonl}]"
    config = load(folder, text.replace("[{file_name: train.jsonl}]", rows))
    assert config.hyper_parameters.early_stopping_target == 0.9
    early = (
        "early_stopping_target cannot end the run before its last step: 1 x eval_steps 10 is not less than 10"
    )
    assert early in notes(config, num_samples=80)
    assert early not in notes(config, num_samples=800)
