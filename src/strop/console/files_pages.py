"""Uploaded files: the list, the first rows of one, and what is wrong with its rows."""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import RedirectResponse, Response

from strop.config.job import TrainingType
from strop.console.pages import BASE, page
from strop.console.requests import CallerHere, ServicesHere
from strop.console.words import pretty
from strop.data.dataset import load_dataset, numbered_lines
from strop.data.reading import read_offline
from strop.errors import DataError, Problem, RequestError, ThrottledError
from strop.locales import msg
from strop.schema.file import StoredFile
from strop.service import files
from strop.service.files import NewFile, blob_key
from strop.service.services import Services
from strop.store.blobs import CHUNK_BYTES

router = APIRouter()

PAGE_SIZE = 50
NUM_ROWS = 20
MAX_PREVIEW_BYTES = 256 * 1024
MAX_CHECK_BYTES = 64 * 1024**2
"""Packed or not. A larger file is checked on its owner's machine, with `strop data check`."""

MAX_CHECK_ROWS = 500_000
"""Each may be wrong in its own way, and a check tells all that is wrong at once."""

_FOREVER = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check of all rows says. `too_large`: it was not made."""

    num_rows: int = 0
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    too_large: bool = False


@router.get("/files")
def list_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page_no: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    found, total = files.list_files(services, caller, page_no=page_no, page_size=PAGE_SIZE)
    return page(
        request, "files.html", files=found, total=total, page_no=page_no, more=page_no * PAGE_SIZE < total
    )


@router.post("/files")
async def upload(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    async with request.form() as form:
        await run_in_threadpool(files.store, services, caller, _uploads(form))
    return RedirectResponse(f"{BASE}/files", status_code=303)


@router.get("/files/{file_id}")
def file_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    file_id: str,
) -> Response:
    return _file_page(request, services, files.get(services, caller, file_id))


@router.post("/files/{file_id}")
def check_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    file_id: str,
    form: Annotated[TrainingType, Form()],
) -> Response:
    """Check every row; one file at a time, whoever asks.

    Raises:
        ThrottledError: one is being checked.
    """
    file = files.get(services, caller, file_id)
    checking: threading.Lock = request.app.state.checking
    if not checking.acquire(blocking=False):
        raise ThrottledError(msg("another file is being checked"), fix=msg("repeat it in a moment"))
    try:
        report = check(services, file, form)
    finally:
        checking.release()
    return _file_page(request, services, file, form, report)


@router.post("/files/{file_id}/delete")
def delete(services: ServicesHere, caller: CallerHere, file_id: str) -> Response:
    files.delete(services, caller, file_id)
    return RedirectResponse(f"{BASE}/files", status_code=303)


def _uploads(form: FormData) -> list[NewFile]:
    """The files of the form, in its part `files`.

    Raises:
        RequestError: none was chosen.
    """
    uploads = [one for one in form.getlist("files") if isinstance(one, UploadFile)]
    if not uploads:
        raise RequestError(msg("no file in the request"), fix=msg("choose one"))
    return [
        NewFile(
            name=one.filename or "",
            chunks=iter(partial(one.file.read, CHUNK_BYTES), b""),
            empty=one.size == 0,
        )
        for one in uploads
    ]


def _file_page(
    request: Request,
    services: Services,
    file: StoredFile,
    form: TrainingType | None = None,
    report: Report | None = None,
) -> Response:
    rows = first_rows(services, file)
    return page(
        request, "file.html", file=file, rows=rows, forms=list(TrainingType), form=form, report=report
    )


def first_rows(services: Services, file: StoredFile) -> list[tuple[int, str]]:
    """The first lines with their numbers, laid out where they are JSON; none of what is no text."""
    head = b""
    for chunk in services.blobs.chunks(blob_key(file.sha256)):
        head += chunk
        if len(head) >= MAX_PREVIEW_BYTES:
            break
    if head.startswith(b"\x1f\x8b"):
        head = _unzipped(head)
    elif b"\0" in head[:4096]:
        return []
    lines = head[:MAX_PREVIEW_BYTES].decode("utf-8", "replace").split("\n")
    return [
        (number, pretty(line, indent=1)) for number, line in enumerate(lines[:NUM_ROWS], 1) if line.strip()
    ]


def _unzipped(head: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(head)) as reader:
            return reader.read(MAX_PREVIEW_BYTES)
    except (OSError, EOFError, zlib.error):  # cut off, or none after all
        return b""


def check(services: Services, file: StoredFile, form: TrainingType) -> Report:
    """Every row, as a job of that training type would check it, but for its length in tokens."""
    if file.size > MAX_CHECK_BYTES:
        return Report(too_large=True)
    folder = Path(tempfile.mkdtemp(prefix="check-", dir=services.settings.home))
    try:
        path = folder / file.name
        with path.open("wb") as copy:
            for chunk in services.blobs.chunks(blob_key(file.sha256)):
                copy.write(chunk)
        return _report(path, form)
    finally:
        shutil.rmtree(folder)


def _report(path: Path, form: TrainingType) -> Report:
    try:
        # Rows are held only once it is known how much they are.
        for count, _ in enumerate(numbered_lines(path, max_unpacked_bytes=MAX_CHECK_BYTES), 1):
            if count > MAX_CHECK_ROWS:
                return Report(too_large=True)
        if form.offline:
            rows = read_offline(path, form)
            return Report(num_rows=rows.num_rows, problems=[_named(one, path) for one in rows.problems])
        dataset = load_dataset(path, max_prompt_length=_FOREVER, prompt_length=lambda messages, tools: 0)
        return Report(num_rows=len(dataset), notes=dataset.notes)
    except DataError as error:
        return Report(problems=[_named(problem, path) for problem in error.problems])


def _named(problem: Problem, path: Path) -> Problem:
    return Problem(
        place=problem.place.replace(str(path), path.name), message=problem.message, fix=problem.fix
    )
