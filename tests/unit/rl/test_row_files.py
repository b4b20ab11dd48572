"""The same rows out of text, gzip and Parquet."""

import gc
import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from strop.data import row_files
from strop.data.dataset import count_rows, load_dataset, numbered_lines
from strop.errors import DataError

ROWS = [
    {"messages": [{"role": "user", "content": "1 + 1?"}], "rollout_extra": {"ground_truth": "2"}},
    {
        "messages": [
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "let me see"},
            {"role": "user", "content": "\u2028 well?"},
        ],
        "ground_truth": "4",
    },
]
TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def loaded(path: Path):
    return load_dataset(path, max_prompt_length=10, prompt_length=lambda messages, tools: 1).samples


def write(path: Path, kind: str) -> Path:
    match kind:
        case "text":
            path.write_bytes(b"\xef\xbb\xbf" + TEXT)
        case "gzip":
            path.write_bytes(gzip.compress(TEXT))
        case "parquet":
            columns = [{"rollout_extra": None, "ground_truth": None} | row for row in ROWS]
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(columns), path)
    return path


@pytest.mark.parametrize("kind", ["text", "gzip", "parquet"])
def test_a_file_is_read_by_what_it_holds_not_by_its_name(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "rows.jsonl", kind)
    assert count_rows(path) == 2
    first, second = loaded(path)
    assert (first.messages, first.ground_truth, first.row) == (ROWS[0]["messages"], "2", 1)
    assert (second.messages, second.ground_truth) == (ROWS[1]["messages"], "4")


def test_values_of_parquet_become_the_json_that_they_would_be(tmp_path: Path) -> None:
    row = {
        "messages": ROWS[0]["messages"],
        "rollout_extra": {"price": Decimal("1.5"), "when": datetime(2026, 1, 2, tzinfo=UTC)},
    }
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "rows")
    (sample,) = loaded(tmp_path / "rows")
    assert sample.rollout_extra == {"price": 1.5, "when": "2026-01-02T00:00:00+00:00"}


def test_a_bad_row_of_parquet_is_told_by_its_number(tmp_path: Path) -> None:
    rows = [*ROWS, {"messages": []}, {"messages": ROWS[0]["messages"], "ground_truth": "3"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    with pytest.raises(DataError) as caught:
        loaded(tmp_path / "rows.parquet")
    assert [problem.place for problem in caught.value.problems] == [f"{tmp_path}/rows.parquet:3"]


def test_damaged_and_strange_files_are_told_with_a_fix(tmp_path: Path) -> None:
    parquet = write(tmp_path / "p", "parquet").read_bytes()
    cases = {
        "the gzip file is damaged": gzip.compress(TEXT)[:-12],
        "the gzip file is damaged:": b"\x1f\x8b\x08broken",
        "the Parquet file is damaged": parquet[:200],
        "the Parquet file is damaged:": b"PAR1" + b"x" * 100,
        "the file is a zip archive": b"PK\x03\x04...",
        "the file is UTF-16": "x".encode("utf-16"),
        "the file is one JSON array": gzip.compress(b"[{}]"),
    }
    for words, content in cases.items():
        path = tmp_path / "rows"
        path.write_bytes(content)
        with pytest.raises(DataError, match=words):
            list(numbered_lines(path))


def test_a_packed_file_may_not_unpack_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(row_files, "MAX_UNPACKED_BYTES", 5000)
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(b"x" * 10**6))
    with pytest.raises(DataError, match="a line longer than"):
        list(numbered_lines(path))
    path.write_bytes(gzip.compress((b"x" * 99 + b"\n") * 100))
    with pytest.raises(DataError, match="unpacks to more than"):
        list(numbered_lines(path))


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_parquet_file_may_not_unpack_without_end(tmp_path: Path, dictionary: bool) -> None:
    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"text": ["x" * 9_988] * 1000})  # 10,000,000 bytes as lines
    pyarrow.parquet.write_table(table, path, use_dictionary=dictionary, compression="zstd")
    assert path.stat().st_size < 100_000
    assert len(list(numbered_lines(path, max_unpacked_bytes=11_000_000))) == 1000
    with pytest.raises(DataError, match="unpacks to more than 9 MiB"):
        list(numbered_lines(path, max_unpacked_bytes=9 * 1024**2))


def problems_of(tmp_path: Path, row: dict[str, object]) -> list[str]:
    (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
    try:
        loaded(tmp_path / "one.jsonl")
    except DataError as error:
        return [problem.message for problem in error.problems]
    return []


def test_rows_of_ark_are_read_as_they_are(tmp_path: Path) -> None:
    row = {
        "messages": ROWS[0]["messages"],
        "extra": {"ground_truth": "2", "time_limit": "0.5"},
        "thinking": {"type": "auto"},
    }
    (tmp_path / "ark.jsonl").write_text(json.dumps(row) + "\n")
    (sample,) = loaded(tmp_path / "ark.jsonl")
    assert sample.rollout_extra == row["extra"]
    assert sample.ground_truth == "2"
    assert problems_of(tmp_path, row | {"extra": 7}) == ["extra: expected an object, found the number 7"]
    assert problems_of(tmp_path, row | {"rollout_extra": {"a": 1}}) == [
        "extra: is the same column as rollout_extra, which is also given"
    ]


CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("call", "answers", "words"),
    [
        (CALL, 1, None),
        (CALL | {"function": {"name": "add", "arguments": {"a": 1}}}, 1, None),
        (CALL, 0, "messages[1].tool_calls: 1 calls, but 0 tool messages after them"),
        (CALL, 2, "messages[1].tool_calls: 1 calls, but 2 tool messages after them"),
        (CALL | {"function": {}}, 1, "messages[1].tool_calls[0].function.name: missing"),
        ("add", 1, "messages[1].tool_calls[0].function.name: missing"),
        (
            CALL | {"function": {"name": "add", "arguments": "a=1"}},
            1,
            "messages[1].tool_calls[0].function.arguments: expected a JSON object as text",
        ),
    ],
)
def test_tool_calls_are_well_formed_and_each_is_answered_once(tmp_path: Path, call, answers, words) -> None:
    messages = [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        *[{"role": "tool", "tool_call_id": "c", "content": "2"}] * answers,
        {"role": "user", "content": "so?"},
    ]
    assert problems_of(tmp_path, {"messages": messages}) == ([] if words is None else [words])


def test_only_the_assistant_calls_tools(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "hi", "tool_calls": [CALL]}]}
    assert problems_of(tmp_path, row) == [
        "messages[0].tool_calls: only the assistant calls tools, this is from 'user'"
    ]


@pytest.mark.parametrize("nested", [False, True])
def test_a_value_that_parquet_has_once_is_not_in_memory_once_for_every_row(
    tmp_path: Path, nested: bool
) -> None:
    text = "x" * 2**20
    row = {"messages": [{"role": "user", "content": text}]} if nested else {"prompt": text}
    path, pool = tmp_path / "rows.parquet", pyarrow.default_memory_pool()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row] * 256), path, compression="zstd")
    assert path.stat().st_size < 2**20
    gc.collect()
    before, most, count = pool.bytes_allocated(), 0, 0
    for _, line in numbered_lines(path):
        most, count = max(most, pool.bytes_allocated() - before), count + 1
        assert json.loads(line) == row
    assert count == 256
    assert most < 64 * 2**20  # all rows of the batch are 256 MiB


def test_a_row_of_parquet_may_be_as_long_as_a_line_of_text(tmp_path: Path) -> None:
    rows = [{"prompt": "short"}, {"prompt": "x" * 2**16}, {"prompt": "short"}]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_files, "MAX_LINE_BYTES", 2**15)
        with pytest.raises(DataError) as caught:
            list(numbered_lines(path))
    [problem] = caught.value.problems
    assert problem.place == f"{path}:2"
