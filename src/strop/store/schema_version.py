"""Connection -> the same with the tables this code knows: the program migrates, not the user.

Alembic is loaded only where something is to be migrated: each process opens a database, few find an old one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect

from strop.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"


@cache
def newest_revision() -> str:
    """The number that the last migration's file begins with, which is its revision."""
    last = max(path.name for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))
    return last.partition("_")[0]


def upgrade(connection: Connection, url: str) -> None:
    """Run the migrations that are missing, inside the caller's transaction.

    Raises:
        StoreError: the database has a revision this code does not know: a newer Strop wrote it.
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
        raise StoreError(
            f"the database {url} has schema {found!r}, which this Strop does not know: a newer one wrote it",
            fix="upgrade strop, or point STROP_HOME or STROP_DATABASE_URL at another database",
        )
    command.upgrade(config, "head")


def revision_of(connection: Connection) -> str | None:
    """What Alembic has noted in the database; None where it has not been there yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return None if found is None else str(found[0])
