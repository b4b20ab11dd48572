"""The blob store on a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strop.store.blobs import Blobs


def test_a_blob_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(str(tmp_path / "blobs"))
    synced: list[tuple[Path, int, bool]] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        folder = place.parent if place.is_file() else place
        synced.append((folder, place.stat().st_size, blobs.exists("files/ab/abcd")))

    monkeypatch.setattr(os, "fsync", noting)
    blobs.write("files/ab/abcd", [b"who", b"le"])
    (part, size, named), (folder, _, then_named) = synced
    assert (part, size, named) == (blobs.parts_folder, 5, False)
    assert (folder, then_named) == (tmp_path / "blobs" / "files" / "ab", True)
