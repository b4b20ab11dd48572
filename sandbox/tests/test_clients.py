"""Clients written for SandboxFusion and for Ark's sandbox, unmodified, against this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def fusion(service, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The client from PyPI, told of this address as its users tell it."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it goes through pydantic's first version
        import sandbox_fusion
    sandbox_fusion.set_sandbox_endpoint(service.url)
    sandbox_fusion.set_dataset_endpoint(service.url)
    return sandbox_fusion


pytestmark = pytest.mark.filterwarnings("ignore")


def summary_words() -> Any:
    from sandbox_fusion.models import SummaryMapping

    return SummaryMapping(
        Success="Success",
        Failed="Failed",
        CompileFailed="CompileFailed",
        CompileTimeout="CompileTimeout",
        RunFailed="RunFailed",
        RunTimeout="RunTimeout",
    )


def test_the_official_client_runs_code_and_sums_up_how_it_ended(fusion) -> None:
    def ending(code: str, **more: Any) -> str:
        request = fusion.RunCodeRequest(code=code, **{"language": "python", "run_timeout": 5, **more})
        return fusion.summary_run_code_result(fusion.run_code(request), summary_words())

    assert ending("print(1)") == "Success"
    assert ending("raise ValueError") == "RunFailed"
    assert ending("while True: pass", run_timeout=0.3) == "RunTimeout"
    assert ending("int main() { ? }", language="cpp") == "CompileFailed"


def test_the_official_client_runs_many_at_once(fusion) -> None:
    requests = [fusion.RunCodeRequest(code=f"print({n} * 2)", language="python") for n in range(12)]
    replies = fusion.run_concurrent(fusion.run_code, args=[[one] for one in requests], concurrency=12)
    assert [reply.run_result.stdout for reply in replies] == [f"{n * 2}\n" for n in range(12)]


async def test_the_official_client_runs_asynchronously(fusion) -> None:
    reply = await fusion.run_code_async(fusion.RunCodeRequest(code="echo hi", language="bash"))
    assert (reply.status.value, reply.run_result.stdout) == ("Success", "hi\n")


def test_the_official_client_asks_prompts_and_submits(fusion) -> None:
    asked = fusion.get_prompts(fusion.GetPromptsRequest(dataset="sums", config=fusion.TestConfig()))
    assert next((prompt.id, prompt.prompt) for prompt in asked) == (1, "Read two numbers, print their sum.")
    one = fusion.get_prompt_by_id(
        fusion.GetPromptByIdRequest(dataset="sums", id=1, config=fusion.TestConfig())
    )
    assert one.labels == {"level": 1}
    for code, accepted in (("print(sum(map(int, input().split())))", True), ("print(3)", False)):
        request = fusion.SubmitRequest(
            dataset="sums",
            id=1,
            completion=f"```python\n{code}\n```",
            config=fusion.TestConfig(language="python", run_timeout=5),
        )
        assert fusion.submit_safe(request).accepted is accepted


def test_the_official_client_runs_a_notebook(fusion) -> None:
    request = fusion.RunJupyterRequest(
        cells=[
            "a = 20\nprint(a + 1)",
            "'hello'",
            "import sys; sys.stderr.write('oops')",
            "assert a == 1",
            "a * 2",
            "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()",
        ],
        total_timeout=120,
    )
    reply = fusion.run_jupyter(request)
    assert reply.status.value == "Success"
    printed, shown, complained, failed, after, drawn = reply.cells
    assert printed.stdout == "21\n"
    assert shown.display[0]["text/plain"] == "'hello'"
    assert complained.stderr == "oops"
    assert failed.error[0]["ename"] == "AssertionError"
    assert after.display[0]["text/plain"] == "40"
    assert any("image/png" in one for one in drawn.display)


def test_a_cell_without_end_is_interrupted_and_the_next_one_runs(service) -> None:
    body = {"cells": ["while True: pass", "print('after')"], "cell_timeout": 1, "total_timeout": 60}
    reply = service.client.post("/run_jupyter", json=body).json()
    assert reply["cells"][0]["error"][0]["ename"] in ("TimeoutError", "KeyboardInterrupt")
    assert reply["cells"][1]["stdout"] == "after\n"


def verl_metadata(
    url: str, solution: str, inputs: list[str], outputs: list[str], language: str, limit: float
) -> list[Any]:
    """What verl's `check_correctness` concludes from each case, by the calls and rules of its code.

    Source:
        verl, verl/utils/reward_score/sandbox_fusion/utils.py (behaviour; not its text).
    """
    import requests

    concluded: list[Any] = []
    for given, wanted in zip(inputs, outputs, strict=True):
        payload = {
            "compile_timeout": limit,
            "run_timeout": limit,
            "code": solution,
            "stdin": given,
            "memory_limit_MB": 1024,
            "language": language,
            "files": {},
            "fetch_files": [],
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        reply = requests.post(url, headers=headers, data=json.dumps(payload), timeout=2 * limit + 10)
        reply.raise_for_status()
        told = reply.json()
        compiled, ran = told.get("compile_result"), told.get("run_result")
        if told["status"] == "SandboxError":
            concluded.append(-1)
        elif compiled and (
            compiled["status"] in ("Error", "TimeLimitExceeded") or compiled.get("return_code")
        ):
            concluded.append(-4)
        elif ran and ran["status"] == "TimeLimitExceeded":
            concluded.append(-3)
        elif ran and (ran["status"] == "Error" or ran["return_code"] != 0):
            concluded.append(-2)
        else:
            concluded.append(ran["stdout"].rstrip("\n") == wanted.rstrip("\n"))
    return concluded


@pytest.mark.parametrize(
    ("code", "language", "expected"),
    [
        ("print(int(input()) + 1)", "python", [True, True]),
        ("print(int(input()) - 1)", "python", [False, False]),
        ("a=b", "cpp", [-4, -4]),
        ("raise ValueError('no')", "python", [-2, -2]),
        ("import time; time.sleep(10)", "python", [-3, -3]),
    ],
)
def test_verl_concludes_what_it_should(service, code: str, language: str, expected: list[Any]) -> None:
    url = f"{service.url}/run_code"
    limit = 1.0 if "sleep" in code else 10.0
    assert verl_metadata(url, code, ["3", "4"], ["4", "5"], language, limit) == expected


def test_the_payload_of_ark_s_demo_is_judged(service, tmp_path: Path) -> None:
    """Its request word for word: placeholders in `locale` and `extra`, strings for numbers, a wrapped file."""
    cases = [
        {"type": "StandardIO", "data": {"input": {"stdin": "1 2\r\n"}, "output": {"stdout": "3\r\n"}}},
        {"type": "StandardIO", "data": {"input": {"stdin": "5 6\r\n"}, "output": {"stdout": "11\r\n"}}},
    ]
    path = service.tests / "0852_852_B.json"
    path.write_text(json.dumps(cases))
    payload = {
        "dataset": "code_test",
        "id": 852,
        "completion": (
            "### Code\n```cpp\n#include <iostream>\n"
            "int main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }\n```"
        ),
        "config": {
            "dataset_type": "CommonOJDataset",
            "language": "cpp",
            "locale": "string",
            "provided_data": {"test": {"location": "URL", "url": f"file://{path}"}},
            "run_timeout": float("0.5"),
            "extra": {},
        },
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    reply = service.client.post("/submit", headers=headers, content=json.dumps(payload))
    told = reply.json()
    assert told["accepted"] is True
    assert told["id"] == 852
    assert set(told["tests"][0]) == {"passed", "exec_info", "test_info"}
    assert told["tests"][0]["test_info"] == {"input": {"stdin": "1 2\r\n"}, "output": {"stdout": "3\r\n"}}
    assert told["tests"][0]["exec_info"]["compile_result"]["return_code"] == 0
