"""Steps of `client.files`: upload, list, look at and delete files of rows."""

from __future__ import annotations

from pathlib import Path

from strop.client.wire import LONG_S, Call, Steps, listed, typed
from strop.errors import ConfigError, Problem, UnavailableError
from strop.locales import msg
from strop.schema.responses import FileInfo, Listed

MAX_BYTES = 1024**3
PAGE = 100


def upload(path: str | Path, *, purpose: str = "fine-tune") -> Steps[FileInfo]:
    """Send a file, in pieces from the disk.

    Raises:
        ConfigError: no such file, an empty one, or one that is too large; nothing has been sent.
    """
    path = Path(path)
    check_file(path)
    reply = yield Call(
        method="POST",
        path="files",
        upload=path,
        fields={"purpose": purpose},
        idempotent=False,
        answer="data",
        timeout_s=LONG_S,
    )
    uploaded = reply.get("uploaded_files") or []
    if len(uploaded) != 1 or reply.get("failed_uploads"):
        raise UnavailableError(
            msg("{path}: the server did not take the file: {get}", path=path, get=reply.get("failed_uploads"))
        )
    return (yield from get(str(uploaded[0]["file_id"])))


def check_file(path: Path) -> None:
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError:
        size = None
    if size is None:
        complaint = ("no such file", "write the rows there")
    elif size == 0:
        complaint = ("the file is empty", "write one row a line")
    elif size > MAX_BYTES:
        complaint = (f"{size} bytes, at most {MAX_BYTES} are taken", "split it, or write it as .jsonl.gz")
    else:
        return
    raise ConfigError("files", [Problem(place=str(path), message=complaint[0], fix=complaint[1])])


def get(file_id: str) -> Steps[FileInfo]:
    """One file.

    Raises:
        MissingError: there is no file with that id.
    """
    return typed(FileInfo, (yield Call(method="GET", path=f"files/{segment(file_id)}", answer="data")))


def list_(*, page_no: int = 1, page_size: int = 10, purpose: str | None = None) -> Steps[Listed[FileInfo]]:
    """Files, newest first."""
    params = {"page_no": page_no, "page_size": page_size, "purpose": purpose}
    return listed(FileInfo, (yield Call(method="GET", path="files", params=params, answer="data")), "files")


def delete(file_id: str) -> Steps[None]:
    """Forget a file. Jobs that were submitted with it keep their copy."""
    yield Call(method="DELETE", path=f"files/{segment(file_id)}", idempotent=False, answer="data")


def segment(text: str) -> str:
    """An id as a part of a path: it cannot lead anywhere else.

    Raises:
        ConfigError: it is empty.
    """
    from urllib.parse import quote

    if not text or text in (".", ".."):
        raise ConfigError("request", [Problem(place="id", message=msg("{text!r} is not an id", text=text))])
    return quote(text, safe="")
