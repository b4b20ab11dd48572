"""The init process of a box, spoken to over its socket: an order that cannot be carried out ends nothing."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop_sandbox import init


def told(channel: socket.socket) -> dict[str, Any]:
    with channel.makefile("rb") as file:
        (length,) = struct.unpack(">I", file.read(4))
        return json.loads(file.read(length))


def order(channel: socket.socket, **words: Any) -> dict[str, Any]:
    data = json.dumps(words).encode()
    channel.sendall(struct.pack(">I", len(data)) + data)
    return told(channel)


def test_a_name_that_no_file_can_have_is_an_answer_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen([sys.executable, init.__file__], stdin=theirs.fileno()) as process:
        theirs.close()
        assert told(ours)["ready"] is True
        where = {"cwd": str(tmp_path), "limit": 100, "inside": ""}
        assert "null" in order(ours, op="fetch", paths=["a\0b"], **where)["error"]
        assert "null" in order(ours, op="files", files={"a\0b": ""}, cwd=str(tmp_path))["error"]
        assert order(ours, op="fetch", paths=["a.txt"], **where)["files"] == {"a.txt": "MQ=="}
        ours.shutdown(socket.SHUT_RDWR)
        assert process.wait(30) == 0


Looks = list[tuple[float, dict[str, tuple[float, float, int, str]]]]


def waits(monkeypatch: pytest.MonkeyPatch, looks: Looks, own_s: float = 0.0) -> list[float]:
    """`init._Waits` over looks: the time, and of each thread (ran, waited, sleeps, state)."""
    threads: dict[str, tuple[float, float, int, str]] = {}
    now = 0.0

    def counts(folder: str) -> tuple[int, int, int, str]:
        ran_s, waited_s, num_sleeps, state = threads[folder]
        return round(ran_s * 1e9), round(waited_s * 1e9), num_sleeps, state

    monkeypatch.setattr(init, "_threads", lambda _: list(threads))
    monkeypatch.setattr(init, "_counts", counts)
    monkeypatch.setattr(init, "_waited_ns", lambda _: round(now * own_s * 1e9))
    monkeypatch.setattr(init, "time", SimpleNamespace(monotonic=lambda: now))
    found, one = [], init._Waits(0.0)  # pyright: ignore[reportPrivateUsage]
    for now, threads in looks:  # noqa: B007 - read by the fakes above
        one.look([1])
        found.append(round(one.total_s, 6))
    return found


def test_waits_of_programs_that_follow_each_other_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = {"a": (1.0, 3.0, 2, "S")}, {"b": (0.5, 1.5, 2, "S")}
    assert waits(monkeypatch, [(4.0, first), (6.0, second)]) == [3.0, 4.5]


def test_of_threads_that_wait_at_once_the_longest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Looks = [(4.0, {"a": (1.0, 3.0, 1, "S"), "b": (2.0, 2.0, 1, "S")})]
    assert waits(monkeypatch, looks) == [3.0]


def test_a_thread_that_never_sleeps_waits_when_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its wait is not over, which the kernel has not counted, and when all stands still."""
    looks: Looks = [
        (1.0, {"a": (1.0, 0.0, 0, "R")}),
        (2.0, {"a": (1.0, 0.0, 0, "R")}),
        (3.0, {"a": (1.2, 1.0, 0, "R")}),
        (4.0, {"a": (1.5, 1.1, 1, "Z")}),
    ]
    assert waits(monkeypatch, looks) == [0.0, 1.0, 1.8, 2.5]


def test_a_wait_that_began_before_the_last_look_counts_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Looks = [(1.0, {"a": (0.5, 0.0, 3, "R")}), (2.0, {"a": (1.0, 0.9, 4, "S")})]
    assert waits(monkeypatch, looks) == [0.0, 0.9]


def test_sleep_is_no_wait_but_for_what_came_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Looks = [(1.0, {"a": (0.1, 0.0, 1, "S")}), (9.0, {"a": (0.2, 0.3, 5, "Z")})]
    assert waits(monkeypatch, looks) == [0.0, 0.3]
    assert waits(monkeypatch, looks, own_s=0.25) == [0.0, 2.3]
