"""`strop sandbox` as a process: it says where it answers, asks for its key, and ends with who started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from strop.errors import ConfigError, StropError
from strop.sandbox.cgroups import Cgroups, open_cgroups
from strop.sandbox.isolation import Kind, open_isolation


@contextmanager
def running(*arguments: str, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "strop.cli", "sandbox", "--port", "0", *arguments]
    told = {**os.environ, "STROP_LANG": "en", **env}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=told) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.split(" at ")[1].split()[0], process
        finally:
            process.terminate()
            assert process.wait(30) == 0


def eventually_gone(pid: int) -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_a_key_opens_it_as_a_token_or_in_the_path() -> None:
    body = {"code": "print(1)", "language": "python"}
    with running("--max-running", "1", STROP_SANDBOX_API_KEY="open-sesame") as (url, _):
        assert httpx.post(f"{url}/run_code", json=body).status_code == 401
        assert httpx.post(f"{url}/key/wrong/run_code", json=body).status_code == 401
        told = httpx.post(
            f"{url}/run_code", json=body, headers={"authorization": "Bearer open-sesame"}, timeout=60
        )
        assert told.json()["run_result"]["stdout"] == "1\n"
        assert (
            httpx.post(f"{url}/key/open-sesame/run_code", json=body, timeout=60).json()["status"] == "Success"
        )
        assert httpx.get(f"{url}/v1/ping").status_code == 200


def test_more_than_may_wait_is_refused_with_when_to_come_again() -> None:
    from concurrent.futures import ThreadPoolExecutor

    body = {"code": "import time; time.sleep(1)", "language": "python"}
    with running("--max-running", "1", "--max-waiting", "1") as (url, _), ThreadPoolExecutor(6) as callers:
        replies = list(callers.map(lambda _: httpx.post(f"{url}/run_code", json=body, timeout=60), range(6)))
    assert {reply.status_code for reply in replies} == {200, 429}
    refused = next(reply for reply in replies if reply.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert "detail" in refused.json()


def test_an_address_that_others_reach_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from strop.cli.sandbox import refuse_open_door

    refuse_open_door("127.0.0.1", None)
    refuse_open_door("0.0.0.0", "key")
    with pytest.raises(ConfigError, match="STROP_SANDBOX_API_KEY"):
        refuse_open_door("0.0.0.0", None)


def test_without_bubblewrap_it_refuses_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StropError, match="bubblewrap") as refused:
        open_isolation()
    assert "--isolation none" in str(refused.value)
    opened = open_isolation(Kind.NONE)
    assert [fact.holds for fact in opened.facts if fact.name in ("isolation", "seccomp", "network")] == [
        False
    ] * 3
    opened.close()


def test_what_holds_is_told_in_the_language_of_the_session() -> None:
    command = [sys.executable, "-m", "strop.cli", "sandbox", "check", "--isolation", "none"]
    for language, there, elsewhere in (
        ("zh", "无隔离", "NONE: programs"),
        ("en", "NONE: programs", "无隔离"),
    ):
        told = subprocess.check_output(command, text=True, env={**os.environ, "STROP_LANG": language})
        assert (there in told, elsewhere in told) == (True, False)


def test_any_user_s_way_holds_too() -> None:
    """The way of who is not root, here with root's server becoming nobody first; the system's interpreter."""
    code = "import os\ntry:\n    open('/proc/sys/kernel/core_pattern', 'w')\nexcept OSError: print('refused', os.getuid())"
    told = ("--isolation", "userns", "--python", "/usr/bin/python3", "--max-running", "1")
    with running(*told, PATH="/usr/bin:/bin") as (url, _):
        body = {"code": code, "language": "python"}
        assert (
            httpx.post(f"{url}/run_code", json=body, timeout=60).json()["run_result"]["stdout"]
            == "refused 1000\n"
        )


def test_without_walls_programs_run_and_are_cleared_away() -> None:
    code = "import os, time\npid = os.fork()\nif pid == 0:\n    os.setsid(); time.sleep(600)\nprint(pid, flush=True)\nos._exit(0)"
    with running("--isolation", "none", "--max-running", "1") as (url, _):
        told = httpx.post(f"{url}/run_code", json={"code": code, "language": "python"}, timeout=60).json()
        assert eventually_gone(int(told["run_result"]["stdout"]))
        body = {"code": "1", "language": "python", "files": {"/tmp/strop-test-absolute": ""}}
        assert httpx.post(f"{url}/run_code", json=body, timeout=60).status_code == 400


def test_killed_without_warning_it_leaves_no_box(tmp_path) -> None:
    with running("--max-running", "2") as (_, process):
        children = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True
        ).stdout.split()
        assert len(children) >= 2
        process.kill()
        process.wait()
        assert all(eventually_gone(int(pid)) for pid in children)
        process.returncode = 0


def test_groups_of_version_2_are_made_below_one_s_own(tmp_path) -> None:
    """By the files that the kernel would have: this machine's own groups are tried at every start."""
    own = tmp_path / "mounts" / "user"
    own.mkdir(parents=True)
    (tmp_path / "mounts" / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/user\n")
    (own / "cgroup.controllers").write_text("cpu\n")
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.procs").write_text("")
    with pytest.raises(StropError, match="not delegated"):
        open_cgroups(tmp_path / "proc", tmp_path / "mounts")
    (own / "cgroup.subtree_control").write_text("memory pids")
    groups = Cgroups(2, own, own)
    assert (groups.root / "cgroup.subtree_control").read_text() == "+memory +pids"
    group = groups.make()
    group.limit(memory_bytes=100, processes=5)
    folder = groups.root / "box-1"
    assert (folder / "memory.max").read_text() == str(100 + 24 * 2**20)
    assert (folder / "pids.max").read_text() == "7"
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    assert group.num_oom_kills() == 3
