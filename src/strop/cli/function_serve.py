"""`strop functions serve`: one function behind DashScope's container protocol, as a training run would host it."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strop.cli.function_calls import (
    GRACE_S,
    START_LIMIT_S,
    ClassPath,
    RootOption,
    TimeoutOption,
    TypeOption,
    print_line,
    refuse_contradiction,
    spec_of,
)
from strop.cli.text import t, told
from strop.errors import FunctionError
from strop.schema.function import FunctionType

if TYPE_CHECKING:
    from strop.workers.app import Served
    from strop.workers.instance import Instance
    from strop.workers.spec import WorkerSpec

_LOOK_S = 0.3
"""Seconds between two looks at the files."""
_NOT_CODE = frozenset({"node_modules", "__pycache__", "venv", "build", "dist"})


def serve(
    classpath: ClassPath,
    func_type: TypeOption = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help=t("0 takes a free one."))] = 0,
    root: RootOption = Path(),
    timeout: TimeoutOption = 600.0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help=t("Worker processes."))] = 1,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help=t("Start new workers when a Python file below --root changes, without interrupting calls."),
        ),
    ] = False,
) -> None:
    # Only here: `strop --help` needs no web server.
    from strop.workers.worker import end_process, prepare

    spec = spec_of(classpath, root, timeout)
    code = 0
    try:
        if reload or workers > 1:
            asyncio.run(_serve_pool(spec, func_type, port, workers=workers, reload=reload))
        else:
            prepare(spec)
            asyncio.run(_serve_here(spec, func_type, port))
    except KeyboardInterrupt:
        pass
    except OSError as error:
        typer.echo(t("cannot listen on port {port}: {error}", port=port, error=error), err=True)
        code = 1
    except FunctionError as error:
        typer.echo(told(error.told), err=True)
        code = 1
    end_process(code)


async def _serve_here(spec: WorkerSpec, wanted: FunctionType | None, port: int) -> None:
    """The function in this process: a debugger stops in it."""
    from strop.workers.executor import open_executor

    executor = await open_executor(spec)
    refuse_contradiction(executor.func_type, wanted, spec)
    await _answer(executor, port)


async def _serve_pool(
    spec: WorkerSpec, wanted: FunctionType | None, port: int, *, workers: int, reload: bool
) -> None:
    """The function in workers, which a change of the code replaces one after another."""
    from strop.workers.instance import Instance, new_client
    from strop.workers.pooled import PooledExecutor
    from strop.workers.size import PoolSize

    async with new_client() as client:
        instance = Instance(
            spec,
            job_id="local-serve",
            client=client,
            on_line=print_line,
            grace_s=GRACE_S,
            start_limit_s=START_LIMIT_S,
            size=PoolSize(initial=workers, smallest=workers, largest=workers),
        )
        try:
            func_type = await instance.start()
            refuse_contradiction(func_type, wanted, spec)
            watching = asyncio.create_task(_reload(instance)) if reload else None
            await _answer(PooledExecutor(instance, func_type), port)
            if watching is not None:
                watching.cancel()
        finally:
            await instance.close()


async def _answer(executor: Served, port: int) -> None:
    from strop.workers.app import create_app
    from strop.workers.listening import listen, serve

    listener = listen(port)
    token = secrets.token_urlsafe(24)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    header = f"-H 'Authorization: Bearer {token}'"
    print(
        t("{func_type} function {class_name}", func_type=executor.func_type, class_name=executor.class_name),
        f"  URL    {url}/api/v1",
        f"  token  {token}",
        t("try it:"),
        f"  curl -s {url}/api/v1 {header} -H 'Content-Type: application/json' -d @input.json",
        f"  curl -s {url}/health {header}",
        t("Ctrl-C ends it."),
        sep="\n",
        flush=True,
    )
    await serve(create_app(executor, token), listener)


async def _reload(instance: Instance) -> None:
    """Look at the files again and again; what does not start is told, and the old code goes on."""
    root = instance.spec.root
    known = await asyncio.to_thread(_stamps, root)
    while True:
        await asyncio.sleep(_LOOK_S)
        found = await asyncio.to_thread(_stamps, root)
        if found == known:
            continue
        known = found
        try:
            await instance.restart(replace(instance.spec))
        except FunctionError as error:
            told = t("the changed code does not start; the old code stays in use")
            print(f"{told}: {error}", file=sys.stderr, flush=True)
        else:
            print(t("reloaded"), flush=True)


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every Python file below `root`."""
    return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in _python_files(root)}


def _python_files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_CODE and not name.startswith(".")]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                try:
                    yield path, os.stat(path)
                except OSError:  # gone meanwhile; the next look sees it
                    continue
