"""A file of rows is read once: its rows, their number and its hash come of the same reading."""

import gzip
import hashlib
import io

import pytest

from strop.data.dataset import load_dataset
from strop.data.reading import RowFiles, read_offline, read_samples
from strop.errors import DataError
from strop.schema.training import TrainingType

ROW = b'{"messages": [{"role": "user", "content": "x"}]}\n'
ANSWERED = b'{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}\n'


def parquet() -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    rows = [{"messages": [{"role": "user", "content": f"{n}"}]} for n in range(3)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["text", "bom", "gzip", "parquet"])
def test_the_hash_is_the_one_of_the_file_on_the_disk(tmp_path, kind):
    text = ROW * 2 + b"\n" + ROW
    content = {"text": text, "bom": b"\xef\xbb\xbf" + text, "gzip": gzip.compress(text)}
    path = tmp_path / "a.jsonl"
    path.write_bytes(content[kind] if kind != "parquet" else parquet())
    rows = read_samples(path)
    assert rows.num_rows == len(rows.good) == 3
    assert rows.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    dataset = load_dataset(path, max_prompt_length=9, prompt_length=lambda *_: 1)
    assert dataset.hashes == {str(path): rows.sha256}


def test_bad_rows_count_as_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(ROW + b"{\n" + ROW)
    rows = read_samples(path)
    assert (rows.num_rows, [one.row for one in rows.good]) == (3, [1, 3])
    assert [one.place for one in rows.problems] == [f"{path}:2"]


def test_rows_to_learn_from_know_their_line_and_an_id_is_given_once(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(ANSWERED + b"\n" + ANSWERED.replace(b"{", b'{"sample_id": "a-1", ', 1))
    rows = read_offline(path, TrainingType.SFT)
    assert [one.row for one in rows.good] == [1, 3]
    assert [(one.place, one.message) for one in rows.problems] == [
        (f"{path}:3", "sample_id: 'a-1' is already the id of row 1")
    ]


def test_a_file_is_opened_once_however_much_is_asked_of_it(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(ROW * 2)
    files = RowFiles()
    assert files.num_rows(path, TrainingType.REINFORCEMENT) == 2
    path.unlink()
    assert not files.problems(path, TrainingType.REINFORCEMENT)
    assert len(files.samples(path).good) == 2


def test_a_file_that_cannot_be_read_says_so_each_time(tmp_path):
    files, path = RowFiles(), tmp_path / "a.jsonl"
    path.write_bytes(b"[1]")
    for _ in range(2):
        with pytest.raises(DataError, match="one JSON array"):
            files.num_rows(path, TrainingType.DPO)
    assert [one.place for one in files.problems(path, TrainingType.DPO)] == [f"{path}:1"]
