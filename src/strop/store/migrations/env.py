"""Alembic's entry: runs the migrations on the connection that `store.schema_version` hands over."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=True, render_as_batch=True)
context.run_migrations()
