"""Cells -> what each printed, showed and raised: a real Jupyter kernel, in a box like any other program's."""

from __future__ import annotations

import asyncio

import orjson
from pydantic import BaseModel

from strop_sandbox.box import BoxError, RunResult
from strop_sandbox.limits import Limits
from strop_sandbox.programs import Program, decoded_files, described, encoded_files, failure, pod_name
from strop_sandbox.sandbox import Sandbox, until_kept
from strop_sandbox.toolchains import ToolchainError, Toolchains, has_package
from strop_sandbox.wire import CellResult, RunJupyterRequest, RunJupyterResponse, RunStatus

_DRIVER_S = 10.0
"""Seconds that the driver has beyond the cells', as in the reference: for the kernel's start."""

DRIVER = """
import json, os, queue, sys, time
from jupyter_client.manager import KernelManager

order = json.loads(sys.stdin.read())
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
manager = KernelManager(kernel_name="python3")
manager.start_kernel(cwd=".")
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
begun = time.monotonic()
cells = []
for source in order["cells"]:
    cell = dict(stdout="", stderr="", display=[], error=[])
    cells.append(cell)

    def take(message, cell=cell):
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            name = content["name"]
            cell[name] += content["text"][:max(0, order["output_bytes"] - len(cell[name]))]
        elif kind in ("display_data", "execute_result"):
            cell["display"].append(content["data"])
        elif kind == "error":
            cell["error"].append(content)

    left = order["total_timeout"] - (time.monotonic() - begun)
    limit = min(left, order["cell_timeout"] or left)
    try:
        client.execute_interactive(source, allow_stdin=False, output_hook=take, timeout=limit)
    except (TimeoutError, queue.Empty):
        late = time.monotonic() - begun >= order["total_timeout"]
        cell["error"].append(dict(ename="TimeoutError", evalue="the cell ran out of time", traceback=[]))
        if late:
            break
        manager.interrupt_kernel()
        client.wait_for_ready(timeout=5)
with open("cells.json", "w") as file:
    json.dump(dict(cells=cells, late=time.monotonic() - begun >= order["total_timeout"]), file)
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


async def run_jupyter(sandbox: Sandbox, request: RunJupyterRequest) -> RunJupyterResponse:
    """Run all cells, one after the other, even after an error.

    Raises:
        RequestError, FileError: the request cannot be meant as it stands.
    """
    limits = sandbox.limits(request.total_timeout + _DRIVER_S, request.memory_limit_MB)
    files = decoded_files(request.files)
    try:
        _refuse_without_kernel(sandbox.toolchains)
        program = Program(
            DRIVER, sandbox.toolchains.of("python"), compile_limits=limits, run_limits=limits, files=files
        )
        ran, told, fetched = await until_kept(lambda: _in_a_box(sandbox, program, request))
    except (ToolchainError, BoxError) as error:
        failed = failure(error)
        return RunJupyterResponse(status=failed.status, message=failed.message, executor_pod_name=pod_name())
    said = _said(told.get("cells.json"))
    done = ran.ok and said is not None and not said.late
    return RunJupyterResponse(
        status=RunStatus.SUCCESS if done else RunStatus.FAILED,
        driver=described(ran),
        cells=said.cells if said else [],
        executor_pod_name=pod_name(),
        files=encoded_files(fetched),
    )


async def _in_a_box(
    sandbox: Sandbox, program: Program, request: RunJupyterRequest
) -> tuple[RunResult, dict[str, bytes], dict[str, bytes]]:
    """How the driver ended, what it wrote down, and the files that were asked for."""
    told_of = request.model_dump(include={"cells", "cell_timeout", "total_timeout"})
    order = orjson.dumps({**told_of, "output_bytes": Limits().output_bytes}).decode()
    async with sandbox.box(asyncio.current_task()) as box:
        await program.prepare(box)
        ran = await program.run(box, order)
        told, _ = await box.fetch(["cells.json"]) if box.is_alive else ({}, [])
        wanted = request.fetch_files if box.is_alive else []
        fetched, _ = await box.fetch(wanted) if wanted else ({}, [])
    return ran, told, fetched


class _Report(BaseModel):
    """What the driver writes down. Cells can write there, too: it may be anything."""

    cells: list[CellResult]
    late: bool


def _said(content: bytes | None) -> _Report | None:
    if content is None:
        return None
    try:
        said = _Report.model_validate(orjson.loads(content))
        said.model_dump_json()  # what is nested too deeply can be read and not be sent
    except ValueError:
        return None
    return said


def _refuse_without_kernel(toolchains: Toolchains) -> None:
    if not has_package(toolchains.python, "ipykernel"):
        raise ToolchainError(
            "notebooks cannot be run here: the Python package ipykernel is not installed",
            fix="pip install 'strop-sandbox[programs]'",
        )
