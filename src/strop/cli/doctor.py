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
from strop.cli.text import t
from strop.errors import StropError
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
    State.OK: ("ok", "正常"),
    State.LATER: ("later", "稍后"),
    State.WARNING: ("warning", "注意"),
    State.BROKEN: ("BROKEN", "不可用"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one look."""

    name: str
    state: State
    text: str
    fix: str | None = None


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help=t("Print JSON on stdout.", "在标准输出打印 JSON。"))
    ] = False,
) -> None:
    """"""
    findings = [look() for look in LOOKS]
    broken = [one for one in findings if one.state is State.BROKEN]
    if as_json:
        from strop.cli.remote import print_json

        print_json({"works": not broken, "findings": [asdict(one) for one in findings]})
    else:
        for one in findings:
            print(f"{one.name:<10} {t(*_WORDS[one.state]):<8} {one.text}")
            if one.fix is not None:
                print(f"{'':<19} {t('fix', '修正')}: {one.fix}")
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
            text=t(f"cannot be imported: {error}", f"无法导入：{error}"),
            fix="pip install 'strop[train]'",
        )
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    text = t(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {threads} of {cores} threads",
        f"torch {torch.__version__}，transformers {transformers.__version__}，使用 {cores} 个线程中的 {threads} 个",
    )
    return Finding(name="torch", state=State.OK, text=text)


def _memory() -> Finding:
    free = _available_memory()
    text = t(f"{free / _GB:.1f} GB available", f"可用 {free / _GB:.1f} GB")
    if free >= MEMORY_GB * _GB:
        return Finding(name="memory", state=State.OK, text=text)
    return Finding(
        name="memory",
        state=State.WARNING,
        text=text,
        fix=t(
            f"close other programs: training the bundled model takes up to {MEMORY_GB} GB",
            f"关闭其他程序：训练内置模型最多需要 {MEMORY_GB} GB",
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
    text = t(f"{free / _GB:.0f} GB free for {home()}", f"{home()} 可用空间 {free / _GB:.0f} GB")
    elsewhere = t("name another folder by STROP_HOME", "用 STROP_HOME 指定其他目录")
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        text = t(f"{there} cannot be written", f"{there} 不可写")
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
        told = t(f"{shown}: the first run makes it", f"{shown}：首次运行时创建")
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
            text=t(f"{shown} cannot be read: {reason}", f"无法读取 {shown}：{reason}"),
            fix=t("check STROP_DATABASE_URL or STROP_HOME", "检查 STROP_DATABASE_URL 或 STROP_HOME"),
        )
    if found is None:
        told = t(f"{shown}: the first run makes its tables", f"{shown}：首次运行时建表")
        return Finding(name="database", state=State.LATER, text=told)
    if found > newest_revision():
        return Finding(
            name="database",
            state=State.BROKEN,
            text=t(f"{shown} was written by a newer Strop", f"{shown} 由更新版本的 Strop 写入"),
            fix=t(
                "upgrade strop, or name another by STROP_DATABASE_URL or STROP_HOME",
                "升级 strop，或用 STROP_DATABASE_URL 或 STROP_HOME 指定其他数据库",
            ),
        )
    return Finding(name="database", state=State.OK, text=shown)


def _model() -> Finding:
    from strop.schema.model import BUNDLED

    folder = home() / "models" / BUNDLED
    if folder.is_dir():
        return Finding(
            name="model", state=State.OK, text=t(f"{BUNDLED} is in {folder}", f"{BUNDLED} 位于 {folder}")
        )
    text = t(
        f"{BUNDLED} is fetched by the first run that names it (93 MB)",
        f"首个使用 {BUNDLED} 的任务会下载它（93 MB）",
    )
    return Finding(name="model", state=State.LATER, text=text)


def _server() -> Finding:
    from strop.client.place import running_server

    if (url := running_server()) is not None:
        text = t(f"runs at {url}", f"正在运行：{url}")
        return Finding(name="server", state=State.OK, text=text)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            return Finding(
                name="server",
                state=State.WARNING,
                text=t(
                    f"port {PORT} cannot be had: {error.strerror}", f"端口 {PORT} 不可用：{error.strerror}"
                ),
                fix="strop up --port 0",
            )
    text = t(f"none runs; port {PORT} is free for strop up", f"未运行；端口 {PORT} 空闲，可执行 strop up")
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
        lacking = [t(fact.text, fact.zh) for fact in opened.facts if not fact.holds]
    finally:
        opened.close()
    if lacking:
        text = f"{opened.kind}; " + t("but: ", "但：") + "; ".join(lacking)
        return Finding(name="sandbox", state=State.WARNING, text=text, fix="strop sandbox check")
    text = t(f"isolates what a model wrote ({opened.kind})", f"可隔离模型编写的代码（{opened.kind}）")
    return Finding(name="sandbox", state=State.OK, text=text)


def _gpu() -> Finding:
    # As far as the device files tell.
    number = sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())
    text = (
        t(
            f"{number} seen; training and sampling run on the CPU",
            f"发现 {number} 个；训练与采样在 CPU 上进行",
        )
        if number
        else t("none; none is needed", "无；也不需要")
    )
    return Finding(name="gpu", state=State.OK, text=text)


def _extras() -> Finding:
    there = [name for name, package in _EXTRAS.items() if importlib.util.find_spec(package) is not None]
    missing = [name for name in _EXTRAS if name not in there]
    text = ", ".join(there) or t("none", "无")
    if missing:
        names = ", ".join(missing)
        text += t(f"; not installed: {names}", f"；未安装：{names}")
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
