"""A file of rows -> its rows as numbered lines of JSON, be it text, gzip or Parquet. For `data.dataset`.

The kind is told by the first bytes, never by the name. pyarrow is loaded for Parquet alone.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol, cast

from strop.errors import DataError, Problem

MAX_LINE_BYTES = 64 * 1024**2
MAX_UNPACKED_BYTES = 8 * 1024**3
"""Of a compressed file: it may be a thousand times what arrived."""

_BOM = b"\xef\xbb\xbf"
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_BATCH_ROWS = 256
_CHUNK_BYTES = 1024**2


class Digest(Protocol):
    """One of `hashlib`'s."""

    def update(self, data: Any, /) -> None: ...


def numbered_lines(
    path: Path, *, max_unpacked_bytes: int | None = None, digest: Digest | None = None
) -> Iterator[tuple[int, bytes]]:
    """Rows with their numbers, from 1; in text that is the line, and blank ones are left out.

    `max_unpacked_bytes` is of gzip and Parquet; None takes `MAX_UNPACKED_BYTES`. `digest` has seen the whole
    file, as it is on the disk, when its last row has been taken.

    Raises:
        DataError: the file cannot be read, is damaged, or is of another kind.
    """
    limit = MAX_UNPACKED_BYTES if max_unpacked_bytes is None else max_unpacked_bytes
    try:
        with path.open("rb", buffering=0) as raw, io.BufferedReader(_Hashed(raw, digest)) as file:
            kind = file.peek(4)[:4]
            if kind == _PARQUET:
                yield from _parquet(path, limit)
                while file.read(_CHUNK_BYTES):  # pyarrow jumps about in it
                    pass
            elif kind.startswith(_GZIP):
                with gzip.open(file) as unpacked:
                    yield from _text(cast("IO[bytes]", unpacked), path, limit)
            else:
                yield from _text(file, path, None)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _refusal(path, f"the gzip file is damaged: {error}", "pack it again") from error
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror or error}") from error


class _Hashed(io.RawIOBase):
    """A file whose bytes go through a digest as they are read."""

    def __init__(self, file: io.FileIO, digest: Digest | None) -> None:
        super().__init__()
        self._file = file
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(buffer) or 0
        if self._digest is not None:
            self._digest.update(memoryview(buffer)[:count])
        return count


def count_rows(path: Path) -> int:
    """Rows of a file, without reading what is in them.

    Raises:
        DataError: the file cannot be read, is damaged, or is of another kind.
    """
    with path.open("rb") as file:
        is_parquet = file.read(4) == _PARQUET
    if is_parquet:
        return int(_open_parquet(path).metadata.num_rows)
    return sum(1 for _ in numbered_lines(path))


def _text(file: IO[bytes], path: Path, limit: int | None) -> Iterator[tuple[int, bytes]]:
    """Split at line feeds only: U+2028 may stand inside a JSON string."""
    number, num_bytes = 0, 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        num_bytes += len(line)
        if len(line) > MAX_LINE_BYTES:
            place = f"{path}:{number}"
            raise _refusal(
                path, f"a line longer than {MAX_LINE_BYTES // 1024**2} MiB", "one row a line", place
            )
        if limit is not None and num_bytes > limit:
            raise _too_much(path, limit)
        if number == 1:
            line = line.removeprefix(_BOM)
            if complaint := _not_json_lines(line):
                raise _refusal(path, *complaint, place=f"{path}:1")
        if line.strip():
            yield number, line


def _not_json_lines(first: bytes) -> tuple[str, str] | None:
    """Recognise by its first line a file of another kind, which would else fail once for each line."""
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the file is UTF-16", "save it as UTF-8"
    if first.startswith(_ZIP):
        return "the file is a zip archive", "unpack it; .jsonl, .jsonl.gz and .parquet are read"
    if first.lstrip().startswith(b"["):
        return (
            "the file is one JSON array",
            "write one JSON object per line, without brackets and commas around them",
        )
    return None


def _parquet(path: Path, limit: int) -> Iterator[tuple[int, bytes]]:
    """What a column says once for many rows counts as often as it stands in them."""
    file = _open_parquet(path)
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    if sum(group.total_byte_size for group in groups) > limit:
        raise _too_much(path, limit)
    number, num_bytes = 0, 0
    try:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            if num_bytes + _text_bytes(batch.columns) > limit:
                raise _too_much(path, limit)
            for rows in _parts(batch, path, number):
                for row in rows:
                    number += 1
                    line = _json(row, f"{path}:{number}", path)
                    num_bytes += len(line)
                    if num_bytes > limit:
                        raise _too_much(path, limit)
                    yield number, line
    except _arrow_errors() as error:
        place = f"{path}:{number + 1}"
        raise _refusal(path, f"the Parquet file is damaged: {error}", "write it again", place) from error


def _parts(batch: Any, path: Path, before: int) -> Iterator[list[dict[str, object]]]:
    """The rows of a batch as Python values; one by one where all of them together would be too much."""
    if _text_bytes(batch.columns) <= MAX_LINE_BYTES:
        yield batch.to_pylist()
        return
    for at in range(batch.num_rows):
        row = batch.slice(at, 1)
        if _text_bytes(row.columns) > MAX_LINE_BYTES:
            place = f"{path}:{before + at + 1}"
            raise _refusal(
                path, f"a row larger than {MAX_LINE_BYTES // 1024**2} MiB", "split its text", place
            )
        yield row.to_pylist()


def _text_bytes(arrays: Sequence[Any]) -> int:
    """Bytes of text that arrays hold once each row has its own: a dictionary has a text once for all rows."""
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]
    import pyarrow.compute as compute  # pyright: ignore[reportMissingTypeStubs]

    types, functions = cast("Any", pyarrow).types, cast("Any", compute)
    total = 0
    for array in arrays:
        if types.is_dictionary(array.type):
            lengths = functions.binary_length(array.dictionary)
            total += functions.sum(lengths.take(array.indices)).as_py() or 0
        elif types.is_list(array.type) or types.is_large_list(array.type):
            total += _text_bytes([array.flatten()])
        elif types.is_struct(array.type):
            total += _text_bytes(array.flatten())
        else:
            total += array.nbytes
    return total


def _open_parquet(path: Path) -> Any:
    """Texts stay in the dictionaries that the file has them in: one of megabytes may stand in every row."""
    try:
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        fix = "pip install 'strop[parquet]', or write the rows out as JSON lines"
        raise _refusal(path, "the file is Parquet, and pyarrow is not installed", fix) from error
    try:
        schema = cast("Any", parquet).ParquetFile(path).schema
        columns = [schema.column(index) for index in range(len(schema))]
        texts = [
            one.path
            for one in columns
            if one.physical_type == "BYTE_ARRAY" and one.logical_type.type in ("STRING", "NONE", "JSON")
        ]
        return cast("Any", parquet).ParquetFile(path, read_dictionary=texts)
    except _arrow_errors() as error:
        raise _refusal(path, f"the Parquet file is damaged: {error}", "write it again") from error


def _arrow_errors() -> tuple[type[Exception], ...]:
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    return (cast("Any", pyarrow).ArrowException, OSError)


def _json(row: object, place: str, path: Path) -> bytes:
    """A Parquet row as the line that it would be. A struct's missing fields are nulls there; here they go."""
    try:
        return json.dumps(_without_nulls(row), default=_plain, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise _refusal(
            path, f"a value that JSON cannot express: {error}", "leave the column out", place
        ) from error


def _without_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return {key: _without_nulls(item) for key, item in pairs if item is not None}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without_nulls(item) for item in cast("Sequence[object]", value)]
    return value


def _plain(value: object) -> object:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case bytes():
            return value.decode("utf-8")
        case _:
            raise TypeError(f"{type(value).__name__} {value!r}"[:80])


def _too_much(path: Path, limit: int) -> DataError:
    return _refusal(path, f"unpacks to more than {limit // 1024**2} MiB", "split it")


def _refusal(path: Path, message: str, fix: str | None = None, place: str | None = None) -> DataError:
    return DataError(str(path), [Problem(place=place or str(path), message=message, fix=fix)])
