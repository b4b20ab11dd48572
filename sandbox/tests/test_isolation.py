"""What is found out about a machine, in an order that holds for every one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strop_sandbox import isolation as isolation_module
from strop_sandbox.errors import SandboxError
from strop_sandbox.isolation import Isolation, Kind, open_isolation


class FakeZygote:
    """Stands for a process beside this one, in its control group."""

    def __init__(self, begun: list[str]) -> None:
        self._begun = begun
        begun.append("zygote")

    def close(self) -> None:
        self._begun.append("closed")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order; no process is started."""
    happened: list[str] = []

    def zygote(command: object, plan: object) -> FakeZygote:
        return FakeZygote(happened)

    def groups() -> Any:
        happened.append("groups")
        raise SandboxError("none is mounted")

    def works(isolation: Isolation) -> str:
        return ""

    monkeypatch.setattr(isolation_module, "Zygote", zygote)
    monkeypatch.setattr(isolation_module, "open_cgroups", groups)
    monkeypatch.setattr(isolation_module, "_PROGRAMS", ())
    monkeypatch.setattr(isolation_module, "_try", works)
    monkeypatch.setattr(isolation_module, "_write_filter", lambda folder: None)
    return happened


def test_control_groups_are_made_before_a_process_that_version_2_would_refuse_them_for(
    begun: list[str],
) -> None:
    opened = open_isolation(Kind.UIDS)
    opened.close()
    assert begun == ["groups", "zygote", "closed"]
    assert [fact.name for fact in opened.facts] == [
        "isolation", "seccomp", "network", "boxes", "cgroup", "run delay"
    ]  # fmt: skip


def test_what_fails_later_leaves_no_process_and_no_folder(
    begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def interrupted(isolation: Isolation) -> Any:
        isolation.open_zygote()
        folders.append(isolation.folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(isolation_module, "_zygote_fact", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_isolation(Kind.UIDS)
    assert begun == ["groups", "zygote", "closed"]
    assert not folders[0].exists()


def test_each_box_of_a_large_machine_is_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are limited by user: two boxes of one would take them from each other."""
    at_once = 2 * 4 * 256  # ready and running, four a processor each
    for pid in (1, 4_194_303):
        monkeypatch.setattr(isolation_module.os, "getpid", lambda pid=pid: pid)
        made = Isolation(kind=Kind.UIDS, python="python3", folder=Path("/nowhere"), roots=(), cgroups=None)
        uids = {made.next_uid() for _ in range(at_once)}
        assert len(uids) == at_once
        assert min(uids) >= 100_000_000
        assert max(uids) < 2**31
