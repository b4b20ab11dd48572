"""A checkpoint is whole or it is not there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from strop.errors import CheckpointError
from strop.learners.local import checkpoint
from strop.learners.local.checkpoint import (
    MANIFEST,
    Checkpoints,
    find_checkpoints,
    latest_checkpoint,
    read_manifest,
    verify_checkpoint,
    write_checkpoint,
)


def fill(folder: Path) -> None:
    (folder / "trainer").mkdir()
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    (folder / "trainer" / "state.json").write_text("{}")


def written(root: Path, step: int) -> Path:
    return write_checkpoint(
        root / f"step-{step}", fill, step=step, policy_version=2 * step, position={"row": step, "epoch": 0}
    )


def test_a_checkpoint_says_what_it_is(tmp_path: Path):
    manifest = verify_checkpoint(written(tmp_path, 3))
    assert (manifest.step, manifest.policy_version, manifest.position) == (3, 6, {"row": 3, "epoch": 0})
    assert set(manifest.files) == {"weights.bin", "trainer/state.json"}
    assert manifest.files["weights.bin"] == {"bytes": 1000, "sha256": sha256(b"w" * 1000).hexdigest()}


def test_nothing_but_the_checkpoint_is_left_in_the_folder(tmp_path: Path):
    written(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_checkpoint_of_the_same_name_is_replaced(tmp_path: Path):
    written(tmp_path, 1)
    write_checkpoint(
        tmp_path / "step-1", lambda folder: (folder / "new").touch(), step=1, policy_version=9, position={}
    )
    assert sorted(path.name for path in (tmp_path / "step-1").iterdir()) == [MANIFEST, "new"]
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "weights.bin").unlink(), "'weights.bin' is missing"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"w" * 999), "999 bytes, expected 1000"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"v" * 1000), "content of 'weights.bin'"),
        (lambda folder: (folder / "trainer" / "state.json").write_text("[]"), "'trainer/state.json'"),
        (lambda folder: (folder / MANIFEST).unlink(), "no manifest.json"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text("[" * 100_000), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text('{"format": 7}'), "format 7, this version reads 2"),
    ],
)
def test_damage_is_named_and_the_one_before_is_the_latest(damage, message: str, tmp_path: Path):
    older, newer = written(tmp_path, 1), written(tmp_path, 2)
    assert latest_checkpoint(tmp_path) == newer
    damage(newer)
    with pytest.raises(CheckpointError, match=message):
        verify_checkpoint(newer)
    assert latest_checkpoint(tmp_path) == older


@pytest.mark.parametrize(
    "edit",
    [
        {"files": []},
        {"files": {}},
        {"files": None},
        {"step": "2"},
        {"position": {}},
        {"position": {"row": 9, "epoch": 0}},
        {"policy_version": 5},
        {"more": 1},
        {"sha256": None},
    ],
)
def test_an_edited_manifest_is_refused_by_its_file_with_the_mend(edit: dict, tmp_path: Path):
    place = written(tmp_path, 2) / MANIFEST
    place.write_text(json.dumps({**json.loads(place.read_text()), **edit}))
    with pytest.raises(CheckpointError, match=r"manifest\.json' is not as it was written") as caught:
        verify_checkpoint(tmp_path / "step-2")
    assert "fix: put the original back, or resume from another checkpoint" in str(caught.value)


def test_a_manifest_that_was_only_laid_out_anew_still_counts(tmp_path: Path):
    place = written(tmp_path, 2) / MANIFEST
    place.write_text(json.dumps(json.loads(place.read_text())))
    assert verify_checkpoint(tmp_path / "step-2").step == 2


def test_checkpoints_that_cannot_be_used_are_told_of_beside_the_newest_that_can(tmp_path: Path):
    for step in (1, 2, 3):
        written(tmp_path, step)
    (tmp_path / "step-3" / MANIFEST).unlink()
    (tmp_path / "step-2" / "weights.bin").unlink()
    (tmp_path / "step-4").mkdir()  # nothing in it: nobody's
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "step-notes" / "a.txt").write_text("mine")
    found = find_checkpoints(tmp_path)
    assert found.newest == tmp_path / "step-1"
    assert [(folder.name, error.message.split(": ")[-1]) for folder, error in found.unusable] == [
        ("step-3", "it has no manifest.json"),
        ("step-2", "'weights.bin' is missing"),
    ]
    assert [folder.name for folder, _ in find_checkpoints(tmp_path, beyond=2).unusable] == ["step-3"]
    (tmp_path / "step-1" / "weights.bin").unlink()
    assert (find_checkpoints(tmp_path).newest, len(find_checkpoints(tmp_path).unusable)) == (None, 3)


def test_a_position_of_another_job_is_refused_before_anything_is_loaded(tmp_path: Path):
    class Part:
        loaded = False

        def save(self, folder: Path) -> None:
            (folder / "part").write_text("x")

        def load(self, folder: Path) -> None:
            self.loaded = True

    def refuse(position: Mapping[str, Any]) -> None:
        raise CheckpointError(f"not mine: {position}")

    part = Part()
    folder = Checkpoints(part).write(tmp_path / "step-1", step=1, policy_version=1, position={"row": 7})
    with pytest.raises(CheckpointError, match=r"not mine: \{'row': 7\}"):
        Checkpoints(part).load(folder, refuse)
    assert not part.loaded
    assert Checkpoints(part).load(folder, lambda position: None) == {"row": 7}
    assert part.loaded


def test_a_checkpoint_and_its_successor_change_places_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written(tmp_path, 1)
    names: list[list[str]] = []
    exchange = checkpoint._exchange

    def watched(one: Path, other: Path) -> bool:
        names.append(sorted(path.name for path in tmp_path.iterdir()))
        done = exchange(one, other)
        names.append(sorted(path.name for path in tmp_path.iterdir()))
        return done

    monkeypatch.setattr(checkpoint, "_exchange", watched)
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("renamed in two steps"))
    write_checkpoint(tmp_path / "step-1", fill, step=7, policy_version=7)
    assert names == [[".step-1.part", "step-1"]] * 2
    assert read_manifest(tmp_path / "step-1").step == 7


def test_a_folder_of_another_name_is_not_taken_for_the_run_s_newest(tmp_path: Path):
    written(tmp_path, 1)
    written(tmp_path, 2).rename(tmp_path / "left-1-step-2")
    assert latest_checkpoint(tmp_path) == tmp_path / "step-1"


def test_the_latest_is_that_of_the_highest_step_and_not_of_the_last_name(tmp_path: Path):
    written(tmp_path, 10)
    written(tmp_path, 9)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-10"
    assert latest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "refusal", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device")]
)
def test_a_failed_write_leaves_the_older_one_and_no_trace(refusal: Exception, tmp_path: Path):
    older = written(tmp_path, 1)

    def full_disk(folder: Path) -> None:
        fill(folder)
        raise refusal

    for name in ("step-1", "step-2"):
        with pytest.raises(CheckpointError, match=f"{name}' cannot be written: .*No space left"):
            write_checkpoint(tmp_path / name, full_disk, step=2, policy_version=4)
    assert latest_checkpoint(tmp_path) == older
    assert read_manifest(older).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CheckpointError, match=r"file/checkpoints/step-1' cannot be written: .*Not a directory"
    ):
        write_checkpoint(tmp_path / "file" / "checkpoints" / "step-1", fill, step=1, policy_version=0)


def test_a_position_that_is_not_json_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="not JSON"):
        write_checkpoint(tmp_path / "step-1", fill, step=1, policy_version=0, position={"seen": {1, 2}})
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_write_left_is_removed_by_the_next(tmp_path: Path):
    (tmp_path / ".step-2.part").mkdir()
    (tmp_path / ".step-2.part" / "weights.bin").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) is None
    written(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]


KILLED = """
import os, sys
from pathlib import Path
from strop.learners.local import checkpoint

root, moment = Path(sys.argv[1]), int(sys.argv[2])

def die(*_):
    os.kill(os.getpid(), 9)

def fill(folder):
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    if moment == 0:
        die()
    (folder / "more.bin").write_bytes(b"m" * 1000)

if moment == 1:
    checkpoint._describe_all = die
if moment == 2:
    checkpoint._sync_tree = die
if moment == 3:  # the old folder of that name is aside, the new one not there yet
    checkpoint._exchange = lambda one, other: False
    rename = Path.rename
    Path.rename = lambda path, target: die() if path.name.endswith(".part") else rename(path, target)
if moment == 4:
    checkpoint._sync = lambda path, sync=checkpoint._sync: die() if path == root else sync(path)
checkpoint.write_checkpoint(root / sys.argv[3], fill, step=2, policy_version=2)
"""


@pytest.mark.parametrize("name", ["step-2", "step-1"])
@pytest.mark.parametrize("moment", range(5))
def test_a_kill_at_any_moment_of_writing_leaves_a_whole_checkpoint(moment: int, name: str, tmp_path: Path):
    written(tmp_path, 0)
    written(tmp_path, 1)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(moment), name], check=False)
    assert done.returncode == -signal.SIGKILL
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert read_manifest(latest).step == (2 if moment == 4 else 1)
    aside = moment == 3 and name == "step-1"  # the one that was set aside is found there
    assert latest.name == (".step-1.replaced" if aside else name if moment == 4 else "step-1")
    written(tmp_path, 2 if name == "step-2" else 1)  # and the next write is not in the way of what is left
    assert not [path for path in os.listdir(tmp_path) if path.startswith(".")]


def test_a_learner_killed_while_it_saves_leaves_a_whole_checkpoint_each_time():
    """The small version of `make soak`'s 50 kills at random moments."""
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "soak.saving", "2"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert "newest whole checkpoint found after 2 of 2 kills" in done.stdout


TOO_LARGE = """
import resource, sys
from pathlib import Path
from strop.errors import CheckpointError
from strop.learners.local.checkpoint import write_checkpoint

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

def fill(folder):
    (folder / "weights.bin").write_bytes(b"w" * 200_000)

try:
    write_checkpoint(Path(sys.argv[1]) / "step-2", fill, step=2, policy_version=2)
except CheckpointError as error:
    print(error)
"""


def test_a_disk_that_takes_no_more_is_named_and_the_one_before_stays(tmp_path: Path):
    older = written(tmp_path, 1)
    done = subprocess.run(
        [sys.executable, "-c", TOO_LARGE, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert "step-2' cannot be written: " in done.stdout
    assert "fix: free some disk space there" in done.stdout
    assert latest_checkpoint(tmp_path) == older
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
