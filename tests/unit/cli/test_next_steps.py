"""What a person is told to type, as it can be typed."""

import os
import sys
from pathlib import Path

import pytest

from strop.cli.next_steps import RunCommand, after, after_failure, continuation, program

JOB = Path("my jobs/job.yaml")
TYPED = RunCommand(
    job=JOB,
    overrides={"max_steps": 5, "model": "a b", "seed": 7},
    given_by={"max_steps": "--steps", "seed": "--seed", "model": "--set"},
)
PLAIN = RunCommand(job=Path("job.yaml"))


@pytest.fixture(autouse=True)
def as_strop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROP_LANG", "en")
    monkeypatch.setattr(sys, "argv", ["strop"])


def test_the_program_is_named_so_that_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my venv"
    folder.mkdir()
    mine = folder / "strop"
    mine.write_text("#!/bin/sh")
    mine.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(mine)])
    monkeypatch.setenv("PATH", os.devnull)
    assert program() == f"'{mine}'"
    monkeypatch.setenv("PATH", str(folder))
    assert program() == "strop"
    monkeypatch.setattr(sys, "argv", ["/x/site-packages/strop/cli/__main__.py"])
    assert program() == "python -m strop.cli"


def test_a_command_repeats_the_options_that_were_given() -> None:
    assert TYPED.text(resume="ft-1") == (
        "strop run 'my jobs/job.yaml' --steps 5 --set 'model=a b' --seed 7 --resume ft-1"
    )


def told(status: str, *, checkpoint: str | None = None, published_as: str | None = None) -> list[str]:
    steps = 3 if checkpoint else 0
    ended = {
        "job_id": "ft-1",
        "status": status,
        "steps": steps,
        "checkpoint": checkpoint,
        "published_as": published_as,
    }
    return after(ended, PLAIN)


def test_a_run_that_was_ended_says_how_to_go_on_from_what_was_kept() -> None:
    assert told("CANCELED", checkpoint="/c/step-000003") == [
        "ft-1   CANCELED   3 steps",
        "resume:  strop run job.yaml --resume ft-1",
        "talk to it:  strop chat /c/step-000003",
    ]
    assert told("CANCELED") == [
        "ft-1   CANCELED   0 steps",
        "no step was finished, so there is nothing to resume",
        "begin again:  strop run job.yaml",
    ]


def test_a_finished_run_says_what_can_be_done_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("SUCCEEDED", checkpoint="/c/step-000003", published_as="polite") == [
        "ft-1   SUCCEEDED   3 steps",
        "talk to it:  strop chat polite",
        "serve it:  strop serve polite",
    ]
    monkeypatch.setenv("STROP_LANG", "zh")
    assert told("CANCELED", checkpoint="/c")[1] == "继续:  strop run job.yaml --resume ft-1"


def test_a_failed_run_says_where_its_log_is_and_how_to_go_on_once_it_is_fixed() -> None:
    for resume, rest in (("ft-1", " --resume ft-1"), (None, "")):
        lines = after_failure(PLAIN, job_id="ft-1", resume=resume).splitlines()
        assert lines == ["its log:  strop jobs logs ft-1", f"once fixed:  strop run job.yaml{rest}"]


def test_a_run_goes_on_from_the_checkpoint_that_is_named() -> None:
    assert continuation(TYPED, resume="/c/step-000003") == [
        "resume:  strop run 'my jobs/job.yaml' --steps 5 --set 'model=a b' --seed 7 --resume /c/step-000003"
    ]


def test_a_run_with_a_folder_of_its_own_is_resumed_and_begun_again_there() -> None:
    command = RunCommand(job=Path("job.yaml"), out=Path("my out"), resume="auto", accept_changes=True)
    assert continuation(command, resume="ft-1") == [
        "resume:  strop run job.yaml --out 'my out' --resume ft-1 --accept-changes"
    ]
    assert continuation(command, resume=None)[-1] == (
        "begin again:  strop run job.yaml --out 'my out' --resume auto --accept-changes"
    )
