"""`strop run --dry-run`: JSON for programs, a table with origins for people."""

import json
from importlib import import_module

import pytest
from rich.console import Console

from fakes.job_files import GOOD, lay_out, write
from strop.errors import ConfigError, FunctionError

run = import_module("strop.cli.run")  # the package has the command of that name


@pytest.fixture
def config(tmp_path):
    path = write(lay_out(tmp_path), GOOD)
    return run.load(path, *run.given(["eval_steps=1"], steps=3))


def test_json_holds_values_and_origins(config, capsys):
    run.print_resolved(config, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["training"]["hyper_parameters"]["max_steps"] == 3
    assert told["origins"]["training.hyper_parameters.max_steps"] == "--steps"


@pytest.mark.parametrize(("language", "default"), [("en", "default of gspo"), ("zh", "gspo 的默认值")])
def test_the_table_has_a_line_for_each_value(config, capsys, monkeypatch, language, default):
    monkeypatch.setenv("STROP_LANG", language)
    monkeypatch.setattr(run, "Console", lambda **options: Console(width=160, **options))
    run.print_resolved(config, as_json=False)
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
        run.load(path, *run.given(["max_steps=4"], steps=3))
    with pytest.raises(ConfigError, match="'seed' is not KEY=VALUE"):
        run.load(path, *run.given(["seed"]))


def test_a_model_that_nothing_stands_for_is_refused_with_its_line(tmp_path):
    path = write(lay_out(tmp_path), GOOD.replace("smollm2-135m", "smollm2-135"))
    with pytest.raises(
        ConfigError, match=r"job\.yaml:2: model: no model 'smollm2-135'.*did you mean 'smollm2-135m'"
    ):
        run.load(path, *run.given([]))


AGENT = """
from strop import AbstractRolloutProcessor


class Agent(AbstractRolloutProcessor):
    async def process(self, input):
        raise NotImplementedError
"""


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
    config = run.load(write(folder, GOOD), *run.given([]))
    with pytest.raises(FunctionError, match=rf"(?s){told}"):
        run.check_functions(config)


def test_what_only_a_cloud_has_is_no_line_of_the_table_unless_the_job_says_it(config, capsys):
    run.print_resolved(config, as_json=False)
    assert "mtu" not in capsys.readouterr().out
