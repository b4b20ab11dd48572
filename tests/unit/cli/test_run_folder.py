"""A run's folder is writable, and one process's alone, before anything loads."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strop.cli.run_folder import Earlier, claimed
from strop.errors import ConfigError
from strop.learners.local.checkpoint import write_checkpoint

HOLDER = """
import sys
from pathlib import Path
from strop.cli.run_folder import Earlier, claimed
with claimed(Path(sys.argv[1]), job_id="ft-1", earlier=Earlier.KEEP):
    print("held", flush=True)
    sys.stdin.read()
"""


def claim(folder: Path, earlier: Earlier = Earlier.REFUSE):
    return claimed(folder, job_id="ft-2", earlier=earlier)


def checkpoint(folder: Path, step: int) -> Path:
    def fill(part: Path) -> None:
        (part / "weights").write_bytes(b"w")

    place = folder / "checkpoints" / f"step-{step:06d}"
    return write_checkpoint(place, fill, step=step, policy_version=step)


def test_a_folder_is_held_by_one_process_and_free_again_when_that_is_killed(tmp_path: Path):
    folder = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=rf"in use by ft-1 \(process {holder.pid} on ") as caught:
            with claim(folder):
                raise AssertionError
        assert "another folder with --out" in str(caught.value)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with claim(folder):
            assert json.loads((folder / ".lock").read_text())["pid"] == os.getpid()


def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written to .*file/run': Not a directory"):
        with claim(tmp_path / "file" / "run"):
            raise AssertionError


def test_a_folder_on_a_full_disk_is_refused(tmp_path: Path):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".probe").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match="No space left on device"):
        with claim(tmp_path):
            raise AssertionError


def test_a_new_run_takes_no_folder_with_checkpoints_of_another(tmp_path: Path):
    checkpoint(tmp_path, 3)
    with pytest.raises(ConfigError, match="the newest step-000003") as caught:
        with claim(tmp_path):
            raise AssertionError
    assert f"--resume {tmp_path}" in str(caught.value)
    with claim(tmp_path, Earlier.KEEP):
        assert (tmp_path / "checkpoints" / "step-000003").is_dir()
    with claim(tmp_path, Earlier.REMOVE):
        assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_new_run_takes_no_folder_whose_checkpoints_are_all_damaged_either(tmp_path: Path):
    for step in (3, 4):
        (checkpoint(tmp_path, step) / "weights").write_bytes(b"x")
    newer = checkpoint(tmp_path, 5) / "manifest.json"
    newer.write_text('{"format": 99}')
    with pytest.raises(ConfigError) as caught:
        with claim(tmp_path):
            raise AssertionError
    assert "holds checkpoints of an earlier run, none of which can be used; step-000005: " in str(
        caught.value
    )
    assert "has format 99, this version reads 2" in str(caught.value)
    assert "resume with the version of strop that wrote it" in str(caught.value)
    assert "another folder with --out" in str(caught.value)
    assert sorted(one.name for one in (tmp_path / "checkpoints").iterdir()) == [
        f"step-00000{step}" for step in (3, 4, 5)
    ]


def test_what_interrupted_writes_left_is_cleared_away_but_not_the_only_one_of_its_name(tmp_path: Path):
    kept = checkpoint(tmp_path, 1)
    shelf = kept.parent
    for name in (".step-000002.part", ".leaving-step-000000", ".step-000001.replaced"):
        (shelf / name).mkdir()
    checkpoint(tmp_path, 4).rename(shelf / ".step-000004.replaced")
    with claim(tmp_path, Earlier.KEEP):
        assert sorted(one.name for one in shelf.iterdir()) == [".step-000004.replaced", "step-000001"]


def test_a_folder_that_nothing_came_into_is_gone_afterwards(tmp_path: Path):
    with claim(tmp_path / "run"):
        assert (tmp_path / "run" / "checkpoints").is_dir()
    assert not (tmp_path / "run").exists()
    with claim(tmp_path / "run"):
        (tmp_path / "run" / "notes").write_text("mine")
    assert [one.name for one in sorted((tmp_path / "run").iterdir())] == [".lock", "notes"]


def test_what_happens_inside_is_not_taken_for_the_folder_s_fault(tmp_path: Path):
    with pytest.raises(OSError, match="of the run itself"), claim(tmp_path / "run"):
        raise OSError("of the run itself")
