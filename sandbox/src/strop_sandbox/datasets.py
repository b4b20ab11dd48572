"""A data set's name, or rows in the request -> problems: their ids, their prompts, their tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from strop_sandbox.benchmarks import BENCHMARKS, benchmark_called
from strop_sandbox.benchmarks.benchmark import Benchmark, identity
from strop_sandbox.benchmarks.benchmark import Problem as BenchmarkProblem
from strop_sandbox.benchmarks.metrics import metrics_function
from strop_sandbox.cases import parse_json
from strop_sandbox.errors import DataError, Problem, RequestError
from strop_sandbox.wire import GetMetricsRequest, GetPromptByIdRequest, GetPromptsRequest, Prompt, TestConfig

COMMON_OJ, AUTO_EVAL = "CommonOJDataset", "AutoEvalDataset"

CLASSES = {
    COMMON_OJ: COMMON_OJ,
    AUTO_EVAL: AUTO_EVAL,
    **{f"AutoEvalV{version}": AUTO_EVAL for version in (4, 5, 6)},
    **{f"AutoEvalV{version}Dataset": AUTO_EVAL for version in (4, 5, 6)},
    **{name: name for name in BENCHMARKS},
}
"""What `config.dataset_type` may say."""

Row = dict[str, Any]

_NOT_SHOWN = ("prompt", "test", "tests", "testcases", "test_list", "public_test_cases", "private_test_cases")
"""Fields of a published row that are not labels: those of LiveCodeBench have gigabytes of tests."""


class Datasets:
    """The data sets of a folder: a JSONL file each, `<name>.jsonl`.

    A file that is called as a public benchmark's holds its rows as they are published. Any other holds
    problems {id, content, labels, test}: with `test` a list (or a URL) judged by its cases, with `test.code`
    by that program.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._rows: dict[str, dict[str, Row]] = {}
        for path in sorted(folder.glob("*.jsonl")) if folder is not None else ():
            rows = _read(path, benchmark_called(path.stem))
            self._rows[path.stem] = {str(identity(row)): row for row in rows}

    @property
    def names(self) -> list[str]:
        return list(self._rows)

    def ids(self, request: GetPromptsRequest) -> list[int | str]:
        return [prompt.id for prompt in self.prompts(request)]

    def prompts(self, request: GetPromptsRequest) -> list[Prompt]:
        """In the order of the rows; those of a benchmark that asks in several ways, by way."""
        kind, rows = self._selected(request)
        benchmark = BENCHMARKS.get(kind)
        modes = benchmark.modes if benchmark is not None and "mode" not in request.config.extra else ()
        configs = [_in_mode(request.config, mode) for mode in modes] or [request.config]
        return [_prompt(kind, request.dataset, row, config) for config in configs for row in rows]

    def prompt(self, request: GetPromptByIdRequest) -> Prompt:
        kind, row = self.problem(request.dataset, request.id, request.config)
        return _prompt(kind, request.dataset, row, request.config)

    def metrics_function(self, request: GetMetricsRequest) -> str | None:
        return metrics_function(BENCHMARKS.get(self._class(request.dataset, request.config, {})))

    def problem(self, dataset: str, identity: int | str, config: TestConfig) -> tuple[str, Row]:
        """The problem, and the class that judges it.

        Raises:
            RequestError: no such data set, class or problem.
        """
        given = config.provided_data
        if isinstance(given, list):
            raise RequestError("config.provided_data must be one problem here, found a list")
        if given is not None:
            return self._class(dataset, config, given), given
        rows = self._dataset(dataset, config)
        if str(identity) not in rows:
            raise RequestError(f"{dataset!r} has no problem {identity!r}")
        row = rows[str(identity)]
        return self._class(dataset, config, row), row

    def _selected(self, request: GetPromptsRequest) -> tuple[str, list[Row]]:
        given = request.config.provided_data
        if isinstance(given, dict):
            raise RequestError("config.provided_data must be a list of problems here, found one")
        rows = given if given is not None else list(self._dataset(request.dataset, request.config).values())
        kind = self._class(request.dataset, request.config, rows[0] if rows else {})
        return kind, rows[request.offset : request.offset + request.limit]

    def _dataset(self, dataset: str, config: TestConfig) -> dict[str, Row]:
        if dataset not in self._rows:
            self._class(dataset, config, {})
            raise RequestError(f"no data set {dataset!r} here; there are {', '.join(self._rows) or 'none'}")
        return self._rows[dataset]

    def _class(self, dataset: str, config: TestConfig, row: Mapping[str, Any]) -> str:
        wanted, called = config.dataset_type, benchmark_called(dataset)
        if dataset in self._rows and config.provided_data is None:
            return called.name if called is not None else _class_of(row)
        if wanted is None:
            if called is not None:
                return called.name
            raise RequestError(f"no eval class found for dataset {dataset}: config.dataset_type is not given")
        if wanted not in CLASSES:
            raise RequestError(f"no eval class found for {wanted!r}; known are {', '.join(CLASSES)}")
        return CLASSES[wanted]


def labels_of(row: Mapping[str, Any]) -> Row:
    labels = parse_json(row.get("labels") or {}, "labels")
    if not isinstance(labels, dict):
        raise RequestError(f"labels must be an object, found {type(labels).__name__}")
    return labels  # pyright: ignore[reportUnknownVariableType]


def _class_of(row: Mapping[str, Any]) -> str:
    test = parse_json(row.get("test"), "test")
    return AUTO_EVAL if isinstance(test, Mapping) and "code" in test else COMMON_OJ


def _in_mode(config: TestConfig, mode: str) -> TestConfig:
    return config.model_copy(update={"extra": {**config.extra, "mode": mode}})


def _prompt(kind: str, dataset: str, row: Row, config: TestConfig) -> Prompt:
    benchmark = BENCHMARKS.get(kind)
    return _own(row, config) if benchmark is None else _published(benchmark, dataset, row, config)


def _published(benchmark: Benchmark, dataset: str, row: Row, config: TestConfig) -> Prompt:
    problem = BenchmarkProblem(row, dataset)
    labels = problem.labels or {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    if benchmark.modes:
        labels = {"mode": config.extra.get("mode", benchmark.modes[-1])}
    return Prompt(id=problem.id, prompt=benchmark.prompt(problem, config), labels=labels)


def _own(row: Row, config: TestConfig) -> Prompt:
    labels = labels_of(row)
    text = str(row.get("content", ""))
    template = labels.get("prompt_template")
    if isinstance(template, str) and "{content}" in template:
        text = template.replace("{content}", text)
    if config.is_fewshot and isinstance(labels.get("fewshot"), str):
        text = f"{labels['fewshot']}\n\n{text}"
    return Prompt(id=row.get("id", 0), prompt=text, labels=labels)


def _read(path: Path, benchmark: Benchmark | None) -> list[Row]:
    """Raises:
    DataError: a line that does not hold a problem.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                problems.append(Problem(place=f"{path.name}:{number}", message=f"not JSON: {error}"))
                continue
            if wrong := _wrong(row, benchmark):
                problems.append(Problem(place=f"{path.name}:{number}", message=wrong))
                continue
            rows.append(row)
    if problems:
        raise DataError(f"data set {path.stem}", problems)
    return rows


def _wrong(row: object, benchmark: Benchmark | None) -> str:
    """Why this is not a problem, or an empty text if it is one."""
    if not isinstance(row, dict):
        return "a problem must be an object"
    given: Row = row  # pyright: ignore[reportUnknownVariableType]
    if benchmark is None:
        missing = [name for name in ("id", "content", "test") if name not in given]
        hint = (
            "; a file named after a benchmark (HumanEval.jsonl, mbpp.jsonl ...) holds its rows as published"
        )
        return f"missing {', '.join(missing)}: id, content and test are needed{hint}" if missing else ""
    missing = benchmark.lacks(given)
    if missing:
        return f"a row of {benchmark.name} has no {', no '.join(missing)}"
    return "" if identity(given) != 0 or "id" in given or "task_id" in given else "missing id"
