"""`strop up`: the control plane on this machine, until Ctrl-C. Jobs that train go on without it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from strop.cli.text import t

if TYPE_CHECKING:
    from strop.service.first_key import FirstKey
    from strop.service.settings import Settings


def up(
    host: Annotated[
        str,
        typer.Option(help=t("Address to listen on; 0.0.0.0 opens it to the network.")),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help=t("Port; 0 takes a free one."))] = 8080,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            help=t("Jobs that train at once; others queue.")
            + " [STROP_MAX_RUNNING_JOBS, "
            + t("default 1")
            + "]",
        ),
    ] = None,
    sandbox_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help=t("Run the code sandbox beside the server, on this port of the loopback."),
        ),
    ] = None,
) -> None:
    """"""
    from strop.service.settings import settings_from_environment

    settings = settings_from_environment(host=host, port=port, max_running_jobs=jobs)
    with sandbox_beside(sandbox_port):
        serve_control_plane(settings, Console(stderr=True, markup=False, emoji=False))


@contextlib.contextmanager
def sandbox_beside(port: int | None) -> Iterator[None]:
    """`strop sandbox` as a child, where a port is given; it ends with this process, however that ends.

    Raises:
        StropError: it could not be started, or ended before it answered.
    """
    from strop.errors import StropError

    if port is None:
        yield
        return
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise StropError(
            t("--sandbox-port needs setpriv, which is not here"),
            fix=t("install util-linux, or run strop sandbox by itself"),
        )
    told = [setpriv, "--pdeathsig", "TERM", "--", sys.executable, "-m", "strop.cli", "sandbox"]
    with subprocess.Popen([*told, "--port", str(port)], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()  # it says where it answers, once it does; nothing where it ends
            if not line:
                raise StropError(
                    t(
                        "the sandbox ended with {wait} before it answered; its reason stands above",
                        wait=child.wait(),
                    ),
                    fix=t("see strop sandbox check, choose another --sandbox-port, or leave it out"),
                )
            typer.echo(line, nl=False)
            yield
        finally:
            child.terminate()


def serve_control_plane(settings: Settings, console: Console) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        StropError: the port is taken, another server has this home, or the store cannot be used.
    Side effects:
        What this process and its children make from now on is its user's alone: the store holds secrets.
    """
    import uvicorn

    from strop.cli.checking import PipelineFlow
    from strop.console import mount_console
    from strop.doors.app import create_app
    from strop.doors.connections import served_by
    from strop.doors.openai.proxy import chat_completions
    from strop.errors import StropError
    from strop.service.first_key import ensure_first_key
    from strop.service.server_file import sole_server, written_down
    from strop.workers.listening import listen

    os.umask(0o077)
    try:
        listener = listen(settings.port, host=settings.host)
    except OSError as error:
        raise StropError(
            t(
                "cannot listen on {host}:{port}: {strerror}",
                host=settings.host,
                port=settings.port,
                strerror=error.strerror,
            ),
            fix=t("choose another --port, or stop what runs there"),
        ) from error
    with listener, sole_server(settings.home):
        app = create_app(settings, PipelineFlow())
        pages = mount_console(app, app.state.services, ask=chat_completions)
        key = ensure_first_key(app.state.services.database, settings.home)
        host, port = listener.getsockname()[:2]
        reached = "127.0.0.1" if host == "0.0.0.0" else host
        address = f"http://{reached}:{port}"
        link = pages.sign_in_link(settings.public_url or address, key.key_id) if key.key_id else None
        _greet(console, f"http://{host}:{port}", key, link)
        # uvicorn raises the signal again when it is through; Python's default would end all here at once.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with written_down(settings.home, address):
            uvicorn.Server(served_by(app)).run(sockets=[listener])


def _greet(console: Console, url: str, key: FirstKey, link: str | None) -> None:
    where = str(key.path)
    lines = [
        t("Strop is up: open {url}", url=url),
        t("  the API is described at {url}/docs", url=url),
        t("  strop's own commands find it by themselves"),
        f"  export DASHSCOPE_HTTP_BASE_URL={url}/api/v1",
        f"  export DASHSCOPE_API_KEY=$(cat {where})",
    ]
    if link is not None:
        lines.insert(1, t("  sign in once, within an hour: {link}", link=link))
    if not key.is_there:
        lines[-1] = t("  the file of the first key has gone; make another with: strop keys create NAME")
    lines.append(t("Ctrl-C stops the server; jobs in training continue."))
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
