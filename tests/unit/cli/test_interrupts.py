"""Ctrl-C at any moment: one line, exit status 130."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from strop.cli.interrupts import Interrupts, leaving_at_once

BEGIN = """\
import os, sys
import _signal  # `signal` itself is one of the imports to strike at
_signal.signal(_signal.SIGINT, _signal.default_int_handler)
strike = lambda: os.kill(os.getpid(), _signal.SIGINT)
"""

AT_IMPORT = (
    BEGIN
    + """\
def hear(event, arguments):
    if event == "import" and arguments[0] == {module!r} and main_runs:
        main_runs.clear()
        strike()

main_runs = []
sys.addaudithook(hear)
from strop.cli import main
main_runs.append(True)
sys.argv = ["strop", "run", "job.yaml"]
main()
"""
)

AT_EXIT = (
    BEGIN
    + """\
import atexit, threading
from strop.cli import main

def strike_when_main_has_ended():
    threading.main_thread().join()
    strike()

{registered}
sys.argv = ["strop", "--version"]
main()
"""
)


def ends(code: str, folder: Path) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "STROP_LANG": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.strip()


@pytest.mark.parametrize(
    "module",
    [
        "strop.cli.interrupts",
        "signal",
        "enum",
        "asyncio",
        "strop.cli.commands",
        "typer",
        "rich.console",
        "strop.cli.next_steps",
        "pydantic",
        "strop.cli.run_folder",
        "strop.config.loading",
    ],
)
def test_ctrl_c_while_the_command_is_being_loaded_is_one_line(module, tmp_path):
    assert ends(AT_IMPORT.format(module=module), tmp_path) == (130, "", "interrupted")


def test_nothing_is_loaded_before_a_command_knows_what_ctrl_c_does():
    code = "import sys; before = set(sys.modules); import strop.cli; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "__future__",
        "strop",
        "strop.locales",
        "strop.cli",
        "strop.cli.text",
    }


@pytest.mark.parametrize(
    "registered",
    ["atexit.register(strike)", "threading.Thread(target=strike_when_main_has_ended).start()"],
    ids=["when all is torn down", "while threads are waited for"],
)
def test_ctrl_c_after_the_last_word_is_one_line(registered, tmp_path):
    status, said, error = ends(AT_EXIT.format(registered=registered), tmp_path)
    assert (status, said.split()[0], error) == (130, "strop", "interrupted")


def test_ctrl_c_typed_at_the_command_while_it_loads_is_one_line(tmp_path):
    """The program itself, from outside: struck once it says, by `-v`, that it loads the commands."""
    with subprocess.Popen(
        [sys.executable, "-v", "-m", "strop.cli", "run", "job.yaml"],
        cwd=tmp_path,
        env={**os.environ, "STROP_LANG": "en"},
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it puts in the background deaf to Ctrl-C, and so would this be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as command:
        try:
            assert command.stderr is not None
            # It waits for its reader, so it cannot be through before it is struck.
            fcntl.fcntl(command.stderr, fcntl.F_SETPIPE_SZ, 4096)
            assert any("strop/cli/commands.py" in line for line in command.stderr)
            command.send_signal(signal.SIGINT)
            lines = [line.rstrip() for line in command.stderr]
        finally:
            command.kill()
    told = [line for line in lines if line and not line.startswith(("import ", "# "))]
    assert (command.returncode, told) == (130, ["interrupted"])


def strike() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_before_the_job_is_there_the_first_is_remembered():
    said = []
    with Interrupts(lambda: said.append("ending")) as interrupts:
        interrupts.check()
        strike()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert said == []


def test_then_the_first_and_the_second_do_what_they_are_told():
    said, done = [], [threading.Event(), threading.Event()]
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(lambda: said.append("ending")) as interrupts:
        interrupts.steer(done[0].set, done[1].set)
        strike()
        assert done[0].wait(10)
        assert not done[1].is_set()
        strike()
        assert done[1].wait(10)
        assert said == ["ending"]
        interrupts.rest()
        with pytest.raises(KeyboardInterrupt):
            strike()
    assert signal.getsignal(signal.SIGINT) is before


def test_one_that_came_while_the_job_was_made_cancels_it():
    said, done = [], threading.Event()
    with Interrupts(lambda: said.append("ending")) as interrupts:
        strike()
        interrupts.steer(done.set, lambda: None)
        assert done.wait(10)
    assert said == ["ending"]


def test_what_a_shell_started_deaf_stays_deaf_until_a_job_begins():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with leaving_at_once():
            strike()
    finally:
        signal.signal(signal.SIGINT, before)
