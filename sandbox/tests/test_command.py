"""`strop-sandbox` as a process: it says where it answers, asks for its key, and ends with who started it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from strop_sandbox.cgroups import Cgroups, open_cgroups
from strop_sandbox.errors import ConfigError, SandboxError
from strop_sandbox.isolation import Kind, open_isolation


@contextmanager
def running(*arguments: str, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "strop_sandbox", "--port", "0", *arguments]
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


def below(pid: int) -> set[int]:
    """Processes that it started, and those that they did."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


KEY = "open-sesame"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A server with a key that takes one request and lets one more wait."""
    with running("--max-running", "1", "--max-waiting", "1", STROP_SANDBOX_API_KEY=KEY) as (url, _):
        yield url


def test_a_key_opens_it_as_a_token_or_in_the_path(guarded: str) -> None:
    body = {"code": "print(1)", "language": "python"}
    token = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=guarded, timeout=60) as client:
        assert client.post("/run_code", json=body).status_code == 401
        assert client.post("/key/wrong/run_code", json=body).status_code == 401
        assert client.post("/run_code", json=body, headers=token).json()["run_result"]["stdout"] == "1\n"
        assert client.post(f"/key/{KEY}/run_code", json=body).json()["status"] == "Success"
        assert client.get("/v1/ping").status_code == 200


async def test_more_than_may_wait_is_refused_with_when_to_come_again(guarded: str) -> None:
    body = {"code": "import time; time.sleep(600)", "language": "python", "run_timeout": 600}
    async with httpx.AsyncClient(base_url=f"{guarded}/key/{KEY}", timeout=60) as client:
        held = [asyncio.ensure_future(client.post("/run_code", json=body)) for _ in range(2)]
        try:
            while "strop_sandbox_requests 2.0" not in (await client.get("/metrics")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            refused = await client.post("/run_code", json=body)
        finally:
            for one in held:
                one.cancel()
            await asyncio.gather(*held, return_exceptions=True)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "detail" in refused.json()


def test_an_address_that_others_reach_needs_a_key() -> None:
    from strop_sandbox.cli import refuse_open_door

    refuse_open_door("127.0.0.1", None)
    refuse_open_door("0.0.0.0", "key")
    with pytest.raises(ConfigError, match="STROP_SANDBOX_API_KEY"):
        refuse_open_door("0.0.0.0", None)


def test_wrong_usage_is_told_once_and_ends_with_2() -> None:
    def ended(*words: str) -> tuple[int, str]:
        env = {name: value for name, value in os.environ.items() if name != "STROP_SANDBOX_API_KEY"}
        command = [sys.executable, "-m", "strop_sandbox", *words]
        done = subprocess.run(command, capture_output=True, text=True, env={**env, "STROP_LANG": "en"})
        return done.returncode, done.stderr

    status, told = ended("--host", "0.0.0.0")
    assert (status, "STROP_SANDBOX_API_KEY" in told) == (2, True)
    assert ended("check", "--isolation", "walls") == (
        2,
        "error: sandbox: 1 problem\n  --isolation: found 'walls' (write auto, userns, uids, none)\n",
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, told = ended("--port", str(taken.getsockname()[1]), "--isolation", "none")
    assert (status, "fix: choose another port" in told) == (1, True)


def test_help_and_errors_load_no_web_framework() -> None:
    code = (
        "import strop_sandbox.cli, strop_sandbox.errors, strop_sandbox.judged, sys;"
        " print({'fastapi', 'uvicorn', 'httpx', 'pydantic'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@pytest.mark.parametrize("words", [["--datasets", "/"], ["check"]])
def test_the_command_names_bubblewrap_before_it_looks_at_anything_else(words: list[str]) -> None:
    env = {**os.environ, "STROP_LANG": "en", "PATH": "/nowhere", "STROP_SANDBOX_PYTHON": "/no/python"}
    command = [sys.executable, "-m", "strop_sandbox", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    first, fix = done.stderr.splitlines()
    assert (
        first
        == "error: programs cannot be isolated here: not installed: bubblewrap (bwrap), util-linux (prlimit)"
    )
    assert "apt install bubblewrap util-linux" in fix


def test_a_sandbox_without_a_key_answers_to_the_names_that_it_was_given() -> None:
    with running("--trusted-host", "box.internal", "--max-running", "1", "--isolation", "none") as (url, _):
        found = [
            httpx.get(f"{url}/languages", headers={"host": name}).status_code
            for name in ("localhost", "box.internal", "rebound.example")
        ]
    assert found == [200, 200, 403]


def test_without_bubblewrap_it_refuses_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="bubblewrap") as refused:
        open_isolation()
    assert "--isolation none" in str(refused.value)
    opened = open_isolation(Kind.NONE)
    assert [fact.holds for fact in opened.facts if fact.name in ("isolation", "seccomp", "network")] == [
        False
    ] * 3
    opened.close()


def test_what_holds_is_told_in_the_language_of_the_session() -> None:
    command = [sys.executable, "-m", "strop_sandbox", "check", "--isolation", "none"]
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


def test_a_program_that_kills_its_box_where_there_are_no_walls_runs_once(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = f"import os, signal\nopen({str(ran)!r}, 'a').write('x')\nos.kill(os.getppid(), signal.SIGKILL)"
    with running("--isolation", "none", "--max-running", "1") as (url, _):
        told = httpx.post(f"{url}/run_code", json={"code": code, "language": "python"}, timeout=60).json()
    assert (told["status"], ran.read_text()) == ("SandboxError", "x")


def test_killed_without_warning_it_leaves_no_box(tmp_path) -> None:
    with running("--max-running", "2") as (_, process):
        children = below(process.pid)
        assert len(children) >= 3  # what makes boxes, and the boxes
        process.kill()
        process.wait()
        assert all(eventually_gone(pid) for pid in children)
        process.returncode = 0


MOVER = """
import os, sys
from pathlib import Path
from strop_sandbox.cgroups import _make_room
folder = Path(sys.argv[1])
(folder / "cgroup.procs").write_text(str(os.getpid()))
for _ in sys.stdin:
    try:
        _make_room(folder, (sys.argv[2],))
        print("made", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def delegated() -> Iterator[tuple[Path, str]]:
    """A group of version 2 of the kernel's own, and a controller that it may hand on."""
    mounts = [
        line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line
    ]
    if not mounts or os.geteuid() != 0 or not os.access(mounts[0], os.W_OK):
        pytest.skip("needs root and a cgroup2 mount")
    top = Path(mounts[0])
    controllers = (top / "cgroup.controllers").read_text().split()
    if not controllers:
        pytest.skip("version 2 has no controller here")
    control = top / "cgroup.subtree_control"
    was_on = controllers[0] in control.read_text().split()
    control.write_text(f"+{controllers[0]}")
    folder = top / f"strop-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder, controllers[0]
    finally:
        (folder / "cgroup.subtree_control").write_text(f"-{controllers[0]}")
        if (folder / "strop-server").exists():
            (folder / "strop-server").rmdir()
        folder.rmdir()
        if not was_on:
            control.write_text(f"-{controllers[0]}")


def test_in_version_2_no_process_is_moved_but_one_s_own(delegated: tuple[Path, str]) -> None:
    folder, controller = delegated

    def members(group: Path) -> set[int]:
        return set(map(int, (group / "cgroup.procs").read_text().split()))

    command = [sys.executable, "-c", MOVER, str(folder), controller]
    with (
        subprocess.Popen(["sleep", "600"]) as neighbour,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as mover,
    ):
        assert mover.stdin is not None
        assert mover.stdout is not None

        def ask() -> str:
            mover.stdin.write("\n")
            mover.stdin.flush()
            return mover.stdout.readline()

        try:
            (folder / "cgroup.procs").write_text(str(neighbour.pid))
            assert ask().startswith("1 other processes are in the same group")
            assert members(folder) == {neighbour.pid, mover.pid}
            assert not (folder / "strop-server").exists()
            neighbour.kill()
            neighbour.wait()
            assert ask() == "made\n"
            assert (members(folder), members(folder / "strop-server")) == (set(), {mover.pid})
            assert (folder / "cgroup.subtree_control").read_text().split() == [controller]
            assert ask() == "made\n"
        finally:
            neighbour.kill()
            mover.stdin.close()
            mover.wait(30)


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
    with pytest.raises(SandboxError, match="not delegated"):
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
