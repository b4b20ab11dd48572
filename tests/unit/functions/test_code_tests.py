"""`code_tests` against a server that speaks SandboxFusion's wire, well and badly."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from strop.functions.presets import CannotScore, RowLacks, code_tests

CASES = [
    {"input": {"stdin": "1 2"}, "output": {"stdout": "3"}},
    {"input": {"stdin": "2 2"}, "output": {"stdout": "4"}},
]
ANSWER = "```python\nprint(sum(map(int, input().split())))\n```"


class Sandbox:
    """Replies as told; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.tokens: list[str | None] = []
        self.status = 200
        self.reply: Any = {}
        self.url = ""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            box.asked.append((self.path, body))
            box.tokens.append(self.headers["authorization"])
            reply = box.reply(body) if callable(box.reply) else box.reply
            content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(box.status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    box.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield box
    server.shutdown()
    thread.join()
    server.server_close()


def results(*passed: bool, status: str = "Success") -> dict[str, Any]:
    tests = [{"passed": one, "exec_info": {"status": status, "message": "no disk"}} for one in passed]
    return {"accepted": all(passed), "tests": tests}


def test_a_program_is_sent_with_its_cases_and_its_limits(sandbox: Sandbox) -> None:
    sandbox.reply = results(True, True)
    score = code_tests(ANSWER, CASES, url=f"{sandbox.url}/submit", language="python", run_timeout=2.0)
    assert (score, score.metrics) == (1.0, {"passed": 2.0, "cases": 2.0})  # pyright: ignore[reportAttributeAccessIssue]
    ((path, body),) = sandbox.asked
    assert path == "/submit"
    assert body["completion"] == ANSWER
    config = body["config"]
    assert config["provided_data"] == {"test": CASES}
    assert (config["dataset_type"], config["language"]) == ("CommonOJDataset", "python")
    assert (config["run_timeout"], config["compile_timeout"]) == (2.0, 10.0)


def test_all_or_nothing_or_the_share_of_cases(sandbox: Sandbox) -> None:
    sandbox.reply = results(True, False)
    assert code_tests(ANSWER, CASES, url=sandbox.url, language="python") == 0.0
    assert code_tests(ANSWER, CASES, url=sandbox.url, language="python", share=True) == 0.5
    assert sandbox.asked[1][1]["config"]["extra"] == {"run_all_cases": True}
    sandbox.reply = results(True)  # a server that stopped early is not believed
    assert code_tests(ANSWER, CASES, url=sandbox.url, language="python", share=True) == 0.5


def test_the_cases_of_a_row_are_read_in_every_known_form(sandbox: Sandbox) -> None:
    sandbox.reply = results(True, True)
    wrapped = [{"type": "StandardIO", "data": one} for one in CASES]
    address = {"location": "URL", "url": "https://example.com/cases.json"}
    for given, sent in ((wrapped, CASES), (json.dumps(CASES), CASES), (address, address)):
        assert code_tests(ANSWER, given, url=sandbox.url, language="cpp") == 1.0
        assert sandbox.asked[-1][1]["config"]["provided_data"]["test"] == sent


@pytest.mark.parametrize("row", [None, [], "", "no json", [{"input": {}}], [1], {"location": "disk"}])
def test_a_row_without_cases_is_no_score(sandbox: Sandbox, row: object) -> None:
    with pytest.raises(RowLacks):
        code_tests(ANSWER, row, url=sandbox.url, language="python")
    assert sandbox.asked == []


@pytest.mark.parametrize(
    ("status", "reply", "text"),
    [
        (500, {"detail": "overloaded"}, "500"),
        (200, b"<html>", "sandbox"),
        (200, [], "expected an object"),
        (200, {"accepted": True, "tests": []}, "ran no case"),
        (200, {"tests": [{"passed": True}]}, "did not say whether it accepts"),
        (200, results(True, False, status="SandboxError"), "SandboxError: no disk"),
    ],
)
def test_a_sandbox_that_is_away_or_broken_is_no_score(
    sandbox: Sandbox, status: int, reply: Any, text: str
) -> None:
    sandbox.status, sandbox.reply = status, reply
    with pytest.raises(CannotScore, match=text) as caught:
        code_tests(ANSWER, CASES, url=sandbox.url, language="python")
    assert caught.value.error_code == "cannot_score"


def test_the_key_comes_from_the_environment_and_stands_in_no_error(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.reply = results(True, True)
    monkeypatch.setenv("BOX_KEY", "sesame")
    code_tests(ANSWER, CASES, url=sandbox.url, language="python", api_key_env="BOX_KEY")
    code_tests(ANSWER, CASES, url=sandbox.url, language="python")
    assert sandbox.tokens == ["Bearer sesame", None]
    monkeypatch.delenv("BOX_KEY")
    with pytest.raises(CannotScore, match="'BOX_KEY' holds no key"):
        code_tests(ANSWER, CASES, url=sandbox.url, language="python", api_key_env="BOX_KEY")
    sandbox.status = 401
    host = sandbox.url.removeprefix("http://")
    for secret in (f"http://me:sesame@{host}", f"http://{host}/sesame", f"http://{host}/key/sesame"):
        with pytest.raises(CannotScore) as caught:
            code_tests(ANSWER, CASES, url=secret, language="python")
        assert "sesame" not in str(caught.value)
        assert sandbox.url in str(caught.value)
    with pytest.raises(CannotScore, match="api_key_env"):
        code_tests(ANSWER, CASES, url=f"{sandbox.url}/key/sesame", language="python")
    assert len(sandbox.asked) == 4


def test_nothing_is_asked_of_nobody(sandbox: Sandbox) -> None:
    assert code_tests(" ", CASES, url=sandbox.url, language="python") == 0.0
    assert sandbox.asked == []
    with pytest.raises(CannotScore, match="ConnectError"):
        code_tests(ANSWER, CASES, url="http://127.0.0.1:9", language="python")


def test_code_against_code_passes_only_if_it_comes_to_its_end(sandbox: Sandbox) -> None:
    def run(body: Any) -> Any:
        return {"status": "Success", "run_result": {"stdout": f"noise\n{body['stdin']}\n"}}

    text = "First:\n```python\nraise SystemExit\n```\nBetter:\n```python\ndef f():\n    return 1\n```"
    tests = "assert f() == 1"
    sandbox.reply = run
    assert code_tests(text, tests, url=sandbox.url, language="python", tests="code") == 1.0
    path, body = sandbox.asked[-1]
    assert path == "/run_code"
    (judged,) = body["files"].values()
    assert base64.b64decode(judged).decode() == "def f():\n    return 1\n\n\nassert f() == 1\n"
    assert body["stdin"] not in body["code"]
    sandbox.reply = {"status": "Success", "run_result": {"stdout": ""}}  # exit(0) before the tests
    assert code_tests(text, tests, url=sandbox.url, language="python", tests="code") == 0.0
    sandbox.reply = {"status": "Failed", "run_result": {"stdout": "x"}}
    assert code_tests(text, tests, url=sandbox.url, language="python", tests="code") == 0.0
    sandbox.reply = {"status": "SandboxError", "message": "no disk"}
    with pytest.raises(CannotScore, match="no disk"):
        code_tests(text, tests, url=sandbox.url, language="python", tests="code")
