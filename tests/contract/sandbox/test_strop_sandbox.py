"""`strop sandbox`: one program for each way of running, and a few attacks. All of them stand in sandbox/tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_python_and_what_is_compiled_read_and_print(sandbox) -> None:
    python = sandbox.run("print(sum(map(int, input().split())))", stdin="1 2\n")
    c = sandbox.run('#include <stdio.h>\nint main() { puts("3"); }', "c")
    assert [told["run_result"]["stdout"] for told in (python, c)] == ["3\n", "3\n"]
    assert (python["compile_result"], c["compile_result"]["return_code"]) == (None, 0)


def test_tests_of_pytest_pass_and_fail(sandbox) -> None:
    told = sandbox.run("def test_a(): assert 1 + 1 == 2\ndef test_b(): assert 1 + 1 == 3", "pytest")
    assert told["run_result"]["return_code"] == 1
    assert "1 failed, 1 passed" in told["run_result"]["stdout"]


def test_a_submission_is_judged_by_its_cases(sandbox) -> None:
    def submit(code: str) -> bool:
        cases = [{"input": {"stdin": f"{n}\n"}, "output": {"stdout": f"{2 * n}\n"}} for n in (1, 2)]
        config = {
            "dataset_type": "CommonOJDataset",
            "language": "python",
            "provided_data": {"test": cases},
        }
        body = {"dataset": "any", "id": 1, "completion": f"```python\n{code}\n```", "config": config}
        return sandbox.client.post("/submit", json=body).json()["accepted"]

    assert submit("print(2 * int(input()))")
    assert not submit("print(2)")


def test_cells_of_a_notebook_share_their_names(sandbox) -> None:
    body = {"cells": ["a = 20", "print(a + 22)"], "total_timeout": 60}
    told = sandbox.client.post("/run_jupyter", json=body).json()
    assert [cell["stdout"] for cell in told["cells"]] == ["", "42\n"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import socket; socket.create_connection(('1.1.1.1', 53), timeout=5)", "Network is unreachable"),
        ("import os; os.unshare = None; open('/usr/bin/x', 'w')", "Read-only file system"),
        ("import os; os.kill(1, 9); open('/proc/1/mem', 'rb')", "Permission denied"),
        ("x = bytearray(1 << 32)", ""),
    ],
    ids=["network", "files", "process 1", "memory"],
)
def test_an_attack_comes_to_nothing(sandbox, code: str, error: str) -> None:
    told = sandbox.run(code)
    assert (told["status"], told["run_result"]["return_code"] == 0) == ("Failed", False)
    assert error in told["run_result"]["stderr"]


def test_the_command_reports_what_is_wrong_as_the_others_do() -> None:
    def strop(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "strop.cli", "sandbox", *words]
        env = {**os.environ, "STROP_LANG": "en"}
        env.pop("STROP_SANDBOX_API_KEY", None)
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        return done.returncode, done.stderr

    status, told = strop("--host", "0.0.0.0")
    assert (status, "STROP_SANDBOX_API_KEY" in told) == (2, True)
    status, told = strop("check", "--isolation", "walls")
    assert (status, told.startswith("error: sandbox: 1 problem\n")) == (2, True)
    assert "--isolation: found 'walls'" in told
