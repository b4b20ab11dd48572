"""Connection -> the same with the tables this code knows: the program migrates, not the user."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from strop.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, url: str) -> None:
    """Run the migrations that are missing, inside the caller's transaction.

    Raises:
        StoreError: the database has a revision this code does not know: a newer Strop wrote it.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    found = MigrationContext.configure(connection).get_current_revision()
    if found == scripts.get_current_head():
        return
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreError(
            f"the database {url} has schema {found!r}, which this Strop does not know: a newer one wrote it",
            fix="upgrade strop, or point STROP_HOME or STROP_DATABASE_URL at another database",
        )
    command.upgrade(config, "head")
