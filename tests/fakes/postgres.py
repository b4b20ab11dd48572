"""A PostgreSQL of the tests' own: in a folder of its own, behind a socket in it, gone when the tests are.

`from fakes.postgres import postgres`.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pkgutil
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from strop import store
from strop.store.database import open_database
from strop.store.tables import Base

MIGRATED = "migrated"
"""A database with all tables, for tests that leave none of their own rows."""

_START_S = 60.0

_FAST = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "listen_addresses=",
)
"""Nothing of it has to outlive the machine; a socket needs no port."""


class Postgres:
    """A running cluster that makes databases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://strop@/{name}?host={self._folder}"

    def database(self) -> str:
        """The name of a new one with nothing in it."""
        name = f"test_{next(self._numbers)}"
        self.do(SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(name)))
        return name

    def drop(self, name: str) -> None:
        self.do(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))

    def empty(self, name: str) -> None:
        """Take every row away but the first workspace: faster than a new database a test."""
        for module in pkgutil.iter_modules(store.__path__, "strop.store."):
            if not module.ispkg:
                importlib.import_module(module.name)  # each brings its tables
        tables = [table.name for table in reversed(Base.metadata.sorted_tables)]
        deletes = [
            SQL("DELETE FROM {}").format(Identifier(table)) for table in tables if table != "workspaces"
        ]
        self.do(SQL("; ").join([*deletes, SQL("DELETE FROM workspaces WHERE name <> 'default'")]), name)

    def do(self, statement: SQL | Composed, name: str = "postgres") -> None:
        with psycopg.connect(host=str(self._folder), user="strop", dbname=name, autocommit=True) as there:
            there.execute(statement)


@contextmanager
def postgres(programs: Path) -> Generator[Postgres]:
    """Run a cluster while the block runs. It ends with this process, too, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix="strop-pg-", dir="/tmp"))  # a socket's path must be short
    user = _other_user() if os.getuid() == 0 else None  # PostgreSQL will not run as root
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    drop = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user is not None else []
    data = folder / "data"
    # Another order of letters than Python's, as most installations have.
    order = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US", "--encoding=UTF8"]
    made = subprocess.run(
        [
            "setpriv",
            *drop,
            str(programs / "initdb"),
            "-D",
            str(data),
            "-U",
            "strop",
            "-A",
            "trust",
            "-N",
            *order,
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    settings = [word for setting in _FAST for word in ("-c", setting)]
    command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), *settings]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["setpriv", *drop, "--pdeathsig=INT", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        cluster = Postgres(folder)
        _wait(cluster, server, folder / "log")
        cluster.do(SQL("CREATE DATABASE {}").format(Identifier(MIGRATED)))
        open_database(cluster.url(MIGRATED)).close()
        yield cluster
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(_START_S)
        shutil.rmtree(folder)


def _other_user() -> pwd.struct_passwd:
    known = {one.pw_name: one for one in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _wait(cluster: Postgres, server: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _START_S
    while True:
        try:
            cluster.do(SQL("SELECT 1"))
            return
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.02)
