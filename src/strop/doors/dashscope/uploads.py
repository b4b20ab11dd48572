"""`PUT /uploads/{workspace}/{unique_key}`: a zip of code, at an address that this server signed just now."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from strop.doors.documented import FAILURES
from strop.doors.services import Services, ServicesHere, public_url
from strop.errors import AccessError, RequestError
from strop.schema.entity import Upload
from strop.service.bundles import blob_key, check_zip, unpack
from strop.store.blobs import CHUNK_BYTES
from strop.store.entities import record_upload

router = APIRouter(tags=["functions"], responses=FAILURES)

UNIQUE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")
_PURPOSE = "upload"


def check_unique_key(unique_key: str) -> str:
    if not UNIQUE_KEY.fullmatch(unique_key):
        raise RequestError(
            f"unique_key: {unique_key[:200]!r} is none",
            fix="1 to 200 letters, digits and _ . : -, e.g. reward-<uuid>",
        )
    return unique_key


def upload_url(request: Request, services: Services, workspace_id: str, unique_key: str) -> str:
    """An address that takes one bundle under this key, for a while."""
    seconds = services.settings.limits.upload_url_s
    expires, signature = services.signer.expiring(_PURPOSE, workspace_id, unique_key, seconds=seconds)
    query = urlencode({"expires": expires, "signature": signature})
    base = public_url(request, services.settings)
    return f"{base}/uploads/{quote(workspace_id)}/{quote(unique_key)}?{query}"


@router.put(
    "/uploads/{workspace_id}/{unique_key}",
    summary="Upload a code bundle to a signed address",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def put(
    request: Request,
    services: ServicesHere,
    workspace_id: str,
    unique_key: str,
    expires: Annotated[str, Query()] = "",
    signature: Annotated[str, Query()] = "",
) -> Response:
    if not services.signer.holds_until(signature, expires, _PURPOSE, workspace_id, unique_key):
        raise AccessError(
            "this upload URL has expired or was not made by this server", fix="ask for a new one"
        )
    arriving = services.settings.home / "arriving"
    await run_in_threadpool(arriving.mkdir, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=arriving, prefix="bundle-") as file:
        size, sha256 = await _receive(request, file)
        await run_in_threadpool(_keep, services, Path(file.name), sha256)
    upload = Upload(
        workspace_id=workspace_id,
        unique_key=unique_key,
        sha256=sha256,
        size=size,
        created_at=datetime.now(UTC),
    )
    await run_in_threadpool(_record, services, upload)
    return JSONResponse({"size": size, "sha256": sha256})


async def _receive(request: Request, file: IO[bytes]) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    pending: list[bytes] = []
    waiting = 0
    async for chunk in request.stream():
        digest.update(chunk)
        size += len(chunk)
        pending.append(chunk)
        waiting += len(chunk)
        if waiting >= CHUNK_BYTES:
            await run_in_threadpool(file.writelines, pending)
            pending, waiting = [], 0
    await run_in_threadpool(file.writelines, pending)
    await run_in_threadpool(file.flush)
    return size, digest.hexdigest()


def _keep(services: Services, path: Path, sha256: str) -> None:
    """Refuse a bad zip; keep a good one under its hash, and its files beside."""
    limits, blobs = services.settings.limits, services.blobs
    check_zip(path, limits)
    if not blobs.exists(blob_key(sha256)):
        blobs.write(blob_key(sha256), _chunks(path))
    unpack(blobs, services.settings.home, sha256, limits)


def _record(services: Services, upload: Upload) -> None:
    with services.database.write() as session:
        record_upload(session, upload)


def _chunks(path: Path) -> Generator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
