"""The agent of a box, spoken to over its socket: an order that cannot be carried out ends nothing."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from strop.sandbox import agent


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
    with ours, subprocess.Popen([sys.executable, agent.__file__], stdin=theirs.fileno()) as process:
        theirs.close()
        assert told(ours)["ready"] is True
        where = {"cwd": str(tmp_path), "limit": 100, "inside": ""}
        assert "null" in order(ours, op="fetch", paths=["a\0b"], **where)["error"]
        assert "null" in order(ours, op="files", files={"a\0b": ""}, cwd=str(tmp_path))["error"]
        assert order(ours, op="fetch", paths=["a.txt"], **where)["files"] == {"a.txt": "MQ=="}
        ours.shutdown(socket.SHUT_RDWR)
        assert process.wait(30) == 0
