"""Functions that break whatever they can: each is told by its name, and nothing else is harmed by it."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from strop import AgentOutput, RewardInput
from strop.config.job import FunctionConfig
from strop.errors import FunctionError
from strop.workers.functions import FunctionPool

Until = Callable[..., Awaitable[None]]
ProcessesOf = Callable[..., list[int]]

HOSTILE = Path(__file__).parent / "hostile"

TOLD: dict[str, tuple[str, str]] = {
    # error codes that are right, and a part of the text
    "eats_memory": ("exception worker_lost", "emory"),
    "one_huge_allocation": ("exception", "MemoryError"),
    "fork_bomb": ("worker_lost", "processes; the limit is 128"),
    "opens_files": ("exception", "Too many open files"),
    "starts_threads": ("exception worker_lost", "thread"),
    "leaves": ("worker_lost", "exited with status 7"),
    "exits": ("exception", "SystemExit: 4"),
    "segfault": ("worker_lost", "SIGSEGV"),
    "python_loop": ("timeout", "did not answer within its timeout"),
    "c_loop": ("timeout", "did not answer within its timeout"),
    "alarm": ("worker_lost", "SIGALRM"),
    "closes_stdout": ("exception", "ValueError: said to nobody"),
    "prints_100_mb": ("exception", "ValueError: printed enough"),
    "deep_recursion": ("exception", "RecursionError"),
    "stack_overflow": ("worker_lost", "SIGSEGV"),
    "nan": ("invalid_output", "found nan"),
    "huge_json": ("invalid_output", "the limit is 67108864"),
    "nested_json": ("invalid_output", "JSON"),
    "unserialisable": ("invalid_output", "JSON"),
    "wrong_type": ("invalid_output", "returned float 0.7"),
    "base_exception": ("exception", "Doom: the end"),
    "generator_exit": ("exception", "GeneratorExit: out"),
    "cancels_itself": ("exception", "CancelledError"),
    "bad_str": ("exception", "Mute: <no text: its __str__ raised RuntimeError>"),
    "patches_asyncio": ("exception unreachable worker_lost timeout", ""),
    "patches_json": ("unreachable", "answered HTTP 500"),
    "kills_its_parent": ("worker_lost", "was killed by SIGKILL"),
    "closes_every_file": ("worker_lost timeout", ""),
    "deletes_its_folder": ("exception", "ValueError: nothing is left"),
    "one_huge_file": ("exception", "File too large"),
    "many_files": ("worker_lost", "its disk_size is 48"),
    "daemon_children": ("worker_lost", "SIGABRT"),
    "changes_its_world": ("invalid_output", "returned None"),
    "no_number": ("invalid_output", "expected a number"),
}
LIMITS = {"memory_size": 384, "disk_size": 48, "concurrency": 8}


def config(name: str, **fields: Any) -> FunctionConfig:
    return FunctionConfig.model_validate(
        {
            "type": "reward",
            "name": name,
            "timeout": 3.0,
            "fcmodel": {"classpath": f"{name}.py:F", "zipdir": name},
            "runtime": LIMITS,
            **fields,
        }
    )


def laid_out(tmp_path: Path, names: list[str]) -> Path:
    """Every function in a folder of its own."""
    for name in names:
        (tmp_path / name).mkdir()
        shutil.copy(HOSTILE / f"{name}.py", tmp_path / name)
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "good.py").write_text(
        "from strop import *\nclass F(AbstractRewardProcessor):\n"
        "    def process(self, input):\n        return {'reward': {'reward_score': 0.5}}\n"
    )
    return tmp_path


def asked(ground_truth: str = "") -> RewardInput:
    return RewardInput(agent_output=AgentOutput(), ground_truth=ground_truth)


def test_every_hostile_function_has_its_expectation() -> None:
    files = {path.stem for path in HOSTILE.glob("*.py")}
    assert files == {*TOLD, "blocks_at_import", "blocks_in_setup"}
    assert len(files) >= 26


@pytest.mark.parametrize("part", range(4))
async def test_each_is_told_by_name_and_harms_nobody_else(
    part: int, tmp_path: Path, processes_of: ProcessesOf
) -> None:
    names = sorted(TOLD)[part::4]
    job_id = f"job-{uuid.uuid4()}"
    configs = [config(name) for name in names] + [config("good", timeout=60.0)]
    pool = FunctionPool(
        configs, root=laid_out(tmp_path, names), job_id=job_id, on_line=lambda *_: None, grace_s=1.5
    )
    wrong: list[str] = []
    async with pool:
        for name in names:
            reply, neighbour = await asyncio.gather(pool.call(name, asked()), pool.call("good", asked()))
            codes, text = TOLD[name]
            if reply.ok or reply.error_code not in codes.split() or text not in (reply.error or ""):
                wrong.append(f"{name}: {reply.error_code}: {(reply.error or '')[:300]}")
            elif name not in (reply.error or ""):
                wrong.append(f"{name}: not named in {reply.error!r}")
            assert neighbour.ok, f"beside {name}: {neighbour.error}"
        assert not wrong, "\n".join(wrong)
        for name in set(names) - {"deletes_its_folder"}:
            # It may have broken the worker that answered last; the next one is sound.
            again = [await pool.call(name, asked("well")) for _ in range(2)]
            assert again[-1].ok, f"{name}: {again[-1].error_code}: {again[-1].error}"
    assert processes_of(job_id) == []


@pytest.mark.parametrize("name", ["blocks_at_import", "blocks_in_setup"])
async def test_one_that_never_gets_ready_is_refused_before_the_run(name: str, tmp_path: Path) -> None:
    pool = FunctionPool(
        [config(name)],
        root=laid_out(tmp_path, [name]),
        job_id="job",
        on_line=lambda *_: None,
        start_limit_s=1.5,
    )
    with pytest.raises(FunctionError, match=f"function '{name}' was not ready after 1.5 s"):
        await pool.start()
