"""Files and rows of benchmarks that are served as they are, or refused with what they lack."""

import json
from pathlib import Path

import pytest

from benchmark_rows import DOUBLE, refusal
from strop_sandbox.benchmarks import BENCHMARKS, benchmark_called
from strop_sandbox.datasets import Datasets
from strop_sandbox.errors import DataError
from strop_sandbox.wire import GetPromptByIdRequest, GetPromptsRequest, TestConfig


@pytest.mark.parametrize(
    ("name", "kind"),
    [("HumanEval", "HumanEvalDataset"), ("humaneval_python", "HumanEvalDataset"), ("humaneval-cpp", "MultiPLEDataset"),
     ("mbpp", "MBPPDataset"), ("mbpp-rs", "MultiPLEDataset"), ("multiple_js", "MultiPLEDataset"),
     ("humanevalds_v1_en", "MBXPDataset"), ("mbxp_v2_en", "MBXPDataset"), ("BigCodeBench", "BigCodeBenchDataset"),
     ("EvoEval_difficult", "EvoEvalDataset"), ("cruxeval_x", "CruxEvalDataset"), ("ncb_java_en", "NaturalCodeBenchDataset"),
     ("live_code_bench_v1", "LiveCodeBenchDataset"), ("sums", None)],
)  # fmt: skip
def test_a_file_s_name_says_which_benchmark_it_is(name: str, kind: str | None) -> None:
    found = benchmark_called(name)
    assert (found.name if found else None) == kind


def test_a_public_file_is_served_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "HumanEval.jsonl").write_text(json.dumps(DOUBLE))
    datasets = Datasets(tmp_path)
    assert datasets.names == ["HumanEval"]
    assert datasets.ids(GetPromptsRequest(dataset="HumanEval")) == ["HumanEval/900"]
    prompt = datasets.prompt(GetPromptByIdRequest(dataset="HumanEval", id="HumanEval/900"))
    assert prompt.prompt == DOUBLE["prompt"]
    assert prompt.labels["entry_point"] == "double"
    assert "test" not in prompt.labels
    kind, row = datasets.problem("HumanEval", "HumanEval/900", TestConfig())
    assert (kind, row) == ("HumanEvalDataset", DOUBLE)


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [("HumanEval", {"task_id": 1, "prompt": "def f():"}, "HumanEvalDataset has no test or tests"),
     ("mbpp", {"task_id": 1, "text": "Write f."}, "no test_list"),
     ("cruxeval", {"id": "sample_1", "code": "", "input": ""}, "no output"),
     ("cruxeval", {"code": "", "input": "", "output": ""}, "missing id"),
     ("sums", {"id": 1}, "missing content, test"),
     ("mbpp", [], "object")],
)  # fmt: skip
def test_a_file_with_a_row_that_lacks_something_is_refused_with_the_line(tmp_path, name, row, words) -> None:
    (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError) as refused:
        Datasets(tmp_path)
    assert f"{name}.jsonl:1" in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "row", "words"),
    [("HumanEvalDataset", {"task_id": "x", "test": "def check(f): ..."}, "has no prompt or complete_prompt or content"),
     ("HumanEvalDataset", {"prompt": "", "test": "def check(f): ..."}, "has no entry_point"),
     ("HumanEvalDataset", {"prompt": 5, "test": ""}, "prompt is text"),
     ("MBPPDataset", {"test_list": []}, "not empty"),
     ("MultiPLEDataset", {"prompt": "", "language": "js"}, "has no tests"),
     ("MBXPDataset", {"content": "", "labels": {"programming_language": "python"}}, "has no test"),
     ("MBXPDataset", {"labels": {"programming_language": "python"}, "test": {"code": "", "asset": {"a": 1}}}, "base64"),
     ("CruxEvalDataset", {"code": "", "input": "1"}, "has no output"),
     ("RepobenchCDataset", {"language": "java"}, "has no next_line")],
)  # fmt: skip
def test_a_row_that_lacks_a_field_is_a_400_that_names_it(service, kind: str, row: dict, words: str) -> None:
    assert words in refusal(service, kind, row)


def test_every_benchmark_says_what_it_needs_and_which_files_are_its_own() -> None:
    for benchmark in BENCHMARKS.values():
        assert benchmark.datasets
        assert benchmark.lacks({}) == [" or ".join(names) for names in benchmark.needs]
