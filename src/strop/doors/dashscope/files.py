"""`/files`: uploads of datasets."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import output
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.errors import RequestError
from strop.locales import msg
from strop.schema.access import Caller
from strop.schema.file import StoredFile
from strop.service import files
from strop.service.services import Services
from strop.store.blobs import CHUNK_BYTES

router = APIRouter(route_class=JsonRoute, prefix="/files", tags=["files"])

MAX_FILES = 100
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
        raise RequestError(msg("expected multipart/form-data"), fix=msg("send the file as the part `files`"))
    async with request.form(max_files=MAX_FILES, max_fields=MAX_FILES + 10) as form:
        stored = await run_in_threadpool(_store, services, caller, form)
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
    found, total = files.list_files(
        services, caller, page_no=page.page_no, page_size=page.page_size, purpose=purpose
    )
    return output(request, page.filled(total, files=[_reply(file) for file in found]), key="data")


@router.get("/{file_id}", summary="One file")
def get(request: Request, services: ServicesHere, caller: CallerHere, file_id: str) -> Response:
    return output(request, _reply(files.get(services, caller, file_id)), key="data")


@router.delete("/{file_id}", summary="Delete a file")
def delete(request: Request, services: ServicesHere, caller: CallerHere, file_id: str) -> Response:
    files.delete(services, caller, file_id)
    return output(request, {"file_id": file_id, "deleted": True}, key="data")


def _store(services: Services, caller: Caller, form: FormData) -> list[StoredFile]:
    uploads = [
        value for name, value in form.multi_items() if name in _PARTS and isinstance(value, UploadFile)
    ]
    if not uploads:
        raise RequestError(
            msg("no file in the request"), fix=msg("send it as the part `files`, with a file name")
        )
    given = form.get("purpose")
    purpose = (given.strip() if isinstance(given, str) else None) or "fine-tune"
    descriptions = [value for value in form.getlist("descriptions") if isinstance(value, str)]
    new = [
        files.NewFile(
            name=upload.filename or "",
            chunks=_chunks(upload),
            empty=upload.size == 0,
            description=descriptions[index] if index < len(descriptions) else "",
        )
        for index, upload in enumerate(uploads)
    ]
    return files.store(services, caller, new, purpose=purpose)


def _chunks(upload: UploadFile) -> Generator[bytes]:
    while chunk := upload.file.read(CHUNK_BYTES):
        yield chunk


def _reply(file: StoredFile) -> dict[str, Any]:
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
