"""`strop data check`: all that is wrong at once, and how long prompts are."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fakes.model import save_tiny_model
from strop.cli.commands import app
from strop.cli.data import quantiles


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROP_LANG", "en")
    monkeypatch.setenv("COLUMNS", "200")


def check(*arguments: object, ends: int = 0) -> Result:
    done = CliRunner().invoke(app, ["data", "check", *map(str, arguments)])
    assert done.exit_code == ends, done.output
    return done


def row(text: str, **more: object) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}) + "\n"


def test_every_bad_row_is_told_with_line_field_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    wrong = '{"messages": [{"role": "usr", "content": "x"}]}\n'
    path.write_text(row("good") + wrong * 30 + "{broken\n" + row("x", rollout_extr={}))
    done = check(path, ends=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 33
    assert lines[0] == f"{path}:2: messages[0].role: unknown role 'usr' (did you mean 'user'?)"
    assert lines[30].startswith(f"{path}:32: not JSON")
    assert lines[31] == f"{path}:33: rollout_extr: unknown key (did you mean 'rollout_extra'?)"
    assert lines[32] == "32 problems"
    told = json.loads(check(path, "--json", ends=2).stdout)
    assert told["problems"][0] == {
        "place": f"{path}:2",
        "message": "messages[0].role: unknown role 'usr'",
        "fix": "did you mean 'user'?",
    }


def test_lengths_are_counted_with_the_model_s_own_tokenizer(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model")
    path = tmp_path / "rows.jsonl"
    path.write_text(row("a") + row("a b c", ground_truth="3") + row("a b c d e f g h", tools=None))
    told = json.loads(check(path, "--model", tmp_path / "model", "--json").stdout)["files"][0]
    assert (told["rows"], told["with_ground_truth"]) == (3, 1)
    least, middle, most = (told["lengths"][name] for name in ("min", "p50", "max"))
    assert told["lengths"]["total"] == least + middle + most
    assert least < middle < most
    done = check(path, "--model", tmp_path / "model", "--max-prompt-length", middle, ends=2)
    assert f"{path}:3: messages: the prompt has {most} tokens, max_prompt_length is {middle}" in done.stderr
    assert "needs --model" in check(path, "--max-prompt-length", 5, ends=2).output


def test_rows_that_are_validated_and_trained_on_are_told(tmp_path: Path) -> None:
    training, validation = tmp_path / "train.jsonl", tmp_path / "validation.jsonl"
    training.write_text(row("a") + row("b") + row("a"))
    validation.write_text(row("b"))
    done = check(training, "--validation", validation)
    assert "1 of 1 prompts are also in" in done.stdout
    assert "prompts that repeat an earlier one: 1" in done.stdout
    assert "fewer than batch_size 8" in check(training, "--batch-size", 8, ends=2).stderr


ANSWERED = [
    {"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c d e"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
]
PREFERRED = {
    "messages": [{"role": "user", "content": "a b"}],
    "chosen": {"role": "assistant", "content": "c d"},
    "rejected": {"role": "assistant", "content": "e"},
}


@pytest.mark.parametrize(
    ("form", "rows", "pairs"),
    [("sft", ANSWERED, 0), ("dpo", [PREFERRED], 1), ("cpt", [{"text": "a b c"}], 0)],
)
def test_rows_to_learn_from_are_checked_in_their_own_form(
    form: str, rows: list, pairs: int, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path / "model")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    plain = json.loads(check(path, "--type", form, "--json").stdout)["files"][0]
    assert (plain["rows"], plain["pairs"], plain["taught"]) == (len(rows), pairs, None)
    told = json.loads(check(path, "--type", form, "--model", tmp_path / "model", "--json").stdout)["files"][0]
    assert (told["rows"], told["pairs"]) == (len(rows), pairs)
    assert told["taught"] > 0 if form != "dpo" else told["taught"] == 0
    assert told["lengths"]["total"] >= told["taught"]
    path.write_text('{"messages": []}\n')
    assert f"{path}:1: " in check(path, "--type", form, ends=2).stderr


def test_a_row_that_is_too_long_to_learn_from_is_told(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in ANSWERED))
    long = ("--type", "sft", "--model", tmp_path / "model", "--max-length", 3)
    assert f"{path}:1: " in check(path, *long, ends=2).stderr
    assert "means nothing for --type" in check(path, "--model", "m", "--max-length", 3, ends=2).output


@pytest.mark.parametrize("packed", ["plain", "gzip", "parquet"])
def test_every_form_of_file_and_ark_s_rows_are_checked(packed: str, tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "2 + 2?"}], "extra": {"ground_truth": "4"}},
        {"messages": [{"role": "user", "content": "3 + 3?"}], "extra": {"ground_truth": "6"}},
    ]
    path = tmp_path / "rows"
    lines = "".join(json.dumps(one) + "\n" for one in rows).encode()
    if packed == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        arrow = pytest.importorskip("pyarrow")
        parquet.write_table(arrow.Table.from_pylist(rows), path)
    else:
        path.write_bytes(gzip.compress(lines) if packed == "gzip" else lines)
    told = json.loads(check(path, "--json").stdout)["files"][0]
    assert (told["rows"], told["with_ground_truth"]) == (2, 2)


def test_quantiles_are_values_that_occur() -> None:
    assert quantiles([5]) == {"min": 5, "p50": 5, "p90": 5, "p99": 5, "max": 5}
    assert quantiles(range(1, 101)) == {"min": 1, "p50": 50, "p90": 90, "p99": 99, "max": 100}
