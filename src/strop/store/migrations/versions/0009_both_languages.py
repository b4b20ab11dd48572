"""What is noted of a job, and why it failed, in Chinese as well."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from strop.store.columns import PackedJson

revision = "0009"
down_revision = "0008"

EVENTS = sa.table(
    "events",
    sa.column("id", sa.BigInteger()),
    sa.column("kind", sa.Text()),
    sa.column("message", sa.Text()),
    sa.column("message_zh", sa.Text()),
    sa.column("data", PackedJson()),
)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("error_zh", sa.Text(), nullable=True))
    op.add_column("events", sa.Column("message_zh", sa.Text(), nullable=True))
    _findings()


def _findings() -> None:
    """Events of findings had both languages in their data."""
    connection = op.get_bind()
    query = sa.select(EVENTS.c.id, EVENTS.c.data).where(EVENTS.c.kind == "finding")
    for key, data in connection.execute(query).all():
        said = data.get("said")
        if said:
            values = {"message": said["en"], "message_zh": said["zh"]}
            connection.execute(sa.update(EVENTS).where(EVENTS.c.id == key).values(values))


def downgrade() -> None:
    op.drop_column("events", "message_zh")
    op.drop_column("jobs", "error_zh")
