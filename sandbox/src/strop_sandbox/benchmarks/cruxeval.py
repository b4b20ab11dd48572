"""CRUXEval: which value does this function give, or for which does it give that one; also in 19 languages."""

from __future__ import annotations

import ast
import re

from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import canonical
from strop_sandbox.wire import TestConfig

_PLACE = "????"
_CALLS = {
    **dict.fromkeys(("csharp",), f"F({_PLACE})"),
    **dict.fromkeys(("java", "scala", "swift"), f"f({_PLACE})"),
    "perl": f"$candidate->({_PLACE})",
    "ruby": f"candidate.call({_PLACE})",
    "racket": f"(candidate {_PLACE})",
    "bash": f"$(candidate {_PLACE})",
}
"""How the function is called in a language's tests; elsewhere `candidate(????)`."""

_BUILDERS = frozenset(
    ("set", "frozenset", "dict", "list", "tuple", "range", "str", "int", "float", "bytes", "chr", "len")
)
_WRAP = "Please respond in English and use Markdown format.####Instruction:\n{}\nResponse:\n"


def _mode(config: TestConfig) -> str:
    mode = config.extra.get("mode", "output")
    if mode not in CRUX_EVAL.modes:
        raise RequestError(f"extra.mode is {' or '.join(CRUX_EVAL.modes)}, found {mode!r}")
    return mode


def _language(problem: Problem) -> str:
    """`go_test_2` is one of CRUXEval-X, in go_test; `sample_2` is Python."""
    named = str(problem.id).rpartition("_")[0]
    return "python" if named in ("sample", "") else canonical(named) if named != "D_ut" else named


def _is_x(problem: Problem) -> bool:
    return _PLACE in problem.text("input")


def _prompt(problem: Problem, config: TestConfig) -> str:
    make = _prompt_x if _is_x(problem) else _prompt_python
    asked = make(problem, config)
    return _WRAP.format(asked) if config.extra.get("coding_wrap_prompt") else asked


_EXAMPLES = {
    "output": (
        ("def f(word):\n    return word[::-1] + '!'", "assert f('top') == ??", "assert f('top') == 'pot!'"),
        ("def f(a, b):\n    return a * b + 1", "assert f(3, 4) == ??", "assert f(3, 4) == 13"),
    ),
    "input": (
        ("def f(word):\n    return word[::-1] + '!'", "assert f(??) == 'pot!'", "assert f('top') == 'pot!'"),
        ("def f(a, b):\n    return a * b + 1", "assert f(??) == 13", "assert f(3, 4) == 13"),
    ),
}
_TASKS = {
    "output": "Here is a Python function and an assertion with an input to it. Complete the assertion with "
    "the literal that the function gives for that input, even where the function looks wrong; no calls, "
    "nothing that is still to be computed.",
    "input": "Here is a Python function and an assertion with its output. Find an input for which the "
    "function gives that output; where there are many, give one.",
}


def _prompt_python(problem: Problem, config: TestConfig) -> str:
    mode, code = _mode(config), problem.text("code")
    given, gives = problem.text("input"), problem.text("output")
    if config.extra.get("phind_output") and mode == "output":
        shown = "\n\n".join(f"{function}\n{right} # done" for function, _, right in _EXAMPLES[mode])
        task = f'{_TASKS[mode]} Write "# done" after the assertion.'
        return f"{task}\n\n{shown}\n\n{code}\nassert f({given}) =="
    asked = f"assert f({given}) == ??" if mode == "output" else f"assert f(??) == {gives}"
    steps = bool(config.extra.get("use_cot"))
    task = f"{_TASKS[mode]} {'Think step by step first. ' if steps else ''}"
    task += "Give the whole assertion between [ANSWER] and [/ANSWER]."
    parts = [task]
    for function, open_assertion, right in _EXAMPLES[mode]:
        fact = right.removeprefix("assert ")
        thought = f"[THOUGHT]\nBy the function, {fact}.\n[/THOUGHT]\n" if steps else ""
        parts.append(f"{_python(function, open_assertion)}\n{thought}[ANSWER]\n{right}\n[/ANSWER]")
    parts.append(f"{_python(code, asked)}\n{'[THOUGHT]' if steps else '[ANSWER]'}\n")
    return "\n\n".join(parts)


def _python(code: str, assertion: str) -> str:
    return f"[PYTHON]\n{code}\n{assertion}\n[/PYTHON]"


def _prompt_x(problem: Problem, config: TestConfig) -> str:
    language, mode = _language(problem), _mode(config)
    program = problem.text("code") + problem.text(mode)
    wanted = (
        f"the input, written as the call `{_call(language)}` with a value in place of {_PLACE}, for which "
        "the tests pass; where there are many, give one"
        if mode == "input"
        else f"the value in place of {_PLACE} for which the tests pass, even where the function looks wrong"
    )
    return (
        f"Here is a {language} function with its tests. Give {wanted}. Put the answer, and nothing else, "
        f"between [ANSWER] and [/ANSWER].\n\n```{language}\n{program}\n```\n"
    )


def _call(language: str) -> str:
    return _CALLS.get(language, f"candidate({_PLACE})")


def _attempt(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    answer = re.split(r"# done|\[/ANSWER\]", completion, maxsplit=1)[0]
    answer = answer.split("[ANSWER]")[1].strip() if "[ANSWER]" in answer else answer
    return (_attempt_x if _is_x(problem) else _attempt_python)(problem, answer, _mode(config))


def _attempt_python(problem: Problem, answer: str, mode: str) -> Attempt:
    if "assert f" in answer:
        answer = "f" + answer.split("assert f")[1].strip()
    fits = _is_call if mode == "input" else _is_literal
    if not fits(answer):  # a whole assertion; an answer alone may have the sign in a text
        left, _, right = (part.strip() for part in answer.partition("=="))
        answer = left if mode == "input" or not right else right
    call, gives = f"f({problem.text('input')})", problem.text("output")
    # In brackets of their own, closed on the next line: no comment, and no comma, takes the rest away.
    check = f"assert ({answer}\n) == ({gives if mode == 'input' else call})"
    may_be = fits(answer)
    program = f"{problem.text('code')}\n{check}\n"
    return Attempt(
        code=answer, language="python", program=program, test_code=check, is_right=None if may_be else False
    )


def _is_literal(answer: str) -> bool:
    """`f(x)` would be right by definition."""
    try:
        ast.literal_eval(answer)
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_call(answer: str) -> bool:
    """A call of `f` with values: `True or f()` and arguments that do something else are not."""
    try:
        call = ast.parse(answer, mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "f"):
        return False
    inside = [part for argument in (*call.args, *call.keywords) for part in ast.walk(argument)]
    names = {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    bound = {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    acts = (ast.Lambda, ast.NamedExpr, ast.Await, ast.Attribute, ast.Yield, ast.YieldFrom)
    return names <= _BUILDERS | bound and not any(isinstance(part, acts) for part in inside)


def _attempt_x(problem: Problem, answer: str, mode: str) -> Attempt:
    language, call = _language(problem), _call(_language(problem))
    test = problem.text(mode)
    if mode == "input":
        answer = answer if call.split(_PLACE)[0] in answer else call.replace(_PLACE, answer)
        check = test.replace(call, answer)
    else:
        check = test.replace(_PLACE, answer)
    program = problem.text("code") + check
    if language == "java":
        program = re.sub(r"\bclass\s+Problem\b", "class Main", program)
    is_right = None if _is_one_value(answer, language, mode) else False
    return Attempt(code=answer, language=language, program=program, test_code=check, is_right=is_right)


_PAIRS = {")": "(", "]": "[", "}": "{"}
_CALLED = re.compile(r"\bcandidate\b|\b[fF]\s*\(|\(\s*f\b")
_JOINS = re.compile(r"\|\||&&|\b(?:and|or|xor)\b", re.I)


def _is_one_value(answer: str, language: str, mode: str) -> bool:
    """Whether this may stand for a value in an assertion: it leaves it nowhere, and a wished-for value is not
    what the function itself gives, nor joined to something that holds anyway.

    >>> [_is_one_value(one, "cpp", "output") for one in ("'f(1) || 2'", "candidate(2)", "1 || true")]
    [True, False, False]
    """
    outside = _outside_texts(answer)
    if outside is None or _JOINS.search(outside):
        return False
    if mode == "input":
        return True
    # A shell runs what stands in a text, too.
    runs = language == "bash" and re.search(r"\$\(|`", answer)
    return not runs and not _CALLED.search(outside)


def _outside_texts(answer: str) -> str | None:
    """What is in no quotes; None where a quote stays open, or a bracket is closed that was not opened: it
    would be one of the assertion's.

    >>> _outside_texts("[1, ')']"), _outside_texts("1); exit(0); (1")
    ("[1, '']", None)
    """
    opened: list[str] = []
    outside: list[str] = []
    quote = ""
    index = 0
    while index < len(answer):
        sign = answer[index]
        index += 2 if quote and sign == "\\" else 1
        if quote and sign != quote:
            continue
        outside.append(sign)
        if quote:
            quote = ""
        elif sign in "\"'" and answer.find(sign, index) >= 0:
            quote = sign
        elif sign in "([{":
            opened.append(sign)
        elif sign in _PAIRS:
            if not opened or opened.pop() != _PAIRS[sign]:
                return None
        elif sign == ";" and not opened:
            return None
    return "".join(outside) if not opened and not quote else None


CRUX_EVAL = Benchmark(
    name="CruxEvalDataset",
    datasets=("*cruxeval*",),
    needs=(("code",), ("input",), ("output",)),
    prompt=_prompt,
    attempt=_attempt,
    compile_s=30.0,
    run_s=30.0,
    modes=("input", "output"),
)
