"""Connection -> the same with the tables this code knows: the program migrates, not the user.

Alembic is loaded only where something is to be migrated: each process opens a database, few find an old one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect

from strop.errors import StoreError
from strop.locales import msg

MIGRATIONS = Path(__file__).parent / "migrations"

_FIRST = "0009"
_BEFORE_THE_FIRST = frozenset(f"000{number}" for number in range(1, 9))
_LAST_TO_KNOW_THEM = "d010c66"
"""The last commit whose migrations began at 0001."""


@cache
def newest_revision() -> str:
    """The number that the last migration's file begins with, which is its revision."""
    last = max(path.name for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))
    return last.partition("_")[0]


def upgrade(connection: Connection, url: str) -> None:
    """Run the migrations that are missing, inside the caller's transaction.

    Raises:
        StoreError: this code does not know the database's revision: it is newer, or older than the first.
    """
    found = revision_of(connection)
    if found == newest_revision():
        return
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise _unknown(found, url)
    command.upgrade(config, "head")


def _unknown(found: str, url: str) -> StoreError:
    if found in _BEFORE_THE_FIRST:
        return StoreError(
            msg(
                "the database {url} has schema {found!r}, which a development version from "
                "before Strop's first release wrote; this one upgrades from {first!r} on",
                url=url,
                found=found,
                first=_FIRST,
            ),
            fix=msg(
                "open it once with the last version that can upgrade it (git checkout "
                "{last_to_know_them} && pip install . && strop jobs list), then with "
                "this one; or point STROP_HOME or STROP_DATABASE_URL at another database",
                last_to_know_them=_LAST_TO_KNOW_THEM,
            ),
        )
    return StoreError(
        msg(
            "the database {url} has schema {found!r}, which this Strop does not know: a newer one wrote it",
            url=url,
            found=found,
        ),
        fix=msg("upgrade strop, or point STROP_HOME or STROP_DATABASE_URL at another database"),
    )


def revision_of(connection: Connection) -> str | None:
    """What Alembic has noted in the database; None where it has not been there yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return None if found is None else str(found[0])
