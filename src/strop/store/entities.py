"""Registered code: uploads, entities, layers and instances, one table each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, delete, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import ConflictError, MissingError
from strop.locales import msg
from strop.schema.entity import Entity, FunctionInstance, InstanceStatus, Layer, LayerStatus, Upload
from strop.schema.function import FunctionType
from strop.store.columns import PackedJson, UtcTime, Written
from strop.store.tables import Base


class UploadRow(Base):
    __tablename__ = "uploads"

    workspace_id: Mapped[str] = mapped_column(Written, primary_key=True)
    unique_key: Mapped[str] = mapped_column(Written, primary_key=True)
    sha256: Mapped[str] = mapped_column(Written)
    size: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def upload(self) -> Upload:
        return Upload(
            workspace_id=self.workspace_id,
            unique_key=self.unique_key,
            sha256=self.sha256,
            size=self.size,
            created_at=self.created_at,
        )


class EntityRow(Base):
    __tablename__ = "entities"
    __table_args__ = (UniqueConstraint("workspace_id", "unique_key", "type"),)

    entity_id: Mapped[str] = mapped_column(Written, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Written)
    type: Mapped[str] = mapped_column(Written)
    name: Mapped[str] = mapped_column(Written)
    func: Mapped[str] = mapped_column(Written)
    unique_key: Mapped[str] = mapped_column(Written)
    bundle: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def entity(self) -> Entity:
        return Entity(
            entity_id=self.entity_id,
            workspace_id=self.workspace_id,
            type=FunctionType(self.type),
            name=self.name,
            func=self.func,
            unique_key=self.unique_key,
            bundle=self.bundle,
            created_at=self.created_at,
        )


class LayerRow(Base):
    __tablename__ = "layers"

    workspace_id: Mapped[str] = mapped_column(Written, primary_key=True)
    layer_code: Mapped[str] = mapped_column(Written, primary_key=True)
    requirements: Mapped[str] = mapped_column(Written)
    status: Mapped[str] = mapped_column(Written)
    log: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def layer(self) -> Layer:
        return Layer(
            workspace_id=self.workspace_id,
            layer_code=self.layer_code,
            requirements=self.requirements,
            status=LayerStatus(self.status),
            log=self.log,
            created_at=self.created_at,
        )


class InstanceRow(Base):
    __tablename__ = "instances"
    __table_args__ = (Index(None, "workspace_id", "created_at"),)

    instance_id: Mapped[str] = mapped_column(Written, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Written)
    entity_id: Mapped[str] = mapped_column(Written, ForeignKey("entities.entity_id", ondelete="CASCADE"))
    status: Mapped[str] = mapped_column(Written)
    error: Mapped[str | None] = mapped_column(Written)
    runtime: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def instance(self) -> FunctionInstance:
        return FunctionInstance(
            instance_id=self.instance_id,
            workspace_id=self.workspace_id,
            entity_id=self.entity_id,
            status=InstanceStatus(self.status),
            error=self.error,
            runtime=self.runtime,
            created_at=self.created_at,
        )


def record_upload(session: Session, upload: Upload) -> None:
    """Write it, or bring an earlier one under the same key up to date: a client may send it again."""
    session.merge(UploadRow(**upload.model_dump()))


def get_upload(session: Session, workspace_id: str, unique_key: str) -> Upload:
    """Raises:
    MissingError: nothing was uploaded under that key.
    """
    row = session.get(UploadRow, (workspace_id, unique_key))
    if row is None:
        raise MissingError(
            msg("no code was uploaded under the unique_key {unique_key!r}", unique_key=unique_key),
            fix=msg("ask for an upload URL with that key and PUT the zip there first"),
        )
    return row.upload()


def create_entity(session: Session, entity: Entity) -> Entity:
    """Write it; where its key is known already, the entity from then is the answer.

    Raises:
        ConflictError: the key stands for another class, file or bundle.
    """
    same = select(EntityRow).where(
        EntityRow.workspace_id == entity.workspace_id,
        EntityRow.unique_key == entity.unique_key,
        EntityRow.type == entity.type.value,
    )
    row = session.scalars(same).first()
    if row is None:
        row = EntityRow(**{**entity.model_dump(), "type": entity.type.value})
        session.add(row)
        session.flush()
        return entity
    if (row.name, row.func, row.bundle) != (entity.name, entity.func, entity.bundle):
        raise ConflictError(
            msg(
                "the unique_key {unique_key!r} already stands for {name}:{func}",
                unique_key=entity.unique_key,
                name=row.name,
                func=row.func,
            ),
            fix=msg("register under a new unique_key"),
        )
    return row.entity()


def get_entity(session: Session, entity_id: str, *, workspace_id: str) -> Entity:
    """Raises:
    MissingError: no such function in that workspace.
    """
    row = session.get(EntityRow, entity_id)
    if row is None or row.workspace_id != workspace_id:
        raise MissingError(
            msg("no function {entity_id!r} is registered", entity_id=entity_id),
            fix=msg("register it and take the id from there"),
        )
    return row.entity()


def list_entities(session: Session, *, workspace_id: str) -> list[Entity]:
    """Newest first."""
    query = select(EntityRow).where(EntityRow.workspace_id == workspace_id)
    return [row.entity() for row in session.scalars(query.order_by(EntityRow.created_at.desc()))]


def delete_entity(session: Session, entity_id: str, *, workspace_id: str) -> None:
    """Raises:
    MissingError: no such function in that workspace.
    """
    get_entity(session, entity_id, workspace_id=workspace_id)
    session.execute(delete(EntityRow).where(EntityRow.entity_id == entity_id))


def record_layer(session: Session, layer: Layer) -> None:
    """Write it, or bring an earlier record up to date."""
    session.merge(LayerRow(**{**layer.model_dump(), "status": layer.status.value}))


def get_layer(session: Session, layer_code: str, *, workspace_id: str) -> Layer:
    """Raises:
    MissingError: no such layer in that workspace.
    """
    row = session.get(LayerRow, (workspace_id, layer_code))
    if row is None:
        raise MissingError(
            msg("no layer {layer_code!r}", layer_code=layer_code),
            fix=msg("create it from a requirements.txt first"),
        )
    return row.layer()


def settle_layer(session: Session, layer_code: str, status: LayerStatus, log: str) -> None:
    """How a build ended, for every workspace that waits for it."""
    done = update(LayerRow).where(LayerRow.layer_code == layer_code).values(status=status.value, log=log)
    session.execute(done)


def building_layers(session: Session) -> list[Layer]:
    rows = session.scalars(select(LayerRow).where(LayerRow.status == LayerStatus.BUILDING.value))
    return [row.layer() for row in rows]


def record_instance(session: Session, instance: FunctionInstance) -> None:
    """Write it, or bring an earlier record up to date."""
    session.merge(InstanceRow(**{**instance.model_dump(), "status": instance.status.value}))


def get_instance(session: Session, instance_id: str, *, workspace_id: str | None = None) -> FunctionInstance:
    """Raises:
    MissingError: no such instance in that workspace.
    """
    row = session.get(InstanceRow, instance_id)
    if row is None or workspace_id not in (None, row.workspace_id):
        raise MissingError(
            msg("no function instance {instance_id!r}", instance_id=instance_id),
            fix=msg("bring the function online first"),
        )
    return row.instance()


def list_instances(session: Session, *, workspace_id: str) -> list[FunctionInstance]:
    """Newest first; deleted ones are left out."""
    query = select(InstanceRow).where(
        InstanceRow.workspace_id == workspace_id, InstanceRow.status != InstanceStatus.DELETED.value
    )
    return [row.instance() for row in session.scalars(query.order_by(InstanceRow.created_at.desc()))]
