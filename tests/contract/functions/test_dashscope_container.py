"""The same classes through our worker and through the real container server of `dashscope`: equal JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.dashscope_project import environment
from fakes.development_guide import INPUTS, OUTPUTS, write_functions

pytestmark = pytest.mark.slow

KINDS = {
    "Rollout": "rollout",
    "PlainReward": "reward",
    "Safety": "reward",
    "Containing": "group_reward",
    "Broken": "reward",
}

USER = {"role": "user", "content": "x"}
MORE = {
    "Safety": [
        {"agent_output": {"messages": [{"role": "assistant", "content": "how to HACK it"}]}},
        {"agent_output": {"messages": []}, "ground_truth": {"any": ["thing"]}},
        {"agent_output": {"messages": [{"role": "user", "content": None}], "unknown": 1}},
    ],
    "PlainReward": [
        {"ground_truth": "4", "agent_output": {"messages": [{"role": "assistant", "content": "it is 4"}]}},
    ],
    "Containing": [
        {"agent_outputs": [], "ground_truth": "x"},
        {"agent_outputs": [{"messages": []}, {"messages": [USER]}], "ground_truth": "x"},
    ],
    "Rollout": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guide")
    write_functions(folder)
    return folder


@contextlib.contextmanager
def container(folder: Path, name: str) -> Iterator[str]:
    """The real server around one class; waits until it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "FUNC_TYPE": KINDS[name],
        "PROCESSOR_CLASS": f"guide.{name}",
        "SERVER_PORT": str(port),
        "WORKERS_COUNT": "1",
        "PYTHONPATH": str(folder),
        "HOME": str(folder),
        "NO_PROXY": "*",
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "STROP_"))}
    python = environment("2.0.2") / "python"
    module = "dashscope.finetune.reinforcement.component.server.server"
    log = (folder / f"{name}.log").open("w+")
    process = subprocess.Popen(
        [str(python), "-W", "ignore", "-m", module],
        cwd=folder,
        env={**inherited, **settings},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(trust_env=False) as client:
            while True:
                assert process.poll() is None, Path(log.name).read_text()
                time.sleep(0.02)  # between looks, not instead of them
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{url}/health").status_code == 200:
                        break
        yield url
    finally:
        process.terminate()
        process.wait(20)
        log.close()


async def ours(
    folder: Path, name: str, inputs: list[dict[str, Any]], *, with_package: bool = False
) -> list[Any]:
    """The worker's own answers, byte by byte what it sends; by the import door, or with the real package."""
    from strop.workers.masking import Mask
    from strop.workers.process import WorkerProcess
    from strop.workers.spec import WorkerSpec

    (packages,) = (environment("2.0.2").parent / "lib").glob("python*/site-packages")
    env = {"PYTHONPATH": str(packages)} if with_package else {}
    spec = WorkerSpec(name=name, classpath=f"guide.{name}", root=folder, timeout_s=20, env=env)
    worker = WorkerProcess(spec, job_id="conformance", mask=Mask(()), on_line=lambda *_: None)
    await worker.start(limit_s=60, on_stuck=lambda: None)
    try:
        headers = {"authorization": f"Bearer {worker.token}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
            url = f"http://127.0.0.1:{worker.port}/api/v1"
            answers = [await client.post(url, json=values, timeout=30) for values in inputs]
    finally:
        await worker.kill()
    return [(answer.status_code, answer.json()) for answer in answers]


@pytest.mark.parametrize("name", list(INPUTS))
def test_the_same_class_gives_the_same_json(guide: Path, name: str) -> None:
    inputs = [INPUTS[name], *MORE[name]]
    with container(guide, name) as url, httpx.Client(trust_env=False) as client:
        answers = [client.post(f"{url}/api/v1", json=values, timeout=30) for values in inputs]
        theirs = [(answer.status_code, answer.json()) for answer in answers]
    mine = asyncio.run(ours(guide, name, inputs))
    assert mine == theirs
    assert mine[0] == (200, OUTPUTS[name])
    if name == "Safety":
        assert asyncio.run(ours(guide, name, inputs, with_package=True)) == theirs


BROKEN = """

@reward_func("broken")
class Broken(AbstractRewardProcessor):
    @sub_reward_func("good", sub_weight=0.5)
    def good(self, input):
        return scored(1.0)

    @sub_reward_func("judge", sub_weight=0.5)
    async def judge(self, input):
        raise ValueError("no verdict")
"""


def test_a_part_that_fails_is_hidden_there_and_told_here(guide: Path) -> None:
    module = guide / "guide.py"
    if "Broken" not in module.read_text():
        module.write_text(module.read_text() + BROKEN)
    call = {"agent_output": {"messages": []}}
    with container(guide, "Broken") as url, httpx.Client(trust_env=False) as client:
        theirs = client.post(f"{url}/api/v1", json=call, timeout=30).json()
    assert (theirs["status"], theirs["reward"]["reward_score"]) == ("success", 0.5)
    for with_package in (False, True):
        ((status, mine),) = asyncio.run(ours(guide, "Broken", [call], with_package=with_package))
        assert (status, mine["status"], mine["error_code"]) == (200, "failed", "exception")
        assert mine["error"].startswith("sub-reward 'judge' raised ValueError: no verdict (guide.py, line ")
