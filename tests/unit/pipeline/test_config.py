"""Job files: good ones in every spelling, bad ones with line, key and fix, all at once."""

# ruff: noqa: E501  a table reads best with a case a line

import textwrap
import time
from pathlib import Path

import pytest

from strop.errors import ConfigError
from strop.pipeline.config import describe, load_job
from strop.pipeline.job_notes import notes, total_steps
from strop.schema.config import SaveStrategy

GOOD = """\
job_name: calculator
model: smollm2-135m
datasets:
  - type: training
    file_name: data/train.jsonl
  - type: validation
    file_name: data/validation.jsonl
functions:
  - type: rollout
    name: agent
    fcmodel:
      classpath: functions/agent.py:Agent
  - type: reward
    name: right
    weight: 0.9
    timeout: 10
    fcmodel:
      classpath: functions/reward.py:Right
    runtime:
      env:
        JUDGE_KEY: secret-value
training:
  hyper_parameters:
    algorithm: gspo
    learning_rate: 2e-6
    batch_size: 8
    n_rollouts: 4
    max_steps: 5
    eval_steps: 2
    save_strategy: no
    max_length: 256
    max_prompt_length: 128
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "functions").mkdir()
    (tmp_path / "data/train.jsonl").write_text('{"messages": []}\n' * 20)
    (tmp_path / "data/validation.jsonl").write_text('{"messages": []}\n')
    (tmp_path / "functions/agent.py").write_text("class Agent: ...\n")
    (tmp_path / "functions/reward.py").write_text("class Right: ...\n")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must stand once in the good file"
    return GOOD.replace(old, new)


def problems(folder: Path, text: str, **overrides):
    with pytest.raises(ConfigError) as caught:
        load_job(write(folder, text), overrides)
    return caught.value.problems


def test_a_good_file_is_read_with_absolute_paths(folder):
    config = load_job(write(folder, GOOD))
    hyper = config.hyper_parameters
    assert (config.name, config.model.name) == ("calculator", "smollm2-135m")
    assert config.workspace_dir == str(folder)
    assert [dataset.file_name for dataset in config.datasets] == [
        str(folder / "data/train.jsonl"),
        str(folder / "data/validation.jsonl"),
    ]
    assert {function.fcmodel.zipdir for function in config.functions} == {str(folder)}
    assert (hyper.learning_rate, hyper.algorithm, hyper.save_strategy) == (
        2e-6,
        "gspo",
        SaveStrategy.NO,
    )
    assert config.functions[1].runtime.env == {"JUDGE_KEY": "secret-value"}


@pytest.mark.parametrize(
    ("written", "value"),
    [("2e-6", 2e-6), ("2E-6", 2e-6), (".5", 0.5), ("1", 1.0), ("1.", 1.0), ("+1e-3", 1e-3)],
)
def test_numbers_may_be_written_as_people_write_them(folder, written, value):
    config = load_job(write(folder, edited("learning_rate: 2e-6", f"learning_rate: {written}")))
    assert config.hyper_parameters.learning_rate == value


def test_a_word_that_yaml_1_1_took_for_false_or_a_date_stays_text(folder):
    config = load_job(write(folder, edited("job_name: calculator", "name: 2026-11-29")))
    assert config.name == "2026-11-29"


def test_byte_order_mark_crlf_and_comments_are_fine(folder):
    text = "\ufeff# a job\r\n" + GOOD.replace("\n", "\r\n")
    assert load_job(write(folder, text)).name == "calculator"


def test_anchors_repeat_a_section(folder):
    text = edited("    runtime:\n      env:\n", "    runtime: &run\n      env:\n")
    text = text.replace("    name: agent\n", "    name: agent\n    runtime: {concurrency: 3}\n")
    assert load_job(write(folder, text)).functions[0].runtime.concurrency == 3


def test_paths_are_relative_to_the_workspace_and_that_to_the_file(folder):
    jobs = folder / "jobs"
    jobs.mkdir()
    path = jobs / "job.yaml"
    path.write_text("workspace_dir: ..\n" + GOOD)
    config = load_job(path)
    assert config.workspace_dir == str(folder)
    assert config.datasets[0].file_name == str(folder / "data/train.jsonl")


def test_a_model_folder_beside_the_file_becomes_absolute_and_a_name_stays(folder):
    (folder / "my-model").mkdir()
    config = load_job(write(folder, edited("smollm2-135m", "my-model")))
    assert config.model.name == str(folder / "my-model")
    assert load_job(write(folder, edited("smollm2-135m", "org/model"))).model.name == "org/model"


def test_a_module_path_may_name_an_installed_package(folder):
    config = load_job(write(folder, edited("functions/agent.py:Agent", "some.package.Agent")))
    assert config.functions[0].fcmodel.classpath == "some.package.Agent"
    config = load_job(write(folder, edited("functions/agent.py:Agent", "functions.agent.Agent")))
    assert config.functions[0].fcmodel.classpath == "functions.agent.Agent"


H = "training.hyper_parameters"
CODE = "functions[0].fcmodel.classpath"
AGENT = "functions/agent.py:Agent"

# (old text, new text, line, key, words of the message, words of the fix)
BAD = [
    ("job_name: calculator", "jobname: x", 1, "jobname", "unknown key", "did you mean 'job_name'?"),
    ("job_name: calculator", "learning_rate: 1e-6", 1, "learning_rate", "unknown key", f"belongs in {H}"),
    ("job_name: calculator", "timeout: 5", 1, "timeout", "unknown key", "belongs in functions[]"),
    ("job_name: calculator", "classpath: a", 1, "classpath", "unknown key", "functions[].fcmodel"),
    ("job_name: calculator", "hyper_parameters: {}", 1, "hyper_parameters", "unknown key", "in training"),
    ("job_name: calculator", "lr: 1e-6", 1, "lr", "unknown key", f"'learning_rate' and belongs in {H}"),
    ("job_name: calculator", "learing_rate: 1", 1, "learing_rate", "unknown key", "'learning_rate'?"),
    ("job_name: calculator", "observability: {}", 1, "observability", "unknown key", "remove it"),
    ("job_name: calculator", "job_name: a\nname: b", 1, "job_name", "unknown key", "keep one"),
    ("job_name: calculator", "job_name: 5", 1, "job_name", "expected text, found 5", 'quotes: "5"'),
    ("job_name: calculator", "job_name:", 1, "job_name", "is empty", "remove the key"),
    ("job_name: calculator", 'job_name: ""', 1, "job_name", "must not be empty", None),
    ("job_name: calculator", f"job_name: {'x' * 257}", 1, "job_name", "too long: 257", "256"),
    ("job_name: calculator", "mode: sft", 1, "mode", "one of reinforcement; found 'sft'", None),
    ("job_name: calculator", "workspace_dir: gone", 1, "workspace_dir", "no such folder", "job file"),
    ("job_name: calculator", "<<: {a: 1}", 1, "", "merge keys", "write the keys out"),
    ("job_name: calculator", "? [a, b]\n: c", 1, "", "a key must be plain text", None),
    ("job_name: calculator", "job_name: !!python/name:os.x y", 1, "job_name", "tag", "plain value"),
    ("job_name: calculator", "job_name: &a [*a]", 1, "job_name[0]", "contains itself", None),
    ("model: smollm2-135m\n", "", 1, "model", "missing", "add model: smollm2-135m"),
    ("model: smollm2-135m", "model: [a]", 2, "model", "expected keys and values, found a list", "smollm2"),
    ("model: smollm2-135m", "model: ./gone", 2, "model", "no such folder", None),
    ("model: smollm2-135m", "model: ~nobody-here/m", 2, "model", "no such folder", None),
    ("model: smollm2-135m", f"model: /{'m' * 300}", 2, "model", "no such folder", None),
    ("model: smollm2-135m", 'model: "a\\0b"', 2, "model", "holds a NUL", "remove"),
    ("model: smollm2-135m", "model: {nam: x}", 2, "model.nam", "unknown key", "'name'"),
    ("  - type: training", "  - type: trainng", 4, "datasets[0].type", "found 'trainng'", "'training'?"),
    ("  - type: training", "  - type: validation", 3, "datasets", "exactly one of type training", None),
    ("  - type: validation", "  - type: training", 3, "datasets", "found 2", None),
    ("data/train.jsonl", "data/gone.jsonl", 5, "datasets[0].file_name", "no such file", None),
    ("data/train.jsonl", "t" * 300, 5, "datasets[0].file_name", "no such file", None),
    ("data/train.jsonl", "~nobody-here/t", 5, "datasets[0].file_name", "no such file", None),
    ("data/train.jsonl", '"a\\0b"', 5, "datasets[0].file_name", "holds a NUL", "remove"),
    ("    file_name: data/train.jsonl\n", "", 4, "datasets[0].file_name", "missing", "add file_name"),
    ("    file_name: data/train.jsonl", "    file: a", 5, "datasets[0].file", "unknown key", "'file_name'"),
    ("  - type: rollout", "  - type: rolout", 9, "functions[0].type", "found 'rolout'", "'rollout'?"),
    ("  - type: rollout\n", "  - weight: 1\n", 9, "functions[0].type", "missing", "add type"),
    ("    name: agent", "    name: right", 8, "functions", "the name 'right' stands twice", None),
    ("    name: agent", "    weight: 2", 10, "functions[0].weight", "no effect on a rollout", None),
    ("    name: agent", "    batch_size: 2", 10, "functions[0].batch_size", "unknown key", H),
    (AGENT, "functions/gone.py:Agent", 12, CODE, "no such file", None),
    (AGENT, "functions.gone.Agent", 12, CODE, "no such file", None),
    (AGENT, "Agent", 12, CODE, "names no class", "py:Class"),
    (AGENT, "agent.txt:Agent", 12, CODE, "names no class", None),
    ("    weight: 0.9", "    weight: -1", 15, "functions[1].weight", "must lie in [0, inf), found -1", None),
    ("    weight: 0.9", "    weight: 0", 15, "functions[1].weight", "every weight is 0", "above 0"),
    ("    timeout: 10", "    timeout: 0", 16, "functions[1].timeout", "(0, inf)", None),
    ("    timeout: 10", "    timeout: .inf", 16, "functions[1].timeout", "finite number", None),
    ("    timeout: 10", "    timeout: 10s", 16, "functions[1].timeout", "found the text '10s'", None),
    ("    runtime:\n", "    runtime:\n      cpu: 2\n", 20, "functions[1].runtime.cpu", "unknown key", "worker"),
    ("        JUDGE_KEY: secret-value", "        - a", 20, "functions[1].runtime.env", "found a list", "NAME"),
    ("training:\n", "training:\n  type: pg_opd\n", 23, "training.type", "found 'pg_opd'", None),
    ("training:\n", "training:\n  teacher_model: t\n", 23, "training.teacher_model", "unknown key", "distill"),
    ("    algorithm: gspo", "    algorithm: gsop", 24, f"{H}.algorithm", "gspo, grpo; found 'gsop'", "'gspo'?"),
    ("    algorithm: gspo", "    algorithm: dapo", 24, f"{H}.algorithm", "gspo, grpo; found 'dapo'", None),
    ("    algorithm: gspo", "    nnodes_training: 2", 24, f"{H}.nnodes_training", "unknown key", "machines"),
    ("    algorithm: gspo", "    kl_coef: 1", 24, f"{H}.kl_coef", "unknown key", "'kl_loss_coef'"),
    ("learning_rate: 2e-6", "learning_rate: 2", 25, f"{H}.learning_rate", "must lie in [0, 1], found 2", None),
    ("learning_rate: 2e-6", 'learning_rate: "2e-6"', 25, f"{H}.learning_rate", "text '2e-6'", "the quotes"),
    ("learning_rate: 2e-6", "learning_rate: true", 25, f"{H}.learning_rate", "a number, found true", None),
    ("learning_rate: 2e-6", "learning_rate: 2e", 25, f"{H}.learning_rate", "the text '2e'", None),
    ("learning_rate: 2e-6", "learning_rate: .nan", 25, f"{H}.learning_rate", "finite", None),
    ("learning_rate: 2e-6", "learning_rate:", 25, f"{H}.learning_rate", "is empty, expected a number", None),
    ("learning_rate: 2e-6", "learning_rate: {a: 1}", 25, f"{H}.learning_rate", "found a section", None),
    ("batch_size: 8", "batch_size: 8.0", 26, f"{H}.batch_size", "whole number, found 8.0", "write 8"),
    ("batch_size: 8", "batch_size: 8.5", 26, f"{H}.batch_size", "whole number", None),
    ("batch_size: 8", "batch_size: 0", 26, f"{H}.batch_size", "[1, 100000], found 0", None),
    ("batch_size: 8", "batch_size: 1_000", 26, f"{H}.batch_size", "found the text '1_000'", None),
    ("batch_size: 8", "batch_size: 21", 26, f"{H}.batch_size", "more than the 20 rows", "at most 20"),
    ("batch_size: 8", "batch_size: 8\n    batch_size: 4", 27, f"{H}.batch_size", "first in line 26", "keep one"),
    ("batch_size: 8", "ppo_mini_batch_size: 3", 26, f"{H}.ppo_mini_batch_size", "must divide batch_size", None),
    ("n_rollouts: 4", "n_rollouts: 1", 27, f"{H}.n_rollouts", "[2, 1024], found 1", None),
    ("max_steps: 5", "max_steps: 5\n    lr_warmup_steps: 6", 29, f"{H}.lr_warmup_steps", "exceeds max_steps 5", "-1"),
    ("max_steps: 5", "lr_warmup_steps: 3", 28, f"{H}.lr_warmup_steps", "more than the run's 2 steps", "-1"),
    ("max_steps: 5", "max_tokens: 256", 28, f"{H}.max_tokens", "no room for a prompt", "raise max_length"),
    ("max_steps: 5", "freeze_embeddings: yes", 28, f"{H}.freeze_embeddings", "true or false", "true or false"),
    ("max_steps: 5", "freeze_embeddings: 1", 28, f"{H}.freeze_embeddings", "true or false", None),
    ("max_steps: 5", "clip_ratio_low: 0.5", 28, f"{H}.clip_ratio_low", "must not exceed", None),
    ("save_strategy: no", "save_strategy: false", 30, f"{H}.save_strategy", "found false", None),
    ("save_strategy: no", "save_strategy: never", 30, f"{H}.save_strategy", "steps, epoch, no", None),
    ("max_length: 256", "max_length: 128", 32, f"{H}.max_prompt_length", "must be below max_length", None),
    ("max_length: 256", "max_length: 200000", 31, f"{H}.max_length", "[2, 131072]", None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "key", "message", "fix"), BAD)
def test_a_bad_file_is_refused_with_line_key_and_fix(folder, old, new, line, key, message, fix):
    started = time.perf_counter()
    found = problems(folder, edited(old, new))
    assert time.perf_counter() - started < 2
    assert [problem.place for problem in found] == [f"{folder / 'job.yaml'}:{line}"], found
    assert found[0].message.startswith(f"{key}: " if key else "")
    assert message in found[0].message
    assert fix is None or fix in (found[0].fix or "")


BROKEN = [
    ("", 1, "empty", "model, datasets and functions"),
    ("# nothing\n", 1, "empty", None),
    ("- a\n- b\n", 1, "expected keys and values at the top", None),
    ("just text\n", 1, "expected keys and values at the top", None),
    ("model: a\ntraining:\n\tbatch_size: 8\n", 3, "not YAML", "not with a tab"),
    ('model: a\nname: "open\ntraining: {}\n', 2, "not YAML", "quotes"),
    ("model: a\ndatasets: [a, b\nname: c\n", 2, "not YAML", None),
    ("model: a\n  name: b\n", 2, "not YAML: mapping values are not allowed", "indent"),
    ("model: a\nname: x: y\n", 2, "not YAML: mapping values are not allowed", "in quotes"),
    ("model: a\n---\nmodel: b\n", 2, "not YAML", "remove the '---' line"),
    ("model: *nobody\n", 1, "undefined alias", None),
    ("model: a\nname: @x\n", 2, "not YAML", None),
    ("model: a\x00b\n", 1, "not YAML", None),
]


@pytest.mark.parametrize(("text", "line", "message", "fix"), BROKEN)
def test_text_that_is_no_yaml_is_refused_with_its_line(folder, text, line, message, fix):
    (problem,) = problems(folder, text)
    assert problem.place == f"{folder / 'job.yaml'}:{line}"
    assert message in problem.message
    assert fix is None or fix in (problem.fix or "")


def test_a_file_that_is_not_there_or_not_utf8_is_refused(folder):
    with pytest.raises(ConfigError, match="No such file"):
        load_job(folder / "none.yaml")
    (folder / "latin.yaml").write_bytes("model: a\nname: é\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: not UTF-8"):
        load_job(folder / "latin.yaml")


def test_a_file_nested_beyond_reading_is_refused(folder):
    with pytest.raises(ConfigError, match=r"job\.yaml:1: nested too deeply"):
        load_job(write(folder, "model: " + "[" * 3000 + "]" * 3000))


def test_all_problems_are_listed_at_once_in_the_order_of_the_file(folder):
    text = textwrap.dedent("""\
        model: smollm2-135m
        learning_rate: 1e-6
        datasets:
          - {type: trainng, file_name: data/train.jsonl}
        functions:
          - type: reward
            timout: 5
            fcmodel: {classpath: gone.py:A}
          - type: rollout
            weight: 2
            fcmodel: {classpath: B}
        training:
          hyper_parameters:
            batch_size: "8"
            ppo_mini_batch_size: 3
            n_rollouts: 1
            max_length: 1
            clip_ratio_low: .5
            clip_ratio_high: .4
            lr_warmup_steps: 9
            max_steps: 3
        """)
    found = [
        (int(problem.place.rsplit(":", 1)[1]), problem.message.split(": ")[0])
        for problem in problems(folder, text)
    ]
    assert found == [
        (2, "learning_rate"),
        (4, "datasets[0].type"),
        (7, "functions[0].timout"),
        (8, "functions[0].fcmodel.classpath"),
        (10, "functions[1].weight"),
        (11, "functions[1].fcmodel.classpath"),
        (14, f"{H}.batch_size"),
        (16, f"{H}.n_rollouts"),
        (17, f"{H}.max_length"),
        (18, f"{H}.clip_ratio_low"),
        (20, f"{H}.lr_warmup_steps"),
    ]


def test_what_depends_on_a_bad_key_is_not_held_against_the_file(folder):
    text = edited("batch_size: 8", "batch_size: eight\n    ppo_mini_batch_size: 16")
    assert [problem.message.split(": ")[0] for problem in problems(folder, text)] == [f"{H}.batch_size"]


@pytest.mark.parametrize(
    ("overrides", "steps", "seed"),
    [
        ({"training.hyper_parameters.max_steps": 3}, 3, 42),
        ({"max_steps": 3, "seed": 7}, 3, 7),
        ({"max_steps": "3", "seed": "7"}, 3, 7),
    ],
)
def test_overrides_win_over_the_file(folder, overrides, steps, seed):
    hyper = load_job(write(folder, GOOD), overrides).hyper_parameters
    assert (hyper.max_steps, hyper.seed) == (steps, seed)


def test_overrides_reach_lists_and_make_sections(folder):
    overrides = {"functions[1].timeout": 3, "functions.0.runtime.concurrency": "5", "model": "other"}
    config = load_job(write(folder, GOOD), overrides)
    assert (config.functions[1].timeout, config.functions[0].runtime.concurrency) == (3.0, 5)
    assert config.model.name == "other"


@pytest.mark.parametrize(
    ("override", "message", "fix"),
    [
        ({"max_steps": "x"}, f"{H}.max_steps: expected a whole number", None),
        ({"max_step": 1}, "max_step: unknown key", "'max_steps'"),
        ({"functions.7.name": "x"}, "there is no functions[7]", None),
        ({"training": "x"}, "whole section", "training.hyper_parameters.max_steps"),
        ({"n_rollouts": 1}, f"{H}.n_rollouts: must lie in [2, 1024]", None),
    ],
)
def test_a_bad_override_is_reported_as_such(folder, override, message, fix):
    (problem,) = problems(folder, GOOD, **override)
    assert problem.place == "override"
    assert message in problem.message
    assert fix is None or fix in (problem.fix or "")


def test_the_description_is_resolved_and_holds_no_secret(folder):
    config = load_job(write(folder, GOOD))
    described = describe(config)
    assert "secret-value" not in str(described)
    assert described["functions"][1]["runtime"]["env"] == {"JUDGE_KEY": "***"}
    hyper = described["training"]["hyper_parameters"]
    assert (hyper["ppo_mini_batch_size"], hyper["max_tokens"]) == (8, 128)
    assert (hyper["clip_ratio_low"], hyper["clip_ratio_high"]) == (3e-4, 4e-4)
    assert (hyper["algorithm"], hyper["save_strategy"], hyper["seed"]) == ("gspo", "no", 42)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("batch_size: 8", "batch_size: 8", "the ratio is 1, clipping cannot bind"),
        ("algorithm: gspo", "clip_ratio_high: 0.2", "suits GRPO"),
        (
            "algorithm: gspo",
            "algorithm: grpo\n    clip_ratio_low: 3e-4\n    clip_ratio_high: 4e-4",
            "suits GSPO",
        ),
        ("algorithm: gspo", "kl_loss_coef: 1", "outweigh the reward"),
        ("learning_rate: 2e-6", "learning_rate: 0", "nothing will be learned"),
        ("learning_rate: 2e-6", "learning_rate: 0.01", "far above"),
        ("save_strategy: no", "save_steps: 2", "save_steps has no effect: save_strategy is epoch"),
        ("save_strategy: no", "save_steps: 9\n    save_strategy: steps", "save_steps 9 is beyond"),
        ("save_strategy: no", "save_strategy: no\n    save_total_limit: 3", "save_total_limit has no effect"),
        ("eval_steps: 2", "eval_steps: 6", "eval_steps 6 is beyond"),
        ("max_steps: 5", "max_steps: 5", "max_steps 5 has no effect: the epochs are through after 2 steps"),
        ("batch_size: 8", "batch_size: 6", "2 of 20 rows are left out of each epoch"),
        ("training:\n", "training:\n  resources: {mtu_capacity: 24}\n", "resources.* choose nothing"),
    ],
)
def test_what_would_surprise_is_noted(folder, old, new, note):
    found = notes(load_job(write(folder, edited(old, new))), num_samples=20)
    assert any(note in text for text in found), found


def test_a_job_without_surprises_has_no_notes(folder):
    text = edited("batch_size: 8", "batch_size: 4\n    ppo_mini_batch_size: 2")
    assert notes(load_job(write(folder, text)), num_samples=20) == []


def test_eval_steps_without_validation_rows_are_noted(folder):
    text = edited("  - type: validation\n    file_name: data/validation.jsonl\n", "")
    found = notes(load_job(write(folder, text)), num_samples=20)
    assert "eval_steps has no effect: there is no validation dataset" in found


@pytest.mark.parametrize(
    ("hyper", "rows", "steps"), [("", 20, 2), ("n_epochs: 3", 20, 6), ("n_epochs: 3", 7, 0)]
)
def test_the_number_of_steps_counts_full_batches(folder, hyper, rows, steps):
    config = load_job(write(folder, edited("max_steps: 5", hyper)))
    assert total_steps(config.hyper_parameters, rows) == steps
    capped = load_job(write(folder, edited("max_steps: 5", f"max_steps: 1\n    {hyper}")))
    assert total_steps(capped.hyper_parameters, rows) == min(steps, 1)
