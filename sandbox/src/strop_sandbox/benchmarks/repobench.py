"""RepoBench: the next line of a file, given the file so far and others of its repository; nothing is run."""

from __future__ import annotations

import re

from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.errors import RequestError
from strop_sandbox.wire import TestConfig

_COMMENTS = {
    "python": re.compile(r"\A\s*(?:#[^\n]*(?:\n|\Z)|(\"\"\"|''').*?(?:\1|\Z))", re.S),
    "java": re.compile(r"\A\s*(?://[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))", re.S),
}
_SIGNS = {"python": "#", "java": "//"}
_MAX_LINES = 60
_CHARACTERS_A_TOKEN = 3
"""A prompt's bound counts GPT-2's tokens in the reference; here a token is taken as so many characters."""


def _language(problem: Problem) -> str:
    language = problem.dataset.lower().rpartition("_")[2]
    language = str(problem.find("language") or language)
    if language not in _SIGNS:
        raise RequestError(
            f"problem {problem.id!r}: its language is python or java, found {language!r}",
            fix="name the data set repobench_c_python, or give the row a language",
        )
    return language


def first_line(code: str, language: str) -> str:
    """The first line that is not a comment; without one, the first.

    >>> first_line("# a\\n\\nx = 1\\ny = 2", "python")
    'x = 1'
    """
    rest = code.lstrip("\n")
    while found := _COMMENTS[language].match(rest):
        rest = rest[found.end() :]
    lines = [line for line in rest.split("\n") if line.strip()]
    return lines[0] if lines else code.lstrip("\n").split("\n")[0]


def _attempt(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    language, wanted = _language(problem), problem.text("next_line")
    line = first_line(completion, language)
    is_right = bool(wanted.split()) and line.split() == wanted.split()
    return Attempt(code=line, language=language, program=line, test_code=wanted, is_right=is_right)


def _prompt_c(problem: Problem, config: TestConfig) -> str:
    return problem.text("prompt")


def _prompt_p(problem: Problem, config: TestConfig) -> str:
    """Other files as comments, the one that is needed first, as many as there is room for; then the file."""
    language, sign = _language(problem), _SIGNS[_language(problem)]
    room = config.extra.get("max_prompt_length", 8000)
    if isinstance(room, bool) or not isinstance(room, int) or room < 1:
        raise RequestError(f"extra.max_prompt_length is a number of tokens, found {room!r}")
    room *= _CHARACTERS_A_TOKEN
    code = "\n".join(problem.text("code").split("\n")[-_MAX_LINES:])
    file = f"{sign} Path: {problem.text('file_path')}\n{problem.text('import_statement')}\n{code}"
    kept: list[str] = []
    for snippet in _snippets(problem):
        text = "\n".join(f"{sign} {line}" for line in snippet[1].split("\n"))
        text = f"{sign} Path: {snippet[0]}\n{text}\n"
        if len(file) + sum(map(len, kept)) + len(text) > room:
            break
        kept.append(text)
    return "".join(kept[::-1]) + file + ("\n" if language == "java" else "")


def _snippets(problem: Problem) -> list[tuple[str, str]]:
    found = problem.json("context")
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and {"path", "snippet"} <= set(one)  # pyright: ignore[reportUnknownArgumentType]
        for one in found  # pyright: ignore[reportUnknownVariableType]
    ):
        raise RequestError(f"problem {problem.id!r}: context is a list of {{path, snippet}}")
    snippets = [(str(one["path"]), str(one["snippet"])) for one in found]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    gold = problem.find("gold_snippet_index")
    if isinstance(gold, int) and 0 <= gold < len(snippets):
        snippets.insert(0, snippets.pop(gold))
    return snippets


_NEEDS = (("code",), ("file_path",), ("import_statement",), ("next_line",))
REPO_BENCH_C = Benchmark(
    name="RepobenchCDataset",
    datasets=("repobench_c_*",),
    needs=(("prompt",), ("next_line",)),
    prompt=_prompt_c,
    attempt=_attempt,
)
REPO_BENCH_P = Benchmark(
    name="RepobenchPDataset",
    datasets=("repobench_p_*",),
    needs=(("context",), *_NEEDS),
    prompt=_prompt_p,
    attempt=_attempt,
)
