"""`strop doctor`: this machine -> what of Strop works here, each found by trying, and what to do about the rest.

Looks and changes nothing: no model is fetched, no database made, no port kept.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from strop import __version__
from strop.cli.text import pick, t, told
from strop.errors import StropError
from strop.locales import msg
from strop.store.home import home

_GB = 1_000_000_000
MEMORY_GB = 4
"""A run of the bundled model takes about 3."""
DISK_GB = 2
"""The bundled model takes 0.6, each of its checkpoints that can be resumed as much again and more."""
PORT = 8080
_EXTRAS = {
    "parquet": "pyarrow",
    "postgres": "psycopg",
    "sandbox": "jupyter_client",
    "rewards": "math_verify",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
}
"""Optional parts by a package that only they bring."""


class State(StrEnum):
    OK = "ok"
    LATER = "later"
    """Not there yet; comes by itself when it is needed."""
    WARNING = "warning"
    BROKEN = "broken"


_WORDS = {
    State.OK: msg("ok"),
    State.LATER: msg("later"),
    State.WARNING: msg("warning"),
    State.BROKEN: msg("BROKEN"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one look."""

    name: str
    state: State
    text: str
    fix: str | None = None


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help=t("Print JSON on stdout."))] = False,
) -> None:
    """"""
    findings = [look() for look in LOOKS]
    broken = [one for one in findings if one.state is State.BROKEN]
    if as_json:
        from strop.cli.remote import print_json

        print_json({"works": not broken, "findings": [asdict(one) for one in findings]})
    else:
        for one in findings:
            print(f"{one.name:<10} {told(_WORDS[one.state]):<8} {one.text}")
            if one.fix is not None:
                print(f"{'':<19} {t('fix')}: {one.fix}")
    raise typer.Exit(1 if broken else 0)


def _python() -> Finding:
    text = (
        f"Strop {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    return Finding(name="python", state=State.OK, text=text)


def _torch() -> Finding:
    try:
        import torch
        import transformers
    except (ImportError, OSError) as error:  # OSError: a library of its own that does not load
        return Finding(
            name="torch",
            state=State.BROKEN,
            text=t("cannot be imported: {error}", error=error),
            fix="pip install 'strop[train]'",
        )
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    text = t(
        "torch {version}, transformers {version2}, {threads} of {cores} threads",
        version=torch.__version__,
        version2=transformers.__version__,
        threads=threads,
        cores=cores,
    )
    return Finding(name="torch", state=State.OK, text=text)


def _memory() -> Finding:
    free = _available_memory()
    text = t("{free:.1f} GB available", free=free / _GB)
    if free >= MEMORY_GB * _GB:
        return Finding(name="memory", state=State.OK, text=text)
    return Finding(
        name="memory",
        state=State.WARNING,
        text=text,
        fix=t(
            "close other programs: training the bundled model takes up to {memory_gb} GB", memory_gb=MEMORY_GB
        ),
    )


def _available_memory() -> int:
    """Bytes that can be had without swapping, as far as the system tells; else all there are."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk() -> Finding:
    """Where `STROP_HOME` is, or will be."""
    there = next(one for one in (home(), *home().parents) if one.exists())
    free = shutil.disk_usage(there).free
    text = t("{free:.0f} GB free for {home}", free=free / _GB, home=home())
    elsewhere = t("name another folder by STROP_HOME")
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        text = t("{there} cannot be written", there=there)
        return Finding(name="disk", state=State.BROKEN, text=text, fix=elsewhere)
    state = State.OK if free >= DISK_GB * _GB else State.WARNING
    return Finding(name="disk", state=state, text=text, fix=None if state is State.OK else elsewhere)


def _database() -> Finding:
    from strop.store.database import database_url

    try:
        url = database_url()
    except StropError as error:
        return Finding(name="database", state=State.BROKEN, text=error.message, fix=error.fix)
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        told = t("{shown}: the first run makes it", shown=shown)
        return Finding(name="database", state=State.LATER, text=told)
    from sqlalchemy import create_engine
    from sqlalchemy.exc import SQLAlchemyError

    from strop.store.schema_version import newest_revision, revision_of

    try:
        engine = create_engine(url)
        with engine.connect() as connection:
            found = revision_of(connection)
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        reason = str(error).splitlines()[0]
        return Finding(
            name="database",
            state=State.BROKEN,
            text=t("{shown} cannot be read: {reason}", shown=shown, reason=reason),
            fix=t("check STROP_DATABASE_URL or STROP_HOME"),
        )
    if found is None:
        told = t("{shown}: the first run makes its tables", shown=shown)
        return Finding(name="database", state=State.LATER, text=told)
    if found > newest_revision():
        return Finding(
            name="database",
            state=State.BROKEN,
            text=t("{shown} was written by a newer Strop", shown=shown),
            fix=t("upgrade strop, or name another by STROP_DATABASE_URL or STROP_HOME"),
        )
    return Finding(name="database", state=State.OK, text=shown)


def _model() -> Finding:
    from strop.schema.model import BUNDLED

    folder = home() / "models" / BUNDLED
    if folder.is_dir():
        return Finding(
            name="model", state=State.OK, text=t("{bundled} is in {folder}", bundled=BUNDLED, folder=folder)
        )
    text = t("{bundled} is fetched by the first run that names it (93 MB)", bundled=BUNDLED)
    return Finding(name="model", state=State.LATER, text=text)


def _server() -> Finding:
    from strop.client.place import running_server

    if (url := running_server()) is not None:
        text = t("runs at {url}", url=url)
        return Finding(name="server", state=State.OK, text=text)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            return Finding(
                name="server",
                state=State.WARNING,
                text=t("port {port} cannot be had: {strerror}", port=PORT, strerror=error.strerror),
                fix="strop up --port 0",
            )
    text = t("none runs; port {port} is free for strop up", port=PORT)
    return Finding(name="server", state=State.OK, text=text)


def _sandbox() -> Finding:
    """Only jobs that run what a model wrote need it."""
    from strop_sandbox.errors import SandboxError
    from strop_sandbox.isolation import open_isolation

    try:
        opened = open_isolation()
    except (SandboxError, OSError) as error:
        fix = error.fix if isinstance(error, SandboxError) else None
        return Finding(
            name="sandbox",
            state=State.WARNING,
            text=str(error).splitlines()[0],
            fix=fix or "strop sandbox check",
        )
    try:
        lacking = [pick(fact.text, fact.zh) for fact in opened.facts if not fact.holds]
    finally:
        opened.close()
    if lacking:
        text = f"{opened.kind}; " + t("but: ") + "; ".join(lacking)
        return Finding(name="sandbox", state=State.WARNING, text=text, fix="strop sandbox check")
    text = t("isolates what a model wrote ({kind})", kind=opened.kind)
    return Finding(name="sandbox", state=State.OK, text=text)


def _gpu() -> Finding:
    # As far as the device files tell.
    number = sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())
    text = (
        t("{number} seen; training and sampling run on the CPU", number=number)
        if number
        else t("none; none is needed")
    )
    return Finding(name="gpu", state=State.OK, text=text)


def _extras() -> Finding:
    there = [name for name, package in _EXTRAS.items() if importlib.util.find_spec(package) is not None]
    missing = [name for name in _EXTRAS if name not in there]
    text = ", ".join(there) or t("none")
    if missing:
        names = ", ".join(missing)
        text += t("; not installed: {names}", names=names)
    return Finding(name="extras", state=State.OK, text=text)


LOOKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _torch,
    _memory,
    _disk,
    _database,
    _model,
    _server,
    _sandbox,
    _gpu,
    _extras,
)
