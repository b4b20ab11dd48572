"""Ark's words read as ours: each name of its templates; what has no meaning here, refused with the reason."""

from pathlib import Path

import pytest

from strop.config.aliases import ALIASES
from strop.config.job import HyperParameters
from strop.config.loading import load_job
from strop.errors import ConfigError

HEAD = """\
model: smollm2-135m
datasets:
  - {file_name: train.jsonl}
  - {type: validation, file_name: held_out.jsonl}
functions: [{type: reward, name: r, fcmodel: {classpath: reward.py:R}}]
training:
  hyper_parameters:
"""


@pytest.fixture
def load(tmp_path: Path):
    for name in ("train", "held_out"):
        (tmp_path / f"{name}.jsonl").write_text("{}\n" * 200)
    (tmp_path / "reward.py").write_text("class R: ...\n")

    def load(*lines: str, **overrides):
        path = tmp_path / "job.yaml"
        path.write_text(HEAD + "".join(f"    {line}\n" for line in lines))
        return load_job(path, overrides)

    return load


# A GRPO template of Ark, every value as text, as its API has them.
TEMPLATE = {
    "num_steps": ("10", "max_steps", 10),
    "batch_size": ("32", "batch_size", 32),
    "num_generations": ("8", "n_rollouts", 8),
    "num_iterations_per_batch": ("2", "ppo_epochs", 2),
    "lr": ("1e-6", "learning_rate", 1e-6),
    "lr_warmup_steps": ("5", "lr_warmup_steps", 5),
    "clip_ratio_low": ("0.2", "clip_ratio_low", 0.2),
    "clip_ratio_high": ("0.25", "clip_ratio_high", 0.25),
    "kl_coefficient": ("0.001", "kl_loss_coef", 0.001),
    "loss_agg_mode": ("seq-mean-token-mean", "loss_agg_mode", "seq-mean-token-mean"),
    "max_new_tokens": ("300", "max_tokens", 300),
    "temperature": ("1.0", "temperature", 1.0),
    "top_p": ("1", None, None),
    "test_every_n_steps": ("5", "eval_steps", 5),
    "test_num_generations": ("1", None, None),
    "test_top_p": ("1", None, None),
    "save_every_n_steps": ("7", "save_steps", 7),
    "save_model_limit": ("4", "save_total_limit", 4),
}


def test_a_whole_template_is_read_as_ours(load):
    lines = [f'{name}: "{text}"' for name, (text, _, _) in TEMPLATE.items()]
    hyper = load("algorithm: grpo", *lines).hyper_parameters
    for text, ours, value in TEMPLATE.values():
        if ours is not None:
            assert getattr(hyper, ours) == value, (text, ours)
    assert hyper.save_strategy == "steps"  # what save_every_n_steps implies


OTHER = {
    "epoch": ("3", "n_epochs", 3),
    "num_samples": ("16", "n_rollouts", 16),
    "num_sampling": ("16", "n_rollouts", 16),
    "n_sampling": ("16", "n_rollouts", 16),
    "kl_coeffient": ("0.5", "kl_loss_coef", 0.5),
    "seq_len": ("4096", "max_length", 4096),
    "save_model_per_epoch": ("1", None, None),
}


@pytest.mark.parametrize(("name", "text", "ours", "value"), [(name, *rest) for name, rest in OTHER.items()])
def test_its_other_spellings_are_read_too(load, name, text, ours, value):
    hyper = load(f"{name}: {text}").hyper_parameters
    if ours is not None:
        assert getattr(hyper, ours) == value
    assert hyper.save_strategy == "epoch"


def test_every_name_of_the_table_is_tried_here_and_leads_to_a_hyper_parameter():
    assert {name for name, alias in ALIASES.items() if alias.read} <= set(TEMPLATE) | set(OTHER)
    assert {meaning.ours for meaning in ALIASES.values() if meaning.read} - {None} <= set(
        HyperParameters.model_fields
    )


@pytest.mark.parametrize(
    ("lines", "line", "message", "fix"),
    [
        (["top_p: 0.9"], 8, "top_p: 0.9 is not supported", "whole distribution"),
        (["test_num_generations: 4"], 8, "test_num_generations: 4 is not supported", "set it to 1"),
        (["save_model_per_epoch: 2"], 8, "save_model_per_epoch: 2 is not supported", "save_strategy"),
        (["max_steps: 3", "num_steps: 4"], 9, "'num_steps' and 'max_steps' are one key", "keep one"),
        (["num_samples: 8", "n_sampling: 8"], 9, "'n_sampling' and 'num_samples' are one key", "keep one"),
        (["num_generations: 2000"], 8, "n_rollouts: must lie in [1, 1024], found 2000", "e.g. 8"),
        (["lr: fast"], 8, "learning_rate: expected a number, found the text 'fast'", "1e-06"),
        (["warmup_step_rate: 0.05"], 8, "warmup_step_rate: unknown key", "lr_warmup_steps"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_own_line(load, lines, line, message, fix):
    with pytest.raises(ConfigError) as caught:
        load(*lines)
    (problem,) = caught.value.problems
    assert problem.place.endswith(f"job.yaml:{line}")
    assert message in problem.message
    assert fix in (problem.fix or "")


def test_a_problem_names_the_key_as_the_file_has_it(load):
    with pytest.raises(ConfigError) as caught:
        load("num_generations: 2000")
    assert "(here: num_generations)" in caught.value.problems[0].message


def test_arks_names_serve_on_the_command_line_too(load):
    assert load("algorithm: gspo", num_steps="3").hyper_parameters.max_steps == 3


def test_the_origin_keeps_the_name_in_the_file(load):
    config = load("num_steps: 10", "save_every_n_steps: 5")
    assert config.origins["training.hyper_parameters.max_steps"] == "job.yaml:8 (num_steps)"
    assert config.origins["training.hyper_parameters.save_strategy"] == "job.yaml:9 (save_every_n_steps)"


def test_our_own_section_stays_strict_about_quotes(load):
    with pytest.raises(ConfigError, match="remove the quotes"):
        load('learning_rate: "1e-6"')
