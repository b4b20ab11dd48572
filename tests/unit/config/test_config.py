"""Job files: good ones in every spelling, bad ones with line, key and fix, all at once."""

import textwrap
import time
from pathlib import Path

import pytest

from fakes.job_files import GOOD, edited, lay_out, write
from strop.config.describing import describe
from strop.config.job import SaveStrategy
from strop.config.loading import load_job
from strop.config.notes import notes, total_steps
from strop.errors import ConfigError


@pytest.fixture
def folder(tmp_path) -> Path:
    return lay_out(tmp_path)


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


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
UNKNOWN = "model: a\n" + "".join(f"key{n}: 1\n" for n in range(2000))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("model: a\nname: " + "[" * 3000 + "]" * 3000, 2, "nested deeper than 64 levels"),
        ("model: " + "{a: " * 3000 + "}" * 3000, 1, "nested deeper than 64 levels"),
        ("- " * 3000 + "a", 1, "nested deeper than 64 levels"),
        ("".join(f"{' ' * n}a:\n" for n in range(500)), 65, "nested deeper than 64 levels"),
        (BOMB, None, "more than 5000 values, counting what aliases repeat"),
        ("x" * 300_000, None, "larger than 256 KiB: this is not a job file"),
        (UNKNOWN, None, "and 19"),
    ],
)
def test_a_file_that_is_no_job_costs_no_time(folder, text, line, message):
    path = write(folder, text)
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    assert time.process_time() - began < 2  # of the processor, so that a busy machine does not fail it
    assert any(message in problem.message for problem in caught.value.problems)
    assert line is None or caught.value.problems[0].place == f"{path}:{line}"
    assert len(caught.value.problems) < 60


def test_halves_of_characters_and_tags_that_lie_are_refused_with_their_line(folder):
    lines = (
        'model: "a\\ud800"',
        '"k\\udfff": 1',
        'name: "\\ud83d\\ude00"',
        "mode: !!bool maybe",
        "workspace_dir: !!null x",
    )
    text = "\n".join(lines)
    found = {str(problem) for problem in problems(folder, text)}
    path = folder / "job.yaml"
    for line, words in (
        (1, "model: contains half a character, '\\ud800'"),
        (2, "the key 'k\\udfff' contains half a character"),
        (3, "name: contains half a character"),  # YAML has no pairs of escapes: \\U0001f600 is one
        (4, "mode: 'maybe' does not fit its tag"),
        (5, "workspace_dir: 'x' does not fit its tag"),
    ):
        assert any(one.startswith(f"{path}:{line}: {words}") for one in found), (line, found)


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
            n_rollouts: 0
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
        ({"n_rollouts": 0}, f"{H}.n_rollouts: must lie in [1, 1024]", None),
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
        ("batch_size: 8", "batch_size: 8", "the ratio is always 1, so clipping never applies"),
        ("algorithm: gspo", "clip_ratio_high: 0.2", "suits GRPO"),
        (
            "algorithm: gspo",
            "algorithm: grpo\n    clip_ratio_low: 3e-4\n    clip_ratio_high: 4e-4",
            "suits GSPO",
        ),
        ("algorithm: gspo", "kl_loss_coef: 1", "outweigh the reward"),
        ("learning_rate: 2e-6", "learning_rate: 0.01", "far too high"),
        ("save_strategy: no", "save_steps: 2", "save_steps has no effect: save_strategy is epoch"),
        ("save_strategy: no", "save_steps: 9\n    save_strategy: steps", "save_steps 9 is beyond"),
        ("save_strategy: no", "save_strategy: no\n    save_total_limit: 3", "save_total_limit has no effect"),
        ("max_steps: 5", "max_tokens: 200", "max_prompt_length 128 and max_tokens 200 exceed max_length 256"),
        ("algorithm: gspo", "algorithm: dapo", "the epochs may end before step 2"),
        ("eval_steps: 2", "eval_steps: 6", "eval_steps 6 is beyond"),
        ("max_steps: 5", "max_steps: 5", "max_steps 5 has no effect: the epochs end at step 2"),
        ("batch_size: 8", "batch_size: 6", "2 of 20 rows are left out of each epoch"),
        ("training:\n", "training:\n  resources: {mtu_capacity: 24}\n", "resources.* have no effect"),
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
