"""`PUT /uploads/{workspace}/{unique_key}`: a zip of code, at an address that this server signed just now."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import IO, Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from strop.doors.documented import FAILURES
from strop.doors.requests import ServicesHere, public_url
from strop.service import functions
from strop.service.services import Services
from strop.store.blobs import CHUNK_BYTES

router = APIRouter(tags=["functions"], responses=FAILURES)


def upload_url(request: Request, services: Services, workspace_id: str, unique_key: str) -> str:
    """An address that takes one bundle under this key, for a while."""
    expires, signature = functions.sign_upload(services, workspace_id, unique_key)
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
    functions.check_upload(services, workspace_id, unique_key, expires=expires, signature=signature)
    arriving = services.settings.home / "arriving"
    await run_in_threadpool(arriving.mkdir, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=arriving, prefix="bundle-") as file:
        sha256 = await _receive(request, file)
        upload = await run_in_threadpool(
            functions.keep_bundle, services, workspace_id, unique_key, Path(file.name), sha256
        )
    return JSONResponse({"size": upload.size, "sha256": upload.sha256})


async def _receive(request: Request, file: IO[bytes]) -> str:
    """Write the body. Returns its hash."""
    digest = hashlib.sha256()
    pending: list[bytes] = []
    waiting = 0
    async for chunk in request.stream():
        digest.update(chunk)
        pending.append(chunk)
        waiting += len(chunk)
        if waiting >= CHUNK_BYTES:
            await run_in_threadpool(file.writelines, pending)
            pending, waiting = [], 0
    await run_in_threadpool(file.writelines, pending)
    await run_in_threadpool(file.flush)
    return digest.hexdigest()
