"""Channel -> a running function: the process that hosts one processor.

`python -m strop.workers.worker FD`. FD is an inherited socket to the pool: one line comes in, events go out
(`ready`, `error`, `stuck`; from the reaper `memory`, `full`, `over`), and its closing ends the process. What
user code prints goes to stdout and stderr and can never be taken for an event. Heavy imports wait until the
reaper has been left behind.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from strop.errors import FunctionError
from strop.processes.child import open_channel
from strop.processes.watch import Watch
from strop.workers.spec import WorkerSpec

_MAX_ERROR_CHARS = 100_000


def main() -> None:
    """Become a reaper and a worker; the worker serves until it is killed."""
    report, text = open_channel(int(sys.argv[1]), limits_of=_watch)
    spec, token = WorkerSpec.from_json(text)
    prepare(spec)

    code = 0
    try:
        asyncio.run(_serve(spec, token, report))
    except FunctionError as error:
        report(event="error", text=str(error)[:_MAX_ERROR_CHARS])
        code = 1
    end_process(code)


def _watch(text: str) -> Watch | None:
    spec, _ = WorkerSpec.from_json(text)
    if spec.scratch is None:
        return None
    return Watch(limits=spec.limits, scratch=spec.scratch, name=spec.scratch.name)


def prepare(spec: WorkerSpec) -> None:
    """Make the root the place where the function's imports and its child processes' imports start.

    Side effects: PYTHONPATH, the working directory and the buffering of this process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Whole lines at once: unbuffered, prints of two threads would end up in one line.
            stream.reconfigure(line_buffering=True, write_through=False)
    root = str(spec.root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    if spec.root.is_dir():
        os.chdir(root)


async def _serve(spec: WorkerSpec, token: str, report: Callable[..., None]) -> None:
    # Imported before the root comes into sys.path, where a user's file may have the name of a library's.
    from strop.workers.app import create_app
    from strop.workers.executor import open_executor
    from strop.workers.listening import listen, serve

    executor = await open_executor(spec)
    executor.on_stuck = lambda: report(event="stuck")
    listener = listen(0)
    report(
        event="ready",
        port=listener.getsockname()[1],
        func_type=executor.func_type,
        class_name=executor.class_name,
        sub_weights=executor.sub_weights,
        untraced=executor.untraced,
    )
    await serve(create_app(executor, token), listener)


def end_process(code: int) -> NoReturn:
    """Leave without waiting for threads: one of the user's may never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
