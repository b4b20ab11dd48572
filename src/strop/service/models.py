"""Models: the names that jobs and deployments may use; publishing a job's checkpoint under one."""

from __future__ import annotations

from strop.errors import ConflictError, ForbiddenError, MissingError
from strop.locales import msg
from strop.schema.access import Caller
from strop.schema.model import BUNDLED_NAMES, ModelKind, NamedModel
from strop.service.services import Services
from strop.store.checkpoints import list_checkpoints
from strop.store.deployments import served_from
from strop.store.jobs import get_job
from strop.store.models import bundled_model, find_model, numbered_models, remove_model
from strop.store.published import choose_checkpoint, publish_checkpoint, remove_published


def list_models(
    services: Services, caller: Caller, *, page_no: int, page_size: int, kind: ModelKind | None = None
) -> tuple[list[NamedModel], int]:
    """A page of the models that the workspace may use, newest first, and how many there are. The bundled one
    comes last of all."""
    with services.database.read() as session:
        models, total = numbered_models(
            session, workspace_id=caller.workspace_id, kind=kind, page_no=page_no, page_size=page_size
        )
    if kind is not ModelKind.PUBLISHED:
        total += 1
        if len(models) < page_size and (page_no - 1) * page_size + len(models) == total - 1:
            models.append(bundled_model())
    return models, total


def get(services: Services, caller: Caller, name: str) -> NamedModel:
    """Raises MissingError: no such model for the caller."""
    with services.database.read() as session:
        model = find_model(session, name, workspace_id=caller.workspace_id)
    if model is None and name.lower() in BUNDLED_NAMES:
        return bundled_model()
    return _found(model, name)


def delete(services: Services, caller: Caller, name: str) -> None:
    """Remove a published model.

    Raises:
        MissingError: no such model. ForbiddenError: it is the operator's. ConflictError: it is deployed.
    """
    with services.database.write() as session:
        model = _found(find_model(session, name, workspace_id=caller.workspace_id), name)
        if model.kind is not ModelKind.PUBLISHED:
            raise ForbiddenError(
                msg("the model {name!r} is in the operator's table", name=name),
                fix=msg("strop models remove NAME"),
            )
        served = served_from(session, name)
        if served:
            raise ConflictError(
                msg("the model {name!r} is deployed as {served}", name=name, served=", ".join(served)),
                fix=msg("delete the deployment first"),
            )
        remove_model(session, name)
        remove_published(name)  # first the files: a row without them can be removed again


def publish(services: Services, caller: Caller, job_id: str, which: str, name: str) -> NamedModel:
    """Give a checkpoint's model a name: `which` is `last`, `best` by validation, a step or a checkpoint's id.

    Raises:
        MissingError: no such job here. CheckpointError: no such checkpoint. ModelError: the name is invalid.
        ConflictError: the name is taken.
    """
    with services.database.read() as session:
        job = get_job(session, job_id, workspace_id=caller.workspace_id)
        checkpoint = choose_checkpoint(job, list_checkpoints(session, job_id), which)
    return publish_checkpoint(services.database, checkpoint, name)


def _found(model: NamedModel | None, name: str) -> NamedModel:
    if model is None:
        raise MissingError(
            msg("there is no model {name!r}", name=name),
            fix=msg("list the models and take a name from there"),
        )
    return model
