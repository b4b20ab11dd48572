"""URL -> an open database at the newest schema: sessions to read in and sessions to write in.

SQLite at `STROP_HOME/strop.db` by default; PostgreSQL by `STROP_DATABASE_URL`. On both, those who write
take turns: what a writer has read holds until it commits, and rows appear in the order of their ids. Callers
open it once a process and pass it on; nothing here is global.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session

from strop.errors import StoreError
from strop.locales import msg
from strop.store.home import home
from strop.store.schema_version import upgrade

BUSY_TIMEOUT_MS = 10_000
"""How long a writer waits for another process's transaction; ours take milliseconds."""

_WRITERS_LOCK = 0x5_7209
"""Any number: the advisory lock that a writer on PostgreSQL holds for its transaction."""


class Database:
    """One engine. `read()` and `write()` give a session in its own transaction.

    Concurrency:
        Safe to share between threads; a session is not.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # SQLite's transactions see one state anyway; PostgreSQL's statements each see the newest.
        isolation = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
        self._reader = engine.execution_options(**isolation)
        self._writer = engine.execution_options(strop_write=True)

    @property
    def url(self) -> str:
        """Without the password."""
        return self._engine.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Generator[Session]:
        """A session that sees one consistent state and changes nothing.

        Raises:
            StoreError: the database refused.
        """
        with _refusals(self.url), Session(self._reader, autoflush=False) as session:
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        """A session whose changes are all kept when the block ends, or none if it raises.

        Raises:
            StoreError: the database refused; nothing was kept.
        """
        with _refusals(self.url), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        self._engine.dispose()


def database_url() -> URL:
    """`STROP_DATABASE_URL`, else SQLite below `STROP_HOME`."""
    given = os.environ.get("STROP_DATABASE_URL")
    if given:
        return _parsed(given)
    return URL.create("sqlite", database=str(home() / "strop.db"))


def open_database(url: str | URL | None = None) -> Database:
    """Open, create where missing, and upgrade to the newest schema.

    Raises:
        StoreError: not reachable, in memory only, or written by a newer Strop.
    Side effects:
        Makes the folder and file of an SQLite database; runs migrations, in one transaction.
    """
    place = database_url() if url is None else _parsed(url)
    hidden = place.render_as_string(hide_password=True)
    with _refusals(hidden):
        engine = _engine(place)
        database = Database(engine)
        try:
            with database.write() as session:
                upgrade(session.connection(), hidden)
        except BaseException:
            database.close()
            raise
    return database


def _parsed(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:  # its text repeats the URL, and with it the password
        fix = "the form is postgresql+psycopg://user:password@host/name or sqlite:////absolute/path.db"
        raise StoreError(msg("the database URL cannot be read"), fix=fix) from error.with_traceback(None)
    # As most tools write it; SQLAlchemy would take an older driver.
    plain = parsed.drivername in ("postgres", "postgresql")
    return parsed.set(drivername="postgresql+psycopg") if plain else parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        name = url.database or ""
        if name in ("", ":memory:") or "mode=memory" in name or name.startswith("file::memory:"):
            raise StoreError(
                msg("an SQLite database in memory would be lost and seen by one process only"),
                fix=msg("name a file: sqlite:////absolute/path.db, or unset STROP_DATABASE_URL"),
            )
        if not name.startswith("file:"):
            _make_private(Path(name))
    try:
        engine = create_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=url.get_backend_name() != "sqlite",
        )
    except ModuleNotFoundError as error:
        raise StoreError(
            msg(
                "the driver for {drivername!r} is not installed ({name})",
                drivername=url.drivername,
                name=error.name,
            ),
            fix=msg(
                "pip install 'strop[postgres]' for PostgreSQL, with postgresql+psycopg:// as the URL's start"
            ),
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite_settings)
        event.listen(engine, "begin", _sqlite_begin)
    elif engine.dialect.name == "postgresql":
        event.listen(engine, "connect", _postgres_settings)
        event.listen(engine, "begin", _postgres_begin)
    return engine


def _make_private(file: Path) -> None:
    """Make the folder, and the file for its owner alone: jobs hold secrets. SQLite's own files beside it take
    its mode."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            msg(
                "cannot make the folder {parent!r} for the database: {strerror}",
                parent=str(file.parent),
                strerror=error.strerror,
            ),
            fix=msg("set STROP_HOME to a folder that can be written"),
        ) from error
    # An existing file is not touched: closing any descriptor of a file drops all locks that this process has
    # on it, SQLite's too, and another process would take the log away from under its connections.
    # A link is followed first: SQLite would make what it points to with the mode that everything gets.
    with suppress(OSError):  # one that cannot be opened is told by SQLite
        os.close(os.open(os.path.realpath(file), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _sqlite_settings(connection: sqlite3.Connection, _record: object) -> None:
    """WAL lets readers read while the trainer writes; NORMAL is then safe against a dying process."""
    connection.isolation_level = None  # we say BEGIN ourselves: the driver would not before DDL
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _sqlite_begin(connection: Connection) -> None:
    """Writers wait for the lock at the start: a reader that turned writer would be refused at once."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


def _postgres_settings(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET lock_timeout = {BUSY_TIMEOUT_MS}")
    cursor.close()
    connection.commit()


def _postgres_begin(connection: Connection) -> None:
    """Otherwise two writers could check the same state, and a reader that follows ids could miss one."""
    if _writes(connection):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK})")


def _writes(connection: Connection) -> bool:
    return connection.get_execution_options().get("strop_write", False)


@contextmanager
def _refusals(url: str) -> Generator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(
            msg("the database {url} refused: {cause}", url=url, cause=cause), fix=_fix(str(cause))
        ) from error


def _fix(text: str) -> str | None:
    fixes = {
        "is locked": "another process holds a long transaction on it; end that process or wait",
        "disk is full": "free some disk space; what was not written is kept and tried again",
        "readonly": "give this user the right to write the file and its folder",
        "unable to open": "check that the folder exists and can be written, or set STROP_HOME",
        "malformed": "the file is damaged; restore it from a copy, or move it away to start anew",
        "not a database": "the file is something else; move it away, or set STROP_DATABASE_URL",
        "lock timeout": "another process holds a long transaction on it; end that process or wait",
        "No space left": "free some disk space there; what was not written is kept and tried again",
        "authentication failed": "check user and password in STROP_DATABASE_URL",
        "does not exist": "make the database and its user first: createdb strop; or check STROP_DATABASE_URL",
        "connection failed": "start PostgreSQL, or check host and port in STROP_DATABASE_URL",
    }
    return next((fix for sign, fix in fixes.items() if sign in text), None)
