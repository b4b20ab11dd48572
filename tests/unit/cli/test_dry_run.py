"""`strop run --dry-run`: all mistakes at once; JSON for programs, a table with origins for people."""

import json
from dataclasses import replace
from importlib import import_module

import pytest
from rich.console import Console

from fakes.job_files import GOOD, ROW, lay_out, write
from strop.cli import checking
from strop.cli.checking import check_whole
from strop.config.inputs import code_hashes
from strop.config.loading import load_job
from strop.data.dataset import load_dataset
from strop.errors import CheckpointError, ConfigError, FunctionError
from strop.learners.local.checkpoint import write_checkpoint
from strop.learners.model_names import complaint
from strop.rl.train_state import start_state

run = import_module("strop.cli.run")  # the package has the command of that name


def loaded(path, values, given_by):
    return load_job(path, values, given_by=given_by, check_model=complaint)


@pytest.fixture
def config(tmp_path):
    path = write(lay_out(tmp_path), GOOD)
    return loaded(path, *run.given(["eval_steps=1"], steps=3))


def test_json_holds_values_and_origins(config, capsys):
    checking.print_resolved(config, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["training"]["hyper_parameters"]["max_steps"] == 3
    assert told["origins"]["training.hyper_parameters.max_steps"] == "--steps"


@pytest.mark.parametrize(("language", "default"), [("en", "default of gspo"), ("zh", "gspo 的默认值")])
def test_the_table_has_a_line_for_each_value(config, capsys, monkeypatch, language, default):
    monkeypatch.setenv("STROP_LANG", language)
    monkeypatch.setattr(checking, "Console", lambda **options: Console(width=160, **options))
    checking.print_resolved(config, as_json=False)
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    told = {cells[0].strip(): [cell.strip() for cell in cells[1:] if cell.strip()] for cells in lines}
    assert told["learning_rate"] == ["2e-06", "job.yaml:25"]
    assert told["max_steps"] == ["3", "--steps"]
    assert told["eval_steps"] == ["1", "--set"]
    assert told["clip_ratio_high"] == ["0.0004", default]
    assert told["functions[0].fcmodel.classpath"] == ["functions/agent.py:Agent", "job.yaml:12"]
    assert "secret-value" not in str(told)


def test_a_key_given_twice_on_the_command_line_is_refused(tmp_path):
    path = write(lay_out(tmp_path), GOOD)
    with pytest.raises(ConfigError, match="max_steps is set twice, also by --steps"):
        loaded(path, *run.given(["max_steps=4"], steps=3))
    with pytest.raises(ConfigError, match="'seed' is not KEY=VALUE"):
        loaded(path, *run.given(["seed"]))


def test_a_model_that_nothing_stands_for_is_refused_with_its_line(tmp_path):
    path = write(lay_out(tmp_path), GOOD.replace("smollm2-135m", "smollm2-135"))
    with pytest.raises(
        ConfigError, match=r"job\.yaml:2: model: no model 'smollm2-135'.*did you mean 'smollm2-135m'"
    ):
        loaded(path, *run.given([]))


AGENT = """
from strop import AbstractRolloutProcessor


class Agent(AbstractRolloutProcessor):
    async def process(self, input):
        raise NotImplementedError
"""


REWARD = """
from strop import AbstractRewardProcessor


class Right(AbstractRewardProcessor):
    def process(self, input):
        raise NotImplementedError
"""


def test_everything_that_can_be_known_is_told_at_once(tmp_path):
    """A key, a path, a row, a class that is not in its file, and one that cannot be imported."""
    folder = lay_out(tmp_path)
    (folder / "data/train.jsonl").write_text(ROW * 19 + "{}\n")
    (folder / "functions" / "agent.py").write_text("import nothing_of_that_name\n" + AGENT)
    (folder / "functions" / "reward.py").write_text(REWARD.replace("Right", "Left"))
    text = GOOD.replace("learning_rate: 2e-6", "learning_rat: 2e-6").replace(
        "validation.jsonl", "valid.jsonl"
    )
    path = write(folder, text)
    here = f"{path}:"
    with pytest.raises(ConfigError) as told:
        check_whole(path, {}, {}, load_functions=True)
    places = [one.place.removeprefix(str(folder) + "/") for one in told.value.problems]
    assert places == ["data/train.jsonl:20", "job.yaml:7", "job.yaml:12", "job.yaml:18", "job.yaml:25"]
    row, file, agent, right, key = told.value.problems
    assert "messages: missing" in row.message
    assert (file.fix, key.fix) == ("did you mean 'validation.jsonl'?", "did you mean 'learning_rate'?")
    assert "nothing_of_that_name" in agent.message
    assert "no class 'Right'" in right.message
    with pytest.raises(ConfigError) as read:
        check_whole(path, {}, {}, load_functions=False)
    assert [one.place for one in read.value.problems] == [
        f"{folder}/data/train.jsonl:20",
        *(f"{here}{line}" for line in (7, 18, 25)),
    ]
    assert "nothing is called 'Right'" in read.value.problems[2].message


@pytest.mark.parametrize(
    ("language", "last"),
    [
        (
            "en",
            ["ok: 20 training rows, 1 validation rows, 2 functions loaded", "next: strop run {} --steps 3"],
        ),
        ("zh", ["正常：训练数据 20 行，验证数据 1 行，已加载 2 个函数", "接下来：strop run {} --steps 3"]),
    ],
)
def test_a_dry_run_in_a_pipe_ends_with_the_command_that_trains(tmp_path, capsys, monkeypatch, language, last):
    monkeypatch.setenv("STROP_LANG", language)
    monkeypatch.setattr("sys.argv", ["strop"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    folder = lay_out(tmp_path)
    (folder / "functions" / "agent.py").write_text(AGENT)
    (folder / "functions" / "reward.py").write_text(REWARD)
    path = write(folder, GOOD)
    run.run(path, steps=3, dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [line.format(path) for line in last]
    assert any(line.split()[:2] == ["max_steps", "3"] for line in lines)
    run.run(path, steps=3, dry_run=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["training"]["hyper_parameters"]["max_steps"] == 3


@pytest.fixture
def good(tmp_path, monkeypatch):
    """A job whose functions load."""
    monkeypatch.setenv("STROP_LANG", "en")
    monkeypatch.setattr("sys.argv", ["strop"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    folder = lay_out(tmp_path)
    (folder / "functions" / "agent.py").write_text(AGENT)
    (folder / "functions" / "reward.py").write_text(REWARD)
    return write(folder, GOOD)


def test_a_dry_run_notes_what_the_run_would_note_before_its_first_step(good, capsys):
    run.run(good, settings=["learning_rate=0.01"], dry_run=True)
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note  ")]
    assert any(line.startswith("note  learning_rate 0.01 is ") for line in notes)
    assert any("validating on them says little" in line for line in notes)  # rows that stand in both files


def test_a_dry_run_looks_at_what_is_resumed_and_its_next_command_keeps_it(good, tmp_path, capsys):
    with pytest.raises(ConfigError, match="--resume: there is no folder or job"):
        run.run(good, dry_run=True, resume="/nope")
    out = tmp_path / "a run"
    run.run(good, dry_run=True, out=out, resume="auto", accept_changes=True)  # nothing there yet
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"next: strop run {good} --out '{out}' --resume auto --accept-changes"
    assert not out.exists()


def saved_run(folder, job, **changes):
    """A run of that job with a checkpoint of its third step."""
    config = checking.with_dtypes(load_job(job, changes))

    def load(path):
        return load_dataset(path, max_prompt_length=1, prompt_length=lambda messages, tools: 0)

    datasets = checking.load_both(config, load, id_of=lambda sample: sample.sample_id)
    start = replace(start_state(config, *datasets, code_hashes(config)), step=3)
    position = {**start.as_json(), "job_id": "ft-1", "published": False}
    place = folder / "checkpoints" / "step-000003"
    return write_checkpoint(
        place, lambda part: (part / "weights").write_bytes(b"w"), step=3, policy_version=3, position=position
    )


def test_a_dry_run_says_where_it_resumes_and_refuses_the_checkpoint_of_another_job(good, tmp_path, capsys):
    own = saved_run(tmp_path / "own", good)
    run.run(good, dry_run=True, resume=str(tmp_path / "own"))
    said = capsys.readouterr().out
    assert f"resumes from {own}; its checkpoints go to {tmp_path / 'own'}" in said
    assert said.splitlines()[-1] == f"next: strop run {good} --resume {tmp_path / 'own'}"
    saved_run(tmp_path / "other", good, learning_rate=0.02)
    with pytest.raises(CheckpointError, match=r"learning_rate was 0\.02, is 2e-06"):
        run.run(good, dry_run=True, resume=str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (AGENT.replace("class Agent", "class Agents"), "no class 'Agent'.*did you mean 'Agents'"),
        ("import nothing_of_that_name\n" + AGENT, "importing it failed.*line 1.*nothing_of_that_name"),
    ],
)
def test_a_dry_run_loads_every_class_where_the_run_would(tmp_path, source, told):
    folder = lay_out(tmp_path)
    (folder / "functions" / "agent.py").write_text(source)
    (folder / "functions" / "reward.py").write_text(REWARD)
    path = write(folder, GOOD)
    with pytest.raises(FunctionError, match=rf"(?s){told}"):
        check_whole(path, {}, {}, load_functions=True)


def test_what_only_a_cloud_has_is_no_line_of_the_table_unless_the_job_says_it(config, capsys):
    checking.print_resolved(config, as_json=False)
    assert "mtu" not in capsys.readouterr().out
