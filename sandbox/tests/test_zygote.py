"""What makes boxes is killed, or stands still: another takes its place, and no request is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from strop_sandbox import zygotes

AT_ONCE = 5
WORK = "import time\ntime.sleep(1)\nprint(int(input()) * 2)"


@pytest.fixture
def zygote(service) -> Any:
    """Of the sandbox, which has one where the server is root."""
    if service.sandbox.isolation.zygote is None:
        pytest.skip("boxes are started one by one here")
    return service.sandbox.isolation.zygote


def until(holds: Callable[[], bool]) -> None:
    late = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < late
        time.sleep(0.005)


def runs_while(service, disturb: Callable[[], None]) -> list[str]:
    """What programs say that run when `disturb` is called, and what one says afterwards."""
    with ThreadPoolExecutor(AT_ONCE) as callers:
        asked = [callers.submit(service.run, WORK, stdin=str(number)) for number in range(AT_ONCE)]
        until(lambda: service.sandbox.slots.num_running == AT_ONCE)
        disturb()
        replies = [one.result() for one in asked]
    replies.append(service.run(WORK, stdin="50"))
    assert [reply["status"] for reply in replies] == ["Success"] * (AT_ONCE + 1), replies
    return [reply["run_result"]["stdout"] for reply in replies]


DOUBLED = [f"{2 * number}\n" for number in (*range(AT_ONCE), 50)]


def test_programs_under_way_are_run_again_when_it_is_killed(service, zygote) -> None:
    before = zygote.pid
    assert runs_while(service, lambda: os.kill(before, signal.SIGKILL)) == DOUBLED
    assert zygote.pid != before


def test_a_submission_under_way_is_judged_again_when_it_is_killed(service, zygote) -> None:
    before = zygote.pid
    cases = [{"input": {"stdin": str(n)}, "output": {"stdout": str(2 * n)}} for n in range(6)]
    with ThreadPoolExecutor(1) as caller:
        asked = caller.submit(service.submit, f"```python\n{WORK}\n```", cases)
        until(lambda: service.sandbox.slots.num_running > 1)
        os.kill(before, signal.SIGKILL)
        told = asked.result().json()
    assert (told["accepted"], [test["passed"] for test in told["tests"]]) == (True, [True] * 6)
    assert zygote.pid != before


def test_one_that_stands_still_is_replaced_and_nobody_hangs(
    service, zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygotes, "HUNG_S", 1.0)
    before = zygote.pid
    assert runs_while(service, lambda: os.kill(before, signal.SIGSTOP)) == DOUBLED
    until(lambda: zygote.pid != before)  # whoever fills the pool notices it
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert service.run("print(1)")["run_result"]["stdout"] == "1\n"


def test_while_it_stands_still_what_stands_ready_is_served(
    service, zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygotes, "HUNG_S", 60.0)
    until(lambda: service.sandbox.pool.num_ready == service.sandbox.settings.ready)
    before = zygote.pid
    os.kill(before, signal.SIGSTOP)
    try:
        replies = [service.run("print(int(input()) * 2)", stdin=str(number)) for number in range(3)]
    finally:
        os.kill(before, signal.SIGCONT)
    assert [reply["run_result"]["stdout"] for reply in replies] == ["0\n", "2\n", "4\n"]
    until(lambda: service.sandbox.pool.num_ready == service.sandbox.settings.ready)
    assert zygote.pid == before


def test_a_program_whose_files_leave_no_memory_to_fetch_them_runs_once(
    service, caplog: pytest.LogCaptureFixture
) -> None:
    if service.sandbox.isolation.cgroups is None:
        pytest.skip("memory is not counted here")
    code = "with open('a', 'wb') as file:\n    for _ in range(60): file.write(bytes(1 << 20))"
    reply = service.run(code, memory_limit_MB=100, fetch_files=["a"])
    assert (reply["status"], reply["files"]) == ("SandboxError", {})
    assert "begun anew" not in caplog.text


def test_a_program_s_sets_have_one_order_in_every_box_and_in_an_interpreter_of_its_own(service) -> None:
    code = (
        'import subprocess, sys\nwords = \'print(hash("strop"), {"a", "b", "c"})\'\n'
        "exec(words)\nsys.stdout.flush()\nsubprocess.run([sys.executable, '-c', words])"
    )
    first, second = service.run(code)["run_result"]["stdout"].splitlines()
    assert first == second
    assert service.run(code)["run_result"]["stdout"].splitlines() == [first, second]
