"""Ctrl-C at any moment: one line, exit status 130."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from strop.cli.interrupts import Interrupts, leaving_at_once

STRIKES = """\
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Strikes:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

from strop.cli import main
sys.meta_path.insert(0, Strikes())
sys.argv = ["strop", "run", "job.yaml"]
main()
"""


@pytest.mark.parametrize(
    "module", ["typer", "strop.cli.commands", "strop.cli.up", "strop.cli.resume", "strop.pipeline.config"]
)
def test_ctrl_c_while_the_command_is_being_loaded_is_one_line(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STRIKES.format(module=module)],
        cwd=tmp_path,
        env={**os.environ, "STROP_LANG": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "interrupted")


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
