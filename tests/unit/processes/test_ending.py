"""A process is ended with what it started; how it ended is said in words."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from strop.processes.ending import end_tree, exit_text

LINGERS = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
{then}
"""


@pytest.mark.parametrize(
    ("then", "by_itself"), [("child.kill(); child.wait()", True), ("child.wait()", False)]
)
def test_a_process_has_its_grace_and_is_then_killed_with_its_descendants(then: str, by_itself: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LINGERS.format(then=then)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    descendant = psutil.Process(int(process.stdout.readline()))
    process.stdin.close()
    assert end_tree(process, grace_s=30 if by_itself else 0.2) is by_itself
    process.stdout.close()
    assert process.returncode == (0 if by_itself else -9)
    psutil.wait_procs([descendant], timeout=10)
    assert not descendant.is_running()


def test_an_exit_status_is_said_in_both_languages() -> None:
    assert exit_text(3) == "exited with status 3"
    assert exit_text(-9) == "was killed by SIGKILL"
    assert exit_text(-9).render("zh") == "被 SIGKILL 杀死"
    assert exit_text(-99) == "was killed by signal 99"
