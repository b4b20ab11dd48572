"""A control group as files: what a run added to it, on kernels that forget an earlier peak and on others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strop_sandbox import cgroups
from strop_sandbox.cgroups import Cgroup


def test_a_peak_that_is_for_reading_only_tells_of_what_rises_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refusing(path: Path, flags: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags)

    monkeypatch.setattr(cgroups.os, "open", refusing)
    group = Cgroup(cgroups._V2, tmp_path / "box", tmp_path / "box")  # pyright: ignore[reportPrivateUsage]
    (tmp_path / "box" / "memory.current").write_text("100\n")
    peak = tmp_path / "box" / "memory.peak"
    peak.write_text("150\n")
    group.count_anew()
    assert group.grown_bytes() == 0
    peak.write_text("400\n")
    assert group.grown_bytes() == 300
