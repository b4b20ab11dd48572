"""A data set's name, or rows in the request -> problems: their ids, their prompts, their tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from strop.errors import DataError, Problem, RequestError
from strop.sandbox.cases import parse_json
from strop.sandbox.wire import GetPromptByIdRequest, GetPromptsRequest, Prompt, TestConfig

COMMON_OJ, AUTO_EVAL = "CommonOJDataset", "AutoEvalDataset"

CLASSES = {
    COMMON_OJ: COMMON_OJ,
    AUTO_EVAL: AUTO_EVAL,
    **{f"AutoEvalV{version}": AUTO_EVAL for version in (4, 5, 6)},
    **{f"AutoEvalV{version}Dataset": AUTO_EVAL for version in (4, 5, 6)},
}
"""What `config.dataset_type` may say."""

Row = dict[str, Any]


class Datasets:
    """The data sets of a folder: a JSONL file each, `<id>.jsonl`, of problems {id, content, labels, test}.

    A problem with `test` a list (or a URL) is judged by its cases, one with `test.code` by that program.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._rows: dict[str, dict[str, Row]] = {}
        for path in sorted(folder.glob("*.jsonl")) if folder is not None else ():
            self._rows[path.stem] = {str(row["id"]): row for row in _read(path)}

    @property
    def names(self) -> list[str]:
        return list(self._rows)

    def ids(self, request: GetPromptsRequest) -> list[int | str]:
        return [row["id"] for row in self._selected(request)]

    def prompts(self, request: GetPromptsRequest) -> list[Prompt]:
        return [_prompt(row, request.config) for row in self._selected(request)]

    def prompt(self, request: GetPromptByIdRequest) -> Prompt:
        return _prompt(self.problem(request.dataset, request.id, request.config)[1], request.config)

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

    def _selected(self, request: GetPromptsRequest) -> list[Row]:
        given = request.config.provided_data
        if isinstance(given, dict):
            raise RequestError("config.provided_data must be a list of problems here, found one")
        rows = given if given is not None else list(self._dataset(request.dataset, request.config).values())
        if given is not None:
            self._class(request.dataset, request.config, {})
        return rows[request.offset : request.offset + request.limit]

    def _dataset(self, dataset: str, config: TestConfig) -> dict[str, Row]:
        if dataset not in self._rows:
            self._class(dataset, config, {})
            raise RequestError(f"no data set {dataset!r} here; there are {', '.join(self._rows) or 'none'}")
        return self._rows[dataset]

    def _class(self, dataset: str, config: TestConfig, row: Mapping[str, Any]) -> str:
        wanted = config.dataset_type
        if dataset in self._rows and config.provided_data is None:
            return _class_of(row)
        if wanted is None:
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


def _prompt(row: Mapping[str, Any], config: TestConfig) -> Prompt:
    labels = labels_of(row)
    text = str(row.get("content", ""))
    template = labels.get("prompt_template")
    if isinstance(template, str) and "{content}" in template:
        text = template.replace("{content}", text)
    if config.is_fewshot and isinstance(labels.get("fewshot"), str):
        text = f"{labels['fewshot']}\n\n{text}"
    return Prompt(id=row.get("id", 0), prompt=text, labels=labels)


def _read(path: Path) -> list[Row]:
    """Raises:
    DataError: a line that is no problem.
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
                problems.append(Problem(place=f"{path.name}:{number}", message=f"no JSON: {error}"))
                continue
            if not isinstance(row, dict) or "id" not in row or "content" not in row or "test" not in row:
                problems.append(
                    Problem(place=f"{path.name}:{number}", message="id, content and test are needed")
                )
                continue
            rows.append(row)  # pyright: ignore[reportUnknownArgumentType]
    if problems:
        raise DataError(f"data set {path.stem}", problems)
    return rows
