"""What a killed server left half-written."""

from __future__ import annotations

import os
from pathlib import Path

from strop.server.leftovers import OLD_S, clear_leftovers
from strop.store.blobs import Blobs


def aged(path: Path, seconds: float) -> Path:
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))
    return path


def test_what_is_old_and_half_written_goes_and_all_else_stays(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "blobs"))
    for name in (
        "arriving",
        "bundles/.new",
        "bundles/whole",
        "layers/.x",
        "jobs/checked/data",
        "blobs/.parts",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "jobs" / "trained" / "checkpoints").mkdir(parents=True)
    (tmp_path / "arriving" / "old").write_bytes(b"x")
    (tmp_path / "arriving" / "new").write_bytes(b"x")
    (tmp_path / "blobs" / ".parts" / "old").write_bytes(b"x")
    blobs.write("files/ab/abcd", [b"whole"])
    old = ("arriving/old", "bundles/.new", "bundles/whole", "layers/.x", "jobs/checked", "jobs/trained")
    for name in (*old, "blobs/.parts/old", "blobs/files/ab/abcd"):
        aged(tmp_path / name, OLD_S + 1)
    assert clear_leftovers(tmp_path, blobs) == 5
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left >= {
        "arriving/new", "bundles/whole", "jobs/trained/checkpoints", "blobs/files/ab/abcd",
    }  # fmt: skip
    assert not left & {"arriving/old", "bundles/.new", "layers/.x", "jobs/checked", "blobs/.parts/old"}


def test_a_blob_that_is_being_written_lies_on_the_stores_own_disk_and_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "blobs"))
    sink = blobs.begin("files/ab/abcd")
    sink.write(b"half")
    (part,) = (tmp_path / "blobs" / ".parts").iterdir()
    assert part.stat().st_dev == (tmp_path / "blobs").stat().st_dev
    assert not blobs.exists("files/ab/abcd")
    sink.discard()
    assert list((tmp_path / "blobs" / ".parts").iterdir()) == []
    assert blobs.write("files/ab/abcd", [b"whole"]).size == 5
    with blobs.open("files/ab/abcd") as file:
        assert file.read() == b"whole"
    assert list((tmp_path / "blobs" / ".parts").iterdir()) == []
