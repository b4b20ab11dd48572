"""Rows of the offline forms -> examples: masks, weights, pairs, pieces; every complaint with its place."""

# ruff: noqa: E501  a table reads best with a case a line

import json
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.tokenizer import CHATML, tiny_tokenizer
from strop.config.job import TrainingType
from strop.data.examples import load_examples, overlap_notes
from strop.errors import DataError
from strop.inference.chat.answers import TextTokens
from strop.rl.batch import pack

SFT, DPO, CPT = TrainingType.SFT, TrainingType.DPO, TrainingType.CPT
DROPS_THINKING = CHATML.replace(
    "message['content'] +",
    "(message['content'].split('</think>')[-1] if not loop.last else message['content']) +",
)


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def said(text: str, **more) -> dict:
    return {"role": "assistant", "content": text, **more}


def load(folder: Path, form: TrainingType, *rows, template: str = CHATML, limit: int = 256, name="rows"):
    path = folder / f"{name}.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return load_examples(
        path, form, max_length=limit, tokens=TextTokens(tiny_tokenizer(template), end_ids={2})
    )


def taught(sequence) -> str:
    ids = [token for token, on in zip(sequence.token_ids, sequence.loss_mask, strict=True) if on]
    return tiny_tokenizer().decode(ids)


def whole(sequence) -> str:
    return tiny_tokenizer().decode(list(sequence.token_ids))


def test_only_answers_are_taught_each_with_its_weight(tmp_path: Path) -> None:
    row = {
        "messages": [
            user("1"),
            said("one", loss_weight=0.5),
            user("2"),
            said("two", weight=0),
            user("3"),
            said("three"),
            user("4"),
            said("four", weight=0.5),
        ],
        "sample_id": "mine",
    }
    [example] = load(tmp_path, SFT, row).samples
    full, half = example.sequences
    assert (full.weight, taught(full)) == (1.0, "three<|im_end|>")
    assert (half.weight, taught(half)) == (0.5, "one<|im_end|>four<|im_end|>")
    assert full.token_ids == half.token_ids
    assert whole(full).count("<|im_start|>") == 8
    assert (example.example_id, example.pairs) == ("mine", ())
    assert [one.rollout_id for one in example.sequences] == ["mine/0", "mine/1"]
    # Both lie on one path of the tree: nothing is computed twice.
    assert len(pack(example.sequences).token_ids) == len(full.token_ids)


def test_a_template_that_drops_earlier_thinking_gives_a_sequence_for_each_context(tmp_path: Path) -> None:
    messages = [user("1"), said("<think>so</think>2"), user("3"), said("<think>oh</think>4")]
    [example] = load(tmp_path, SFT, {"messages": messages}, template=DROPS_THINKING).samples
    first, second = example.sequences
    assert taught(first) == "<think>so</think>2<|im_end|>"
    assert taught(second) == "<think>oh</think>4<|im_end|>"
    assert "so" not in whole(second)
    assert (first.weight, second.weight) == (1.0, 1.0)


def test_a_text_is_cut_so_that_every_token_but_the_first_is_taught_once(tmp_path: Path) -> None:
    text = "Having a calculator, having the answer: 1 2 3 4 5 6 7 8 9 0."
    ids = [*tiny_tokenizer().encode(text), 2]
    dataset = load(tmp_path, CPT, {"text": text}, {"text": "hello"}, limit=8)
    pieces = [one.sequences[0] for one in dataset.samples if one.row == 1]
    assert all(len(one.token_ids) <= 8 for one in pieces)
    found = [token for one in pieces for token, on in zip(one.token_ids, one.loss_mask, strict=True) if on]
    assert found == ids[1:]
    assert [one.example_id for one in dataset.samples][:2] == ["rows-1.0", "rows-1.1"]
    for before, after in pairwise(pieces):
        assert after.token_ids[0] == before.token_ids[-1]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [user("2+2?")], "chosen": said("4"), "rejected": said("5")},
        {"messages": [user("2+2?")], "chosen": "4", "rejected": "5"},
        {"messages": [user("2+2?"), {"role": "assistant", "chosen": "4", "rejected": "5"}]},
    ],
    ids=["messages", "texts", "ark"],
)
def test_a_preference_is_one_pair_over_the_same_prompt(tmp_path: Path, row: dict) -> None:
    [example] = load(tmp_path, DPO, row).samples
    chosen, rejected = example.sequences
    assert (taught(chosen), taught(rejected)) == ("4<|im_end|>", "5<|im_end|>")
    assert (chosen.weight, rejected.weight) == (0.0, 0.0)
    assert example.pairs == ((0, 1),)
    length = len(chosen.token_ids) - chosen.num_loss_tokens
    assert chosen.token_ids[:length] == rejected.token_ids[:length]


@pytest.mark.parametrize("form", ["choices", "content"])
def test_every_two_candidates_of_different_score_are_a_pair(tmp_path: Path, form: str) -> None:
    scores = (0.5, 1.0, 0.5, 0.1)
    word = "content" if form == "choices" else "text"
    candidates = [{word: f"answer {n}", "score": score} for n, score in enumerate(scores)]
    candidates[1] |= {"lm_loss_mask": 1, "loss_weight": 0.5}
    row = {"messages": [user("2+2?"), {"role": "assistant", form: candidates}]}
    [example] = load(tmp_path, DPO, row).samples
    assert set(example.pairs) == {(1, 0), (1, 2), (1, 3), (0, 3), (2, 3)}
    assert [one.weight for one in example.sequences] == [0.0, 0.5, 0.0, 0.0]
    assert taught(example.sequences[3]) == "answer 3<|im_end|>"


def test_candidates_of_one_score_teach_nothing_and_are_told(tmp_path: Path) -> None:
    same = {"messages": [user("?"), {"role": "assistant", "choices": [
        {"content": "a", "score": 0.5}, {"content": "b", "score": 0.5}]}]}  # fmt: skip
    pair = {"messages": [user("?")], "chosen": "a", "rejected": "b"}
    dataset = load(tmp_path, DPO, pair, same)
    assert len(dataset) == 1
    assert "rows that teach nothing, without text or with equal scores: 1 (first: row 2)" in dataset.notes[0]


def scored(*candidates) -> dict:
    return {"messages": [user("?"), {"role": "assistant", "choices": list(candidates)}]}


A, B = {"content": "a", "score": 1}, {"content": "b", "score": 0}


@pytest.mark.parametrize(
    ("form", "row", "complaint"),
    [
        (SFT, {"messages": [user("1")]}, "the last one is from 'user', so there is no answer to learn from"),
        (SFT, {"messages": [user("1"), said("2", weight=1, loss_weight=1)]}, "messages[1]: 'weight' and"),
        (SFT, {"messages": [user("1"), said("2", weight=2)]}, "messages[1].weight: expected a number from 0 to 1"),
        (SFT, {"messages": [user("1"), said("2", loss_weight=True)]}, "messages[1].loss_weight: expected a number"),
        (SFT, {"messages": [{**user("1"), "weight": 1}, said("2")]}, "only answers of the assistant are taught"),
        (SFT, {"messages": [user("1"), said("2", weight=0)]}, "every answer has weight 0"),
        (SFT, {"messages": [user("w " * 300), said("2")]}, "tokens, max_length is 256"),
        (SFT, {"text": "hello"}, "messages: missing"),
        (SFT, {"mesages": [user("1"), said("2")]}, "did you mean 'messages'?"),
        (SFT, "[1]", "expected a JSON object, found a list"),
        (SFT, "{", "not JSON"),
        (DPO, {"messages": [user("1"), said("2")]}, "messages[1]: a single answer is not a preference"),
        (DPO, {"messages": [user("1")]}, "chosen: missing"),
        (DPO, {"messages": [user("1")], "chosen": "a"}, "rejected: missing"),
        (DPO, {"messages": [user("1")], "chosen": "a", "rejected": "a"}, "equals rejected"),
        (DPO, {"messages": [user("1")], "chosen": user("a"), "rejected": "b"}, "chosen.role: expected 'assistant'"),
        (DPO, {"messages": [user("1"), said("2")], "chosen": "a", "rejected": "b"}, "nothing to answer"),
        (DPO, {"messages": [user("1")], "chosen": 5, "rejected": "b"}, '(a text, or {"role": "assistant", "content":'),
        (DPO, {"messages": [user("1")], "chosen": "\ud800", "rejected": "b"}, "chosen: contains half a character"),
        (DPO, "5", '"chosen": "It is 4.", "rejected": "No idea."}'),
        (SFT, {"messages": [user("1"), said("\udc00")]}, "messages[1].content: contains half a character"),
        (SFT, {"messages": [user("1"), said("2")], "sample_id": [1]}, "sample_id: expected text, found a list"),
        (CPT, {"text": "a\ud800b"}, "text: contains half a character"),
        (DPO, scored(A), "expected 2 to 5 candidates, found 1"),
        (DPO, scored(A, B, A, B, A, B), "expected 2 to 5 candidates, found 6"),
        (DPO, scored(A, {"content": "b"}), "choices[1].score: missing"),
        (DPO, scored(A, {"content": "b", "score": 3}), "choices[1].score: expected a number from 0 to 1"),
        (DPO, scored(A, {"score": 0}), "choices[1].content: missing"),
        (DPO, scored(A, {**B, "lm_loss_mask": 2}), "lm_loss_mask: expected 0 or 1"),
        (DPO, scored(A, {"content": "a", "score": 0}), "candidates 0 and 1 have different scores but are the same"),
        (CPT, {"text": " "}, "text: empty"),
        (CPT, {"text": 4}, "text: expected text, found the number 4"),
        (CPT, {"txt": "a"}, "did you mean 'text'?"),
    ],
)  # fmt: skip
def test_a_bad_row_is_told_with_file_line_and_field(tmp_path: Path, form, row, complaint: str) -> None:
    good = {
        SFT: {"messages": [user("1"), said("2")]},
        DPO: {"messages": [user("1")], "chosen": "a", "rejected": "b"},
        CPT: {"text": "hello"},
    }[form]
    with pytest.raises(DataError) as caught:
        load(tmp_path, form, good, row)
    found = [str(problem) for problem in caught.value.problems]
    assert any(complaint in one for one in found), found
    assert all(problem.place == f"{tmp_path}/rows.jsonl:2" for problem in caught.value.problems)


def test_all_bad_rows_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, CPT, {"text": ""}, {"text": "fine"}, {"text": None})
    assert [problem.place.rsplit(":", 1)[1] for problem in caught.value.problems] == ["1", "3"]


def test_unread_keys_shortened_answers_and_overlap_are_told(tmp_path: Path) -> None:
    shortens = CHATML.replace("message['content'] +", "message['content'].split('</think>')[-1] +")
    row = {"messages": [user("1"), said("<think>so</think>2")], "source": "web"}
    training = load(tmp_path, SFT, row, template=shortens)
    assert "the key 'source' is not read (rows that have it: 1)" in training.notes[0]
    assert "leaves out part of an answer, which is not taught: 1 (first: row 1)" in training.notes[1]
    held_out = load(tmp_path, SFT, row, {"messages": [user("3"), said("4")]}, template=shortens, name="held")
    [note] = overlap_notes(training, held_out)
    assert "1 of 2 rows are also in" in note
