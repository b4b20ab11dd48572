"""Functions: code bundles, layers, registration, instances and their logs.

Concurrency:
    The async functions are called from the event loop in which the server's instances are open.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio.to_thread

from strop.config.function import RuntimeRequest
from strop.errors import AccessError, ConflictError, MissingError, RequestError
from strop.locales import msg
from strop.schema.access import Caller
from strop.schema.entity import (
    Entity,
    FunctionInstance,
    InstanceStatus,
    Layer,
    LayerStatus,
    Upload,
)
from strop.schema.function import FunctionType
from strop.service.bundles import blob_key, check_zip, unpack
from strop.service.code_check import check_class
from strop.service.layers import usable
from strop.service.secret import Signer
from strop.service.services import Services
from strop.store.blobs import CHUNK_BYTES
from strop.store.entities import (
    create_entity,
    delete_entity,
    get_entity,
    get_instance,
    get_layer,
    get_upload,
    list_entities,
    list_instances,
    record_instance,
    record_upload,
)
from strop.store.logs import instance_lines

UNIQUE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")

_ID_PREFIX = {FunctionType.ROLLOUT: "ro", FunctionType.REWARD: "rw", FunctionType.GROUP_REWARD: "grw"}
_UPLOAD, _INSTANCE = "upload", "instance"
"""What the server signs a text for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFunction:
    """A class of an uploaded bundle: its file there, its name, the key that the bundle was uploaded under."""

    name: str
    func: str
    unique_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredFunction:
    """A function and its instances."""

    entity: Entity
    instances: Sequence[FunctionInstance]


def sign_upload(services: Services, workspace_id: str, unique_key: str) -> tuple[int, str]:
    """When the right to upload one bundle under this key ends (seconds since 1970), and its signature.

    Raises:
        RequestError: the key is invalid.
    """
    check_unique_key(unique_key)
    seconds = services.settings.limits.upload_url_s
    return services.signer.expiring(_UPLOAD, workspace_id, unique_key, seconds=seconds)


def check_upload(
    services: Services, workspace_id: str, unique_key: str, *, expires: str, signature: str
) -> None:
    """Raises AccessError: the signature is not this server's, or has expired."""
    if not services.signer.holds_until(signature, expires, _UPLOAD, workspace_id, unique_key):
        raise AccessError(
            msg("this upload URL has expired or was not made by this server"), fix=msg("ask for a new one")
        )


def keep_bundle(services: Services, workspace_id: str, unique_key: str, path: Path, sha256: str) -> Upload:
    """Keep a zip under its hash, with its files unpacked beside it. `path` stays the caller's.

    Raises:
        RequestError: the zip is refused, and why.
    """
    limits, blobs = services.settings.limits, services.blobs
    check_zip(path, limits)
    if not blobs.exists(blob_key(sha256)):
        with path.open("rb") as file:
            blobs.write(blob_key(sha256), iter(lambda: file.read(CHUNK_BYTES), b""))
    unpack(blobs, services.settings.home, sha256, limits)
    upload = Upload(
        workspace_id=workspace_id,
        unique_key=unique_key,
        sha256=sha256,
        size=path.stat().st_size,
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        record_upload(session, upload)
    return upload


def check_unique_key(unique_key: str) -> str:
    """Raises RequestError: it cannot name a bundle."""
    if not UNIQUE_KEY.fullmatch(unique_key):
        raise RequestError(
            msg("unique_key: {unique_key!r} is invalid", unique_key=unique_key[:200]),
            fix=msg("1 to 200 letters, digits and _ . : -, e.g. reward-<uuid>"),
        )
    return unique_key


def create_layer(services: Services, caller: Caller, requirements: str) -> Layer:
    """An environment of these requirements; its build has begun or is over.

    Raises:
        FunctionError: requirements that no layer can have.
    """
    return services.layers.create(caller.workspace_id, requirements)


def layer(services: Services, caller: Caller, layer_code: str) -> Layer:
    """Raises MissingError: no such layer in the caller's workspace."""
    with services.database.read() as session:
        return get_layer(session, layer_code, workspace_id=caller.workspace_id)


def register(services: Services, caller: Caller, kind: FunctionType, new: NewFunction) -> Entity:
    """Register a class of an uploaded bundle, after a look at its source.

    Raises:
        RequestError: no such bundle, file or class.
    """
    key = check_unique_key(new.unique_key)
    with services.database.read() as session:
        try:
            upload = get_upload(session, caller.workspace_id, key)
        except MissingError as error:  # what is wrong is the request, not its address
            raise RequestError(error.message, fix=error.fix) from error
    settings = services.settings
    folder = unpack(services.blobs, settings.home, upload.sha256, settings.limits)
    check_class(folder, new.name, new.func)
    entity = Entity(
        entity_id=f"{_ID_PREFIX[kind]}-{secrets.token_hex(12)}",
        workspace_id=caller.workspace_id,
        type=kind,
        name=new.name,
        func=new.func,
        unique_key=key,
        bundle=upload.sha256,
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        return create_entity(session, entity)


def list_functions(services: Services, caller: Caller) -> tuple[list[Entity], list[FunctionInstance]]:
    """The workspace's functions, newest first, and all their instances."""
    with services.database.read() as session:
        entities = list_entities(session, workspace_id=caller.workspace_id)
        return entities, list_instances(session, workspace_id=caller.workspace_id)


def get(services: Services, caller: Caller, entity_id: str) -> RegisteredFunction:
    """Raises MissingError: no such function in the caller's workspace."""
    with services.database.read() as session:
        entity = get_entity(session, entity_id, workspace_id=caller.workspace_id)
        instances = list_instances(session, workspace_id=caller.workspace_id)
    own = [one for one in instances if one.entity_id == entity_id]
    return RegisteredFunction(entity=entity, instances=own)


def forget(services: Services, caller: Caller, entity_id: str) -> None:
    """Forget a registered function.

    Raises:
        MissingError: no such function here. ConflictError: it has instances.
    """
    with services.database.write() as session:
        instances = list_instances(session, workspace_id=caller.workspace_id)
        running = [one.instance_id for one in instances if one.entity_id == entity_id]
        if running:
            raise ConflictError(
                msg(
                    "function {entity_id!r} has instances: {running}",
                    entity_id=entity_id,
                    running=", ".join(running),
                ),
                fix=msg("delete them first"),
            )
        delete_entity(session, entity_id, workspace_id=caller.workspace_id)


async def start(
    services: Services,
    caller: Caller,
    entity_id: str,
    runtime: RuntimeRequest,
) -> FunctionInstance:
    """Bring a function online: an instance of its own, once its first worker serves.

    Raises:
        MissingError: no such function or layer here. FunctionError: it does not start.
    """
    instance = await anyio.to_thread.run_sync(_new_instance, services, caller, entity_id, runtime)
    return await services.instances.start(instance)


async def restart(services: Services, caller: Caller, instance_id: str) -> FunctionInstance:
    """Replace every worker of an instance by a new one while calls go on.

    Raises:
        MissingError: no such instance here. ConflictError: it was deleted. FunctionError: a new worker does
        not start.
    """
    instance = await anyio.to_thread.run_sync(living_instance, services, caller, instance_id)
    await services.instances.restart(instance)
    return instance


async def stop(services: Services, caller: Caller, instance_id: str) -> None:
    """End an instance for good.

    Raises:
        MissingError: no such instance here.
    """
    await services.instances.stop(await anyio.to_thread.run_sync(instance_of, services, caller, instance_id))


def instance_of(services: Services, caller: Caller, instance_id: str) -> FunctionInstance:
    """Raises MissingError: no such instance in the caller's workspace."""
    with services.database.read() as session:
        return get_instance(session, instance_id, workspace_id=caller.workspace_id)


def living_instance(services: Services, caller: Caller, instance_id: str) -> FunctionInstance:
    """Raises MissingError: no such instance in the caller's workspace. ConflictError: it was deleted."""
    instance = instance_of(services, caller, instance_id)
    if instance.status is InstanceStatus.DELETED:
        raise ConflictError(
            msg("instance {instance_id!r} was deleted", instance_id=instance_id),
            fix=msg("bring the function online again"),
        )
    return instance


def logs(
    services: Services,
    caller: Caller,
    instance_id: str,
    *,
    page_no: int,
    page_size: int,
    since_s: float | None = None,
    until_s: float | None = None,
    keywords: Sequence[str] = (),
) -> tuple[list[tuple[datetime, str, str]], int]:
    """A page of what an instance printed, oldest first: (when, stream, text); and how many lines there are.

    Raises:
        MissingError: no such instance in the caller's workspace.
    """
    with services.database.read() as session:
        get_instance(session, instance_id, workspace_id=caller.workspace_id)
        return instance_lines(
            session,
            instance_id,
            page_no=page_no,
            page_size=page_size,
            since_s=since_s,
            until_s=until_s,
            keywords=keywords,
        )


def trigger_token(signer: Signer, instance_id: str) -> str:
    """What opens an instance to calls: made of its id and the server's secret, and stored nowhere."""
    return signer.token(_INSTANCE, instance_id)


def check_trigger_token(signer: Signer, instance_id: str, given: str) -> None:
    """Raises AccessError: the token is not the instance's, or there is no such instance."""
    if not signer.holds(given, _INSTANCE, instance_id):
        raise AccessError(
            msg("missing or wrong trigger token"), fix=msg("query the instance for its trigger_token")
        )


def callable_instance(services: Services, instance_id: str, token: str) -> FunctionInstance:
    """The instance that a trigger token opens.

    Raises:
        AccessError: the token is not the instance's. MissingError: it was deleted.
    """
    check_trigger_token(services.signer, instance_id, token)
    with services.database.read() as session:
        instance = get_instance(session, instance_id)
    if instance.status is InstanceStatus.DELETED:
        raise MissingError(
            msg("function instance {instance_id!r} was deleted", instance_id=instance_id),
            fix=msg("bring the function online again"),
        )
    return instance


def _new_instance(
    services: Services, caller: Caller, entity_id: str, runtime: RuntimeRequest
) -> FunctionInstance:
    with services.database.read() as session:
        entity = get_entity(session, entity_id, workspace_id=caller.workspace_id)
    if runtime.layer_code is not None:
        found = layer(services, caller, runtime.layer_code)
        if found.status is not LayerStatus.BUILDING:
            usable(found, services.settings.home)
    instance = FunctionInstance(
        instance_id=f"{_ID_PREFIX[entity.type]}-ins-{secrets.token_hex(12)}",
        workspace_id=caller.workspace_id,
        entity_id=entity_id,
        status=InstanceStatus.STARTING,
        runtime=runtime.model_dump(exclude_none=True),
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        record_instance(session, instance)
    return instance
