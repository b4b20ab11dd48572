"""A program that tests itself -> one that says a word when its tests are over, and whether it was said.

That tells a program that was tested from one that left before.
"""

from __future__ import annotations

import base64
import secrets

from strop_sandbox.judged import JUDGED, TO_THE_END
from strop_sandbox.wire import RunCodeResponse, RunStatus, TestResult

_WORD_BYTES = 10
_LEFT = "no word that the tests are over: the program left before, or its output was cut or closed"


def new_word() -> str:
    return secrets.token_hex(_WORD_BYTES)


def python_to_its_end(program: str) -> tuple[str, dict[str, str]]:
    """A program that runs `program`, then says what its standard input holds, and the files it needs."""
    judged = base64.b64encode(program.encode("utf-8", "surrogatepass")).decode()
    return TO_THE_END, {JUDGED: judged}


def tested(response: RunCodeResponse, word: str) -> TestResult:
    """Passed where the program succeeded and said `word`; an empty word asks for nothing."""
    said = (response.run_result and response.run_result.stdout) or ""
    succeeded = response.status is RunStatus.SUCCESS
    if succeeded and word not in said:
        return TestResult(passed=False, exec_info=response.model_copy(update={"message": _LEFT}))
    return TestResult(passed=succeeded, exec_info=response)
