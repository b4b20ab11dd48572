"""Rows of JSON, bad ones reported all at once; seeded order that goes on where it stopped."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from strop.data.dataset import Dataset, count_rows, joined, load_dataset, overlap_notes
from strop.errors import DataError, EngineError
from strop.schema.sample import Sample


def words(messages, tools):
    return sum(len(str(message["content"]).split()) for message in messages)


def load(path: Path, limit: int = 50) -> Dataset:
    return load_dataset(path, max_prompt_length=limit, prompt_length=words)


def row(text: str = "2 + 2?", **columns: object) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}], **columns})


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def numbered(count: int) -> Dataset:
    samples = tuple(Sample(sample_id=str(index), row=index + 1, messages=[]) for index in range(count))
    return Dataset(path=Path("rows"), samples=samples)


def test_a_row_becomes_a_sample_with_all_its_columns(tmp_path):
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    line = row("2 + 2?", sample_id="q-1", ground_truth=4, tools=[tool], rollout_extra={"unit": "m"})
    (sample,) = load(write(tmp_path / "a.jsonl", line)).samples
    assert sample == Sample(
        sample_id="q-1",
        row=1,
        messages=[{"role": "user", "content": "2 + 2?"}],
        tools=[tool],
        ground_truth=4,
        rollout_extra={"unit": "m"},
    )


def test_an_id_is_made_of_file_and_row_where_none_is_given(tmp_path):
    dataset = load(write(tmp_path / "calc.jsonl", row("a"), "", row("b"), row("c", sample_id=0)))
    assert [(sample.sample_id, sample.row) for sample in dataset.samples] == [
        ("calc-1", 1),
        ("calc-3", 3),
        ("0", 4),
    ]


@pytest.mark.parametrize(
    ("columns", "truth"),
    [
        ({"ground_truth": "a", "rollout_extra": {"ground_truth": "b"}}, "a"),
        ({"rollout_extra": {"ground_truth": "b"}}, "b"),
        ({"ground_truth": 0, "rollout_extra": {"ground_truth": 1}}, 0),
        ({"rollout_extra": {"solution": "2/3"}}, None),
    ],
)
def test_the_ground_truth_column_goes_before_rollout_extra(tmp_path, columns, truth):
    (sample,) = load(write(tmp_path / "a.jsonl", row(**columns))).samples
    assert sample.ground_truth == truth


def test_byte_order_mark_crlf_blank_lines_and_line_separators_are_fine(tmp_path):
    path = tmp_path / "a.jsonl"
    separator = json.dumps({"messages": [{"role": "user", "content": "a\u2028b"}]}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + f"{row('1')}\r\n\r\n{separator}\r\n{row('3')}".encode())
    samples = load(path).samples
    assert [(sample.row, sample.messages[0]["content"]) for sample in samples] == [
        (1, "1"),
        (3, "a\u2028b"),
        (4, "3"),
    ]
    assert count_rows(path) == 3


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("{", "not JSON: Expecting property name", "one JSON object a line"),
        ('{"messages": NaN}', "NaN is not JSON", None),
        ('{"messages": [], "messages": []}', "the key 'messages' appears twice", None),
        ("[" * 100_000, "nested more than 64 levels deep", None),
        ('{"messages": ' + "[" * 65 + "]" * 65 + "}", "nested more than 64 levels deep", "flatten it"),
        (
            '{"messages": [{"role": "user", "content": "a\\ud83d"}]}',
            "messages[0].content: contains half a character, '\\ud83d'",
            "two \\u escapes make one",
        ),
        (
            json.dumps({"messages": [USER], "sample_id": "\udfff"}),
            "sample_id: contains half a character",
            None,
        ),
        (
            json.dumps({"messages": [USER], "rollout_extra": {"\ud800": 1}}),
            "rollout_extra: contains half",
            None,
        ),
        (
            json.dumps({"messages": [USER], "tools": [{"a": ["\ud800"]}]}),
            "tools[0].a[0]: contains half",
            None,
        ),
        ('{"ground_truth": 1e400}', "1e400 is too large for a number", "or text"),
        ('{"ground_truth": ' + "9" * 5000 + "}", "a number of 5000 digits", "write it as text"),
        ("7", "expected a JSON object, found the number 7", None),
        ("{}", "messages: missing", '"role": "user"'),
        ('{"messages": "hi"}', "messages: expected a list, found text", None),
        ('{"messages": []}', "messages: empty", None),
        ('{"messages": ["hi"]}', "messages[0]: expected an object, found text", None),
        ('{"messages": [{"content": "hi"}]}', "messages[0].role: missing", "system, developer, user"),
        ('{"messages": [{"role": "usr", "content": "hi"}]}', "unknown role 'usr'", "did you mean 'user'?"),
        ('{"messages": [{"role": "user", "content": " "}]}', "messages[0].content: empty", None),
        ('{"messages": [{"role": "user"}]}', "messages[0].content: missing", None),
        ('{"messages": [{"role": "user", "content": 3}]}', "expected text, found the number 3", None),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            "content[0]: only parts of type text",
            None,
        ),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
            "the last one is from 'assistant'",
            "end with a message from user or tool",
        ),
        (json.dumps({"messages": [USER], "rollout_extra": [1]}), "rollout_extra: expected an object", None),
        (json.dumps({"messages": [USER], "tools": {}}), "tools: expected a list", None),
        (json.dumps({"messages": [USER], "tools": [{}]}), "tools[0].function.name: missing", None),
        (json.dumps({"messages": [USER], "sample_id": True}), "sample_id: expected text, found true", None),
        (json.dumps({"messages": [USER], "sample_id": ""}), "sample_id: must have 1 to 256", None),
        (json.dumps({"messages": [USER], "ground_truht": 1}), "ground_truht", "did you mean 'ground_truth'?"),
        (row("w " * 51), "the prompt has 51 tokens, max_prompt_length is 50", "raise max_prompt_length"),
    ],
)
def test_a_bad_row_is_reported_with_its_line_field_and_fix(tmp_path, line, message, fix):
    path = write(tmp_path / "a.jsonl", row("good"), "", line)
    with pytest.raises(DataError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert problem.place == f"{path}:3"
    assert message in problem.message
    assert fix is None or fix in (problem.fix or "")


def test_a_prompt_of_exactly_the_limit_is_accepted(tmp_path):
    assert len(load(write(tmp_path / "a.jsonl", row("w " * 50)))) == 1


def test_bytes_that_are_not_utf8_are_reported_with_their_position(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(row("1").encode() + b'\n{"a": "\xff"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: not UTF-8 at byte 8"):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[\n{"messages": []},\n{"messages": []}\n]', "one JSON array"),
        ("\ufeff{}".encode("utf-16-le"), "UTF-16"),
        (b"PAR1\x00\x00", "Parquet"),
        (b"\n \n", "no rows"),
    ],
)
def test_a_file_of_another_kind_is_one_problem(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert len(caught.value.problems) == 1


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        load(tmp_path / "none.jsonl")


def test_all_bad_rows_are_reported_and_the_text_shows_twenty(tmp_path):
    with pytest.raises(DataError) as caught:
        load(write(tmp_path / "a.jsonl", *["{}"] * 37))
    assert len(caught.value.problems) == 37
    assert "37 problems" in str(caught.value)
    assert str(caught.value).count("messages: missing") == 20
    assert str(caught.value).endswith("... and 17 more")


def test_an_id_that_stands_twice_names_both_rows(tmp_path):
    path = write(tmp_path / "a.jsonl", row("a", sample_id="x"), row("b"), row("c", sample_id="x"))
    with pytest.raises(DataError, match=r"a\.jsonl:3: sample_id: 'x' is already the id of row 1"):
        load(path)


def test_a_prompt_that_the_template_refuses_is_a_bad_row(tmp_path):
    def refuse(messages, tools):
        raise EngineError("roles must alternate")

    path = write(tmp_path / "a.jsonl", row("a"))
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*chat template rejects them: roles must alternate"):
        load_dataset(path, max_prompt_length=5, prompt_length=refuse)


def test_repeated_prompts_and_keys_nobody_reads_are_noted(tmp_path):
    path = write(tmp_path / "a.jsonl", row("a"), row("b", answer=1), row("a", answer=2))
    assert load(path).notes == (
        f"{path}: functions do not get the key 'answer' (rows that have it: 2); move it into rollout_extra",
        f"{path}: prompts that repeat an earlier one: 1 (first: row 3 repeats row 1)",
    )


def test_validation_prompts_that_are_trained_on_are_noted(tmp_path):
    training = load(write(tmp_path / "t.jsonl", row("a"), row("b")))
    validation = load(write(tmp_path / "v.jsonl", row("c"), row("b")))
    (note,) = overlap_notes(training, validation)
    assert "1 of 2 prompts are also in" in note
    assert "first: row 2" in note
    assert overlap_notes(training, load(write(tmp_path / "w.jsonl", row("c")))) == ()


def ids(draws, count):
    return [tuple(sample.sample_id for sample in draw.samples) for draw in itertools.islice(draws, count)]


def test_each_epoch_is_a_seeded_order_of_its_own():
    draws = list(itertools.islice(numbered(6).draws(2, seed=1), 9))
    epochs = [[sample.sample_id for draw in draws[i : i + 3] for sample in draw.samples] for i in (0, 3, 6)]
    assert [draw.epoch for draw in draws] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all(sorted(epoch) == list("012345") for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert ids(numbered(6).draws(2, seed=1), 9) == ids(numbered(6).draws(2, seed=1), 9)
    assert ids(numbered(6).draws(2, seed=1), 9) != ids(numbered(6).draws(2, seed=2), 9)


@pytest.mark.parametrize("size", [6, 7])
@pytest.mark.parametrize("stop_after", range(1, 8))
def test_drawing_goes_on_exactly_where_it_stopped_also_at_an_epochs_edge(size, stop_after):
    straight = ids(numbered(size).draws(2, seed=3), 9)
    last = list(itertools.islice(numbered(size).draws(2, seed=3), stop_after))[-1]
    resumed = numbered(size).draws(2, seed=3, epoch=last.next_epoch, index=last.next_index)
    assert ids(resumed, 9 - stop_after) == straight[stop_after:]


def test_rows_beyond_the_last_full_batch_are_left_out_of_an_epoch():
    draws = list(itertools.islice(numbered(7).draws(3, seed=0), 4))
    assert [draw.epoch for draw in draws] == [0, 0, 1, 1]
    assert [(draw.next_epoch, draw.next_index) for draw in draws] == [(0, 3), (1, 0), (1, 3), (2, 0)]
    assert numbered(7).steps_per_epoch(3) == 2


def test_fewer_rows_than_a_batch_is_a_data_error():
    with pytest.raises(DataError, match="3 rows, but one step takes batch_size = 4 of them"):
        next(numbered(3).draws(4, seed=0))


def test_several_files_are_one_dataset_in_their_order(tmp_path):
    for name in ("one", "two"):
        rows = [{"messages": [{"role": "user", "content": f"{name} {number}"}]} for number in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = [
        load_dataset(tmp_path / f"{name}.jsonl", max_prompt_length=9, prompt_length=lambda *_: 1)
        for name in ("one", "two")
    ]
    both = joined(parts, id_of=lambda sample: sample.sample_id)
    assert [sample.messages[0]["content"] for sample in both.samples] == ["one 0", "one 1", "two 0", "two 1"]
    assert both.steps_per_epoch(4) == 1
    with pytest.raises(DataError, match=r"two\.jsonl: sample_id: 'one-1' is also used in .*one\.jsonl"):
        joined([parts[0], replace(parts[1], samples=parts[0].samples)], id_of=lambda sample: sample.sample_id)
