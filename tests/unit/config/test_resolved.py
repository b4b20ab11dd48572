"""The configuration in use, and where each of its values came from."""

import json
import types
import typing
from pathlib import Path

import pytest

from strop.config.describing import IN_USE, describe, leaves
from strop.config.file import JobFile, dotted
from strop.config.job import HyperParameters
from strop.config.loading import check_job, load_job
from strop.errors import ConfigError
from strop.trackers import sink

JOB = """\
job_name: calculator
model: smollm2-135m
datasets:
  - file_name: train.jsonl
functions:
  - type: reward
    name: right
    weight: 0.9
    fcmodel:
      classpath: reward.py:Right
    runtime:
      env: {KEY: secret-value}
training:
  hyper_parameters:
    algorithm: dapo
    max_length: 600
    max_prompt_length: 100
"""
H = "training.hyper_parameters"


@pytest.fixture
def load(tmp_path: Path):
    (tmp_path / "train.jsonl").write_text("{}\n" * 20)
    (tmp_path / "reward.py").write_text("class Right: ...\n")
    (tmp_path / "job.yaml").write_text(JOB)
    return lambda *args, **kwargs: load_job(tmp_path / "job.yaml", *args, **kwargs)


SIZES = (
    *("cpu", "memory_size", "disk_size", "capacity", "min_capacity", "max_capacity"),
    *("memory_scale_threshold", "concurrency_scale_threshold"),
)


def test_every_value_says_where_it_came_from(load):
    config = load(
        {"learning_rate": "2e-6", "max_steps": 5, "eval_steps": 7},
        given_by={"learning_rate": "--set", "max_steps": "--steps"},
    )
    origins = config.origins
    assert {key: origins[key] for key in origins if not key.startswith(H)} == {
        "name": "job.yaml:1",
        "model.name": "job.yaml:2",
        "mode": "default",
        "workspace_dir": "default",
        "tuned_model_name": "default",
        "diagnosis.webhook": "default",
        "datasets[0].type": "default",
        "datasets[0].data_source_type": "default",
        "datasets[0].file_name": "job.yaml:4",
        "functions[0].type": "job.yaml:6",
        "functions[0].name": "job.yaml:7",
        "functions[0].timeout": "default",
        "functions[0].weight": "job.yaml:8",
        "functions[0].fcmodel.classpath": "job.yaml:10",
        "functions[0].fcmodel.zipdir": "default",
        "functions[0].runtime.concurrency": "default",
        "functions[0].runtime.env.KEY": "job.yaml:12",
        **{f"functions[0].runtime.{name}": "default" for name in SIZES},
        "training.type": "default",
        "training.teacher_model": "default",
        "training.resources.charge_type": "default",
        "training.resources.mtu_spec_code": "default",
        "training.resources.mtu_capacity": "default",
    }
    some = ("algorithm", "learning_rate", "max_steps", "eval_steps", "batch_size", "clip_ratio_high")
    some = (*some, "ppo_mini_batch_size", "max_tokens", "filter_groups", "overlong_buffer_len")
    assert [origins[f"{H}.{name}"] for name in some] == [
        "job.yaml:15",
        "--set",
        "--steps",
        "override",
        "default",
        "default of dapo",
        "batch_size",
        "max_length - max_prompt_length",
        "default of dapo",
        "default of dapo",
    ]


def test_the_description_holds_what_will_be_used_and_an_origin_for_each_value(load):
    described = describe(load())
    hyper = described["training"]["hyper_parameters"]
    assert (hyper["clip_ratio_low"], hyper["clip_ratio_high"]) == (0.2, 0.28)
    assert (hyper["filter_groups"], hyper["max_tokens"], hyper["overlong_buffer_len"]) == (True, 500, 100)
    assert (hyper["loss_agg_mode"], hyper["ppo_mini_batch_size"]) == ("token-mean", 8)
    assert json.loads(json.dumps(described)) == described
    origins = described.pop("origins")
    assert list(origins) == [dotted(path) for path in leaves(described)]
    assert "secret-value" not in json.dumps([described, origins])


def test_what_a_request_says_is_told_from_what_nobody_said(load):
    said = load().model_dump(mode="json", exclude_unset=True)
    asked = JobFile(path=Path("job"), data=said, places={(): ""})
    origins = check_job(asked).origins
    told = ("name", "model.name", f"{H}.algorithm", f"{H}.max_length", "datasets[0].file_name")
    assert {origins[key] for key in told} == {"request"}
    silent = (f"{H}.seed", f"{H}.clip_ratio_low", f"{H}.ppo_mini_batch_size", "functions[0].timeout")
    assert [origins[key] for key in silent] == ["default", "default of dapo", "batch_size", "default"]


def test_a_request_that_has_arks_names_is_told_with_them(load):
    said = load().model_dump(mode="json", exclude_unset=True)
    said["training"]["hyper_parameters"] |= {"num_generations": 4, "save_every_n_steps": 2}
    origins = check_job(JobFile(path=Path("job"), data=said, places={(): ""})).origins
    assert {name: origins[f"{H}.{name}"] for name in ("n_rollouts", "save_steps", "save_strategy")} == {
        "n_rollouts": "request (num_generations)",
        "save_steps": "request (save_every_n_steps)",
        "save_strategy": "request (save_every_n_steps)",
    }


def test_each_item_of_a_list_that_an_option_set_came_from_the_option(load):
    given = {"lora_rank": 4, "target_modules": ["q_proj", "v_proj"]}
    origins = load(given, given_by={"target_modules": "--set"}).origins
    assert [origins[f"{H}.target_modules[{index}]"] for index in (0, 1)] == ["--set", "--set"]


def test_a_job_that_was_not_read_from_a_file_has_no_origins(load):
    config = load()
    values = config.model_dump(exclude_unset=True)
    assert "origins" not in describe(type(config).model_validate(values))


def test_no_value_is_left_open_in_the_description():
    """A hyper-parameter whose default is None is filled in by `IN_USE`, so that nobody has to guess."""
    optional = {
        name
        for name, info in HyperParameters.model_fields.items()
        if typing.get_origin(info.annotation) in (types.UnionType, typing.Union)
        and type(None) in typing.get_args(info.annotation)
    }
    follows = {
        name for name, info in HyperParameters.model_fields.items() if info.default_factory is not None
    }
    assert optional | follows == set(IN_USE)


def test_trackers_and_the_webhook_are_told_with_their_lines_and_without_secrets(tmp_path: Path, load):
    told = (
        "trackers:\n  - tensorboard\n  - {type: mlflow, experiment: sums}\ndiagnosis:\n  stop_on: [alarm]\n"
    )
    hook = "  webhook: {url: 'https://hooks.example.com/T0/secret', secret: 0123456789abcdef}\n"
    (tmp_path / "job.yaml").write_text(JOB + told + hook)
    config = load()
    assert (config.diagnosis.webhook.secret, config.trackers[1].experiment) == ("0123456789abcdef", "sums")
    described = describe(config)
    assert described["trackers"] == [{"type": "tensorboard"}, {"type": "mlflow", "experiment": "sums"}]
    assert described["diagnosis"] == {
        "stop_on": ["alarm"],
        "webhook": {"url": "https://hooks.example.com/***", "secret": "***"},
    }
    first = JOB.count("\n") + 2
    assert config.origins["trackers[0].type"] == f"job.yaml:{first}"
    assert config.origins["trackers[1].experiment"] == f"job.yaml:{first + 1}"
    assert config.origins["diagnosis.stop_on[0]"] == f"job.yaml:{first + 3}"


def test_a_tracker_whose_extra_is_not_installed_is_refused_with_the_command(
    tmp_path: Path, load, monkeypatch
):
    (tmp_path / "job.yaml").write_text(JOB + "trackers: [prometheus, wandb]\n")
    monkeypatch.setattr(sink, "find_spec", lambda name: None if name == "wandb" else object())
    with pytest.raises(ConfigError) as caught:
        load()
    [problem] = caught.value.problems
    assert problem.message == "trackers[1].type: wandb is not installed where the job is trained"
    assert problem.fix == "pip install 'strop[wandb]'"


def test_a_diagnosis_of_a_training_without_rollouts_is_refused(tmp_path: Path, load):
    text = JOB.replace("training:\n", "training:\n  type: sft\n").replace("    algorithm: dapo\n", "")
    head, _, tail = text.partition("functions:\n")
    text = head + tail[tail.index("training:") :].replace("    max_prompt_length: 100\n", "")
    (tmp_path / "job.yaml").write_text(text + "diagnosis: {stop_on: [alarm]}\n")
    with pytest.raises(ConfigError, match="has no effect in training type sft: the rules judge rollouts"):
        load()
