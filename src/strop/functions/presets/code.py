"""Answer and tests -> whether the program in it passes, by a SandboxFusion server. Nothing is run here."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from strop.functions.presets.answer import Answer, CannotScore, RowLacks, Scored, text_of
from strop_sandbox.judged import JUDGED, TO_THE_END

_FENCE = re.compile(r"^```[ \t]*([\w+#-]*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MAX_CHARACTERS = 200_000
_KEY_IN_URL = (
    "holds the sandbox's key, which errors and pages would show; end it before /key/, and name in api_key_env"
    " the variable of the environment that has the key"
)


def code_tests(
    answer: str | Answer,
    reference: object,
    *,
    url: Annotated[str, Field(pattern=r"^https?://", description="a SandboxFusion server")],
    language: Annotated[str, Field(min_length=1, description="as the sandbox calls it")],
    tests: Annotated[
        Literal["stdin", "code"],
        Field(
            description="the reference: cases of stdin and stdout, or Ark's `{location: URL, url: ...}`; "
            "or Python code that fails when the answer's code is wrong"
        ),
    ] = "stdin",
    share: Annotated[bool, Field(description="the share of cases that pass, not all or nothing")] = False,
    run_timeout: Annotated[float, Field(gt=0, le=600, description="seconds a case may run")] = 10.0,
    compile_timeout: Annotated[float, Field(gt=0, le=600, description="seconds to compile")] = 10.0,
    limit_s: Annotated[float, Field(gt=0, le=3600, description="seconds to wait for the sandbox")] = 120.0,
    api_key_env: Annotated[
        str | None,
        Field(min_length=1, description="variable of the environment (`runtime.env`) with the sandbox's key"),
    ] = None,
) -> float:
    """1 for a program that passes its tests. A sandbox that is away or broken is no 0: the call has failed.

    A row without any case is refused: a sandbox accepts every program then.
    """
    text = text_of(answer)
    if not text.strip() or len(text) > _MAX_CHARACTERS:
        return 0.0
    limits = {"run_timeout": run_timeout, "compile_timeout": compile_timeout}
    ask = _Sandbox(url, limit_s, limits, api_key_env)
    if tests == "code":
        return _by_code(ask, text, reference, language)
    return _by_cases(ask, text, _cases(reference), language, share)


def check_code_tests(params: dict[str, Any]) -> str | None:
    """What is wrong with the parameters beyond their types."""
    if "/key/" in params["url"]:
        return f"url: {_KEY_IN_URL}"
    if params["tests"] == "code" and params["language"] != "python":
        return f"tests: code is for python only, not for {params['language']}"
    if params["tests"] == "code" and params["share"]:
        return "share: has no effect with tests: code, which pass or fail as one"
    return None


class _Sandbox:
    """`name` is what errors show of its address: neither a user's name nor a path, which may be secret."""

    def __init__(
        self, url: str, limit_s: float, limits: Mapping[str, float], api_key_env: str | None
    ) -> None:
        """Raises:
        CannotScore: there is no key where one should be, or one where none should be.
        """
        scheme, _, rest = url.partition("://")
        self.name = f"{scheme}://{re.split('[/?#]', rest)[0].rpartition('@')[2]}"
        self.url, self.limit_s, self.limits = url.rstrip("/"), limit_s, limits
        if "/key/" in url:
            raise CannotScore(f"sandbox {self.name}: url {_KEY_IN_URL}")
        self.headers: dict[bytes, bytes] = {}
        if api_key_env is not None:
            key = os.environ.get(api_key_env, "").strip()
            if not key or not key.isprintable():
                raise CannotScore(f"sandbox {self.name}: the variable {api_key_env!r} holds no key")
            self.headers = {b"authorization": f"Bearer {key}".encode()}

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        Raises:
            CannotScore: no answer, or not a good one.
        """
        import httpx

        base = self.url.removesuffix("/submit").removesuffix("/run_code")  # as Ark's pages give it
        try:
            reply = httpx.post(f"{base}{path}", json=body, timeout=self.limit_s, headers=self.headers)
            reply.raise_for_status()
            value: object = reply.json()
        except httpx.HTTPStatusError as error:  # its own text has the whole address
            raise CannotScore(f"sandbox {self.name} answered {error.response.status_code}") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise CannotScore(f"sandbox {self.name}: {type(error).__name__}: {error}") from error
        if not isinstance(value, dict):
            raise CannotScore(f"sandbox {self.name} answered {type(value).__name__}, expected an object")
        return cast("Mapping[str, Any]", value)


def _by_cases(ask: _Sandbox, text: str, cases: object, language: str, share: bool) -> float:
    body = {
        "dataset": "code_test",
        "id": 0,
        "completion": text,
        "config": {
            "dataset_type": "CommonOJDataset",
            "language": language,
            "locale": "en",
            "provided_data": {"test": cases},
            "extra": {"run_all_cases": True} if share else {},
            **ask.limits,
        },
    }
    told = ask.post("/submit", body)
    results = cast("list[Mapping[str, Any]]", told.get("tests") or [])
    for one in results:
        about = cast("Mapping[str, Any]", one.get("exec_info") or {})
        if about.get("status") == "SandboxError":
            raise CannotScore(f"sandbox {ask.name}: SandboxError: {about.get('message') or ''}"[:500])
    if not isinstance(told.get("accepted"), bool):
        raise CannotScore(f"sandbox {ask.name} did not say whether it accepts")
    if not results:
        raise CannotScore(f"sandbox {ask.name} ran no case")
    passed = sum(one.get("passed") is True for one in results)
    num_cases = max(len(results), len(cast("list[object]", cases)) if isinstance(cases, list) else 0)
    score = passed / num_cases if share else float(told["accepted"])
    return Scored(score, passed=float(passed), cases=float(num_cases))


def _by_code(ask: _Sandbox, text: str, reference: object, language: str) -> float:
    if not isinstance(reference, str) or not reference.strip():
        raise RowLacks("the row's reference holds no test code")
    # An answer that ends the program early, as by exit(0), never comes to where this is printed.
    flag = secrets.token_hex(16)
    judged = f"{_program(text, language)}\n\n{reference}\n".encode(errors="replace")
    body = {
        "code": TO_THE_END,
        "language": language,
        "stdin": flag,
        "files": {JUDGED: base64.b64encode(judged).decode()},
        **ask.limits,
    }
    told = ask.post("/run_code", body)
    if told.get("status") == "SandboxError":
        raise CannotScore(f"sandbox {ask.name}: SandboxError: {told.get('message') or ''}"[:500])
    ran = cast("Mapping[str, Any]", told.get("run_result") or {})
    stdout = str(ran.get("stdout") or "")
    return float(told.get("status") == "Success" and flag in stdout.split())


def _program(text: str, language: str) -> str:
    """The last block in the language, else the last block, else all."""
    blocks = [(match[1].lower(), match[2]) for match in _FENCE.finditer(text)]
    own = [code for tag, code in blocks if tag in (language, {"python": "py"}.get(language))]
    return (own or [code for _, code in blocks] or [text])[-1]


def _cases(reference: object) -> object:
    """The cases as the sandbox wants them, whichever of the known forms the row has."""
    value = reference
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowLacks("the row's tests are text that is not JSON") from error
    if isinstance(value, dict) and cast("Mapping[str, Any]", value).get("location") == "URL":
        return cast("object", value)
    if not isinstance(value, list) or not value:
        raise RowLacks(
            'the row has no tests; expected [{"input": {"stdin": ...}, "output": {"stdout": ...}}]'
        )
    return [_case(one) for one in cast("Sequence[object]", value)]


def _case(one: object) -> Mapping[str, Any]:
    outer: Any = cast("object", one) if isinstance(one, dict) else {}
    case: Any = outer.get("data", outer)
    given, wanted = case.get("input"), case.get("output")
    if not isinstance(given, dict) or not isinstance(wanted, dict) or "stdout" not in wanted:
        raise RowLacks("a test of the row has no input.stdin or no output.stdout")
    stdin, stdout = cast("Any", given).get("stdin"), cast("Any", wanted)["stdout"]
    return {"input": {"stdin": str(stdin or "")}, "output": {"stdout": str(stdout)}}
