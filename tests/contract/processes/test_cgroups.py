"""Control groups of version 2, on the kernel's own tree; its controllers may belong to version 1 here."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.processes.cgroups import Cgroup

FORKS = """
import os, sys, time
for _ in range(4):
    os.fork()
sys.stdout.write(".")
sys.stdout.flush()
time.sleep(3600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A new group of version 2."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    tree = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if tree is None or not os.access(tree, os.W_OK):
        pytest.skip("no control groups of version 2 that this user may make")
    made = tree / f"strop-test-{uuid.uuid4().hex}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of version 2 can be made: {error}")
    yield made
    if made.is_dir():
        Cgroup({"": made}).kill()
        Cgroup({"": made}).remove()


def test_all_processes_of_a_version_2_group_are_ended_and_the_group_removed(folder: Path) -> None:
    group = Cgroup({"": folder})
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read(1); " + f"exec({FORKS!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        group.enter(process.pid)
        process.stdin.write(b"x")
        process.stdin.flush()
        assert len(process.stdout.read(16)) == 16  # each of the 16 has told that it runs
        assert len(group._pids()) == 16
        group.kill()
        assert process.wait(20) == -9
        assert process.stdout.read() == b""  # no descendant holds the pipe any more
    group.remove()
    assert not folder.exists()
