"""The command line to a stranger: whatever is typed ends in a message and a status, never in a traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from fakes.job_files import GOOD, edited, lay_out, write
from strop.cli.commands import app, command_line


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STROP_LANG", "en")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("STROP_URL", raising=False)
    made = lay_out(tmp_path)
    write(made, GOOD)
    monkeypatch.chdir(made)
    return made


def ends(monkeypatch, capsys, *words: str) -> tuple[object, str]:
    """(exit status, stderr) of a command."""
    monkeypatch.setattr("sys.argv", ["strop", *words])
    with pytest.raises(SystemExit) as caught:
        command_line()
    return caught.value.code, capsys.readouterr().err


def commands(group, name: str = "strop") -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Each with the words that call it."""
    context = group.context_class(group)
    for word in group.list_commands(context):
        one = group.get_command(context, word)
        if hasattr(one, "commands"):
            yield from commands(one, f"{name} {word}")
        else:
            yield f"{name} {word}", one


@pytest.mark.parametrize(
    "command", [pytest.param(one, id=name) for name, one in commands(typer.main.get_command(app))]
)
def test_every_default_is_a_value_that_its_own_option_takes(command: typer.core.TyperCommand) -> None:
    context = command.context_class(command)
    for option in command.params:
        default = option.get_default(context)
        if default is not None and not option.required:
            assert option.process_value(context, default) == default, option.name


TYPED = [
    (("run",), "Missing argument"),
    (("run", ""), "cannot be read: Is a directory"),
    (("run", "."), "cannot be read: Is a directory"),
    (("run", "none.yaml"), "cannot be read: No such file"),
    (("run", "a\udcff.yaml"), "a name that is not UTF-8"),
    (("run", "x" * 5000), "cannot be read: File name too long"),
    (("run", "job.yaml", "--out", ""), "an empty text names no folder"),
    (("run", "job.yaml", "--out", "  "), "an empty text names no folder"),
    (("run", "job.yaml", "--out", "a\udcff"), "contains half a character"),
    (("demo", "--out", ""), "an empty text names no folder"),
    (("run", "job.yaml", "--out", "/dev/null"), "checkpoints cannot be written to '/dev/null'"),
    (("run", "job.yaml", "--out", "job.yaml"), "checkpoints cannot be written to"),
    (("run", "job.yaml", "--out", "x" * 5000), "checkpoints cannot be written to"),
    (("run", "job.yaml", "--resume", ""), "--resume: an empty text names nothing"),
    (("run", "job.yaml", "--resume", " "), "--resume: an empty text names nothing"),
    (("run", "job.yaml", "--resume", "ft-none"), "there is no folder or job 'ft-none'"),
    (("run", "job.yaml", "--resume", "x" * 5000), "there is no folder"),
    (("run", "job.yaml", "--resume", "../.."), "holds no complete one"),
    (("run", "job.yaml", "--resume", "auto"), "add --out FOLDER"),
    (("run", "job.yaml", "--steps", "0"), "Invalid value for '--steps'"),
    (("run", "job.yaml", "--steps", "x"), "Invalid value for '--steps'"),
    (("run", "job.yaml", "--steps", "9" * 30), "must lie in [1, 10000000]"),
    (("run", "job.yaml", "--steps", "9" * 5000), "Invalid value for '--steps'"),
    (("run", "job.yaml", "--seed", "-1"), "--seed: training.hyper_parameters.seed: must lie in [0, "),
    (("run", "job.yaml", "--seed", "1e3"), "Invalid value for '--seed'"),
    (("run", "job.yaml", "--set"), "requires an argument"),
    (("run", "job.yaml", "--set", ""), "'' is not KEY=VALUE"),
    (("run", "job.yaml", "--set", "=5"), "'=5' is not KEY=VALUE"),
    (("run", "job.yaml", "--set", "max_steps"), "'max_steps' is not KEY=VALUE"),
    (("run", "job.yaml", "--set", "max_steps="), "max_steps: expected a whole number, found the text ''"),
    (("run", "job.yaml", "--set", "max_steps==5"), "found the text '=5'"),
    (("run", "job.yaml", "--set", " =5"), "unknown key"),
    (("run", "job.yaml", "--set", "[red]=5"), "red: unknown key"),
    (("run", "job.yaml", "--set", "model=[red]x[/red]"), "no model '[red]x[/red]'"),
    (("run", "job.yaml", "--set", "\x1b[31mx=5"), "\\x1b: unknown key"),
    (("run", "job.yaml", "--set", "functions.timeout=5"), "functions[0].timeout"),
    (("run", "job.yaml", "--set", "functions.-1.timeout=5"), "there is no functions.-1 to change"),
    (("run", "job.yaml", "--set", "seed=5", "--seed", "6"), "seed is set twice, also by --seed"),
    (("run", "job.yaml", "--set", "max_steps=5", "--set", "num_steps=6"), "are one key"),
    (("run", "job.yaml", "--set", "training.type=sft"), "functions: have no effect in training type sft"),
    (("run", "job.yaml", "--set", "mode=sft", "--set", "training.type=dpo"), "contradicts training.type"),
    (("run", "job.yaml", "--set", "target_modules=[q_proj]"), "a list"),
    (("run", "job.yaml", "--set", "target_modules.0=q_proj"), "target_modules"),
    (("run", "job.yaml", "--set", "name=" + "x" * 300), "is too long: 300 characters"),
    (("run", "job.yaml", "--set", "tuned_model_name=a/b"), "cannot be a name"),
    (("run", "job.yaml", "--set", "workspace_dir=/dev/null"), "no such folder: /dev/null"),
    (("run", "job.yaml", "--set", "workspace_dir=" + "x" * 5000), "no such folder"),
    (("run", "job.yaml", "--set", "datasets.0.file_name=."), "no such file"),
    (("run", "job.yaml", "--set", "datasets.0.file_name=/dev/zero"), "no such file"),
    (("run", "job.yaml", "--set", "functions.0.fcmodel.classpath=:"), "names no class"),
    (("run", "job.yaml", "--set", "functions.0.fcmodel.zipdir=/etc/passwd"), "no such folder"),
    (("run", "job.yaml", "extra[/bold]"), "unexpected extra argument"),
    (("run", "job.yaml", "--sett", "a=b"), "No such option"),
    (("run", "job.yaml", "--server", ""), ""),
    (("run", "job.yaml", "--server", "nonsense"), ""),
    (("run", "job.yaml", "--server", "http://127.0.0.1:1", "--out", "x"), "is a folder of this machine"),
    (("rum",), "No such command"),
    (("jobs", "show", "\udcff"), ""),
    (("chat", ""), ""),
    (("chat", "no-such-model", "-m", "x"), "no model 'no-such-model'"),
    (("chat", "x", "-m", "x", "--temperature", "1e-45"), "temperature must be 0 (greedy) or lie in"),
    (("chat", "x", "-m", "x", "--temperature", "nan"), ""),
    (("serve", "no-such-model", "--port", "0"), "no model 'no-such-model'"),
    (("data", "check", "none.jsonl"), "No such file"),
    (("data", "check", "data"), "Is a directory"),
    (("init", ""), ""),
]


@pytest.mark.parametrize(("words", "message"), TYPED, ids=[str(number) for number in range(len(TYPED))])
def test_what_a_stranger_types_ends_in_a_message_and_a_status(folder, monkeypatch, capsys, words, message):
    status, said = ends(monkeypatch, capsys, *words)
    assert status in (1, 2), said
    assert message in said
    assert "Traceback" not in said
    assert said.strip()


def test_a_dry_run_reads_the_rows_of_all_files(folder, monkeypatch, capsys):
    (folder / "data/train.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n' * 20)
    (folder / "data/validation.jsonl").write_text('\n{"message": []}\n')
    status, said = ends(monkeypatch, capsys, "run", "job.yaml", "--dry-run")
    assert status == 2
    assert "data/validation.jsonl:2: messages: missing" in said


SPOILT = [
    ("job_name: calculator", '"[red]": 1', "[red]: unknown key"),
    ("job_name: calculator", '"\\e[31m": 1', "\\x1b[31m: unknown key"),
    ("job_name: calculator", "? {a: b}\n: c", "a key must be plain text"),
    ("model: smollm2-135m", 'model: "\\U0011ffff"', "not YAML"),
    ("model: smollm2-135m", "model: !!binary aGk=", "the tag"),
    ("model: smollm2-135m", "model: !!set {a}", ""),
    ("model: smollm2-135m", "model: 2001-01-01\n%YAML 1.3", ""),
    ("model: smollm2-135m", "model: {name: {name: x}}", "model.name: expected text, found a section"),
    ("model: smollm2-135m", "model: !<tag:yaml.org,2002:int> 5x", "does not fit its tag"),
    ("  - type: training", "  - 5", ""),
    ("  - type: rollout", "  -\n    - type: rollout", ""),
    ("    name: agent", "    name: [agent]", "functions[0].name: expected text, found a list"),
    ("    name: agent", "    preset: nothing_like_it", ""),
    ("        JUDGE_KEY: secret-value", "        5: {a: [b]}", ""),
    ("training:\n", "training: {}\nx:\n", "x: unknown key"),
    ("    n_rollouts: 4", "    n_rollouts: 4\n    n_rollouts: 4", "appears twice"),
    ("    learning_rate: 2e-6", "    learning_rate: [2e-6]", "expected a number, found a list"),
]


@pytest.mark.parametrize(("old", "new", "message"), SPOILT)
def test_what_a_file_says_ends_in_a_message_and_a_status(folder, monkeypatch, capsys, old, new, message):
    write(folder, edited(old, new))
    status, said = ends(monkeypatch, capsys, "run", "job.yaml", "--dry-run")
    assert status == 2, said
    assert message in said
    assert "Traceback" not in said
    assert "\x1b" not in said


def test_output_that_nobody_reads_to_the_end_ends_the_command_without_a_word(tmp_path) -> None:
    """As `strop doctor --json | head -1`, with a reader that is gone before the first line is written."""
    with subprocess.Popen(
        [sys.executable, "-m", "strop.cli", "doctor", "--json"],
        env={**os.environ, "STROP_HOME": str(tmp_path / "home"), "STROP_LANG": "en"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == ""
    assert command.returncode == 128 + signal.SIGPIPE
