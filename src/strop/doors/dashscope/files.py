"""`/files`: uploads of datasets. Contents go to the blob store by hash; no client's name becomes a path."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import output
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, Services, ServicesHere
from strop.errors import RequestError
from strop.schema.access import Caller
from strop.schema.file import StoredFile
from strop.store.blobs import CHUNK_BYTES
from strop.store.files import forget_file, get_file, is_held, numbered_files, record_file

router = APIRouter(route_class=JsonRoute, prefix="/files", tags=["files"])

MAX_FILES = 100
MAX_NAME_BYTES = 200
"""Disks take 255; a job puts a number before it."""

PURPOSES = ("fine-tune", "fine_tune", "assistants", "file-extract", "batch", "evaluation")
_PARTS = ("files", "file")


@router.post(
    "",
    summary="Upload one or more files",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["files"],
                        "properties": {
                            "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                            "purpose": {"type": "string", "default": "fine-tune"},
                            "descriptions": {"type": "array", "items": {"type": "string"}},
                        },
                    }
                }
            },
        }
    },
)
async def upload(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestError("expected multipart/form-data", fix="send the file as the part `files`")
    async with request.form(max_files=MAX_FILES, max_fields=MAX_FILES + 10) as form:
        stored = await run_in_threadpool(store_uploads, services, caller, form)
    uploaded = [{"name": file.name, "file_id": file.file_id} for file in stored]
    return output(request, {"uploaded_files": uploaded, "failed_uploads": []}, key="data")


@router.get("", summary="List files, newest first")
def list_files(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page: PageHere,
    purpose: Annotated[str | None, Query()] = None,
) -> Response:
    with services.database.read() as session:
        files, total = numbered_files(
            session,
            workspace_id=caller.workspace_id,
            purpose=purpose,
            page_no=page.page_no,
            page_size=page.page_size,
        )
    return output(request, page.filled(total, files=[_shown(file) for file in files]), key="data")


@router.get("/{file_id}", summary="One file")
def get(request: Request, services: ServicesHere, caller: CallerHere, file_id: str) -> Response:
    with services.database.read() as session:
        file = get_file(session, file_id, workspace_id=caller.workspace_id)
    return output(request, _shown(file), key="data")


@router.delete("/{file_id}", summary="Delete a file")
def delete(request: Request, services: ServicesHere, caller: CallerHere, file_id: str) -> Response:
    with services.database.write() as session:
        file = forget_file(session, file_id, workspace_id=caller.workspace_id)
        # Inside the transaction: an equal file that is being uploaded is either seen or writes the blob anew.
        if not is_held(session, file.sha256):
            services.blobs.delete(blob_key(file.sha256))
    return output(request, {"file_id": file_id, "deleted": True}, key="data")


def blob_key(sha256: str) -> str:
    return f"files/{sha256[:2]}/{sha256}"


def store_uploads(services: Services, caller: Caller, form: FormData) -> list[StoredFile]:
    """Keep the files of a form that was read.

    Raises:
        RequestError: none, an empty one, or a purpose that is none.
    """
    uploads = [
        value for name, value in form.multi_items() if name in _PARTS and isinstance(value, UploadFile)
    ]
    if not uploads:
        raise RequestError("no file in the request", fix="send it as the part `files`, with a file name")
    purpose = _text(form, "purpose") or "fine-tune"
    if purpose not in PURPOSES:
        raise RequestError(f"purpose: found {purpose[:100]!r}, expected one of {', '.join(PURPOSES)}")
    descriptions = [value for value in form.getlist("descriptions") if isinstance(value, str)]
    names = [_base_name(upload.filename or "") for upload in uploads]
    empty = [name for name, upload in zip(names, uploads, strict=True) if upload.size == 0]
    if empty:
        raise RequestError(f"empty: {', '.join(empty)}", fix="write at least one row")
    stored: list[StoredFile] = []
    for index, (name, upload) in enumerate(zip(names, uploads, strict=True)):
        about = descriptions[index] if index < len(descriptions) else ""
        stored.append(_store(services, caller, name, about, purpose.replace("_", "-"), upload))
    return stored


def _store(
    services: Services, caller: Caller, name: str, description: str, purpose: str, upload: UploadFile
) -> StoredFile:
    """Write under a name of its own first: the hash is known at the end."""
    file_id = f"file-{secrets.token_hex(16)}"
    arriving = f"arriving/{file_id}"
    written = services.blobs.write(arriving, _chunks(upload))
    file = StoredFile(
        file_id=file_id,
        workspace_id=caller.workspace_id,
        name=name,
        description=description[:4096],
        purpose=purpose,
        size=written.size,
        sha256=written.sha256,
        md5=written.md5,
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        record_file(session, file)
        services.blobs.rename(arriving, blob_key(written.sha256))
    return file


def _chunks(upload: UploadFile) -> Generator[bytes]:
    while chunk := upload.file.read(CHUNK_BYTES):
        yield chunk


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else None


def _base_name(given: str) -> str:
    """The last part of whatever path a client wrote, without control characters.

    >>> _base_name("../../data/train.jsonl"), _base_name("C:\\\\data\\\\train.jsonl")
    ('train.jsonl', 'train.jsonl')
    """
    name = PureWindowsPath(PurePosixPath(given).name).name
    name = "".join(letter for letter in name if letter.isprintable()).strip()
    if not name or name in (".", ".."):
        raise RequestError("a file without a name", fix="send the part `files` with a file name")
    if len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise RequestError(f"a file name of {len(name)} characters", fix=f"at most {MAX_NAME_BYTES} bytes")
    return name


def _shown(file: StoredFile) -> dict[str, Any]:
    """`id` is what OpenAI's clients call it; no URL is given out, for nothing would guard it."""
    return {
        "id": file.file_id,
        "file_id": file.file_id,
        "name": file.name,
        "description": file.description,
        "purpose": file.purpose,
        "size": file.size,
        "md5": file.md5,
        "sha256": file.sha256,
        "gmt_create": file.created_at.strftime("%Y-%m-%d %H:%M:%S"),
    }
