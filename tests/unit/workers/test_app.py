"""The container protocol: status codes and bodies."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from strop import AbstractRewardProcessor, AbstractRolloutProcessor, RewardInput, RolloutInput
from strop.functions.ark import hosted_ark
from strop.workers import app as app_module
from strop.workers.app import create_app
from strop.workers.executor import Executor
from strop.workers.listening import listen

ExecutorOf = Callable[..., Executor]
GOOD = {"agent_output": {"messages": []}, "ground_truth": 3}


class Echo(AbstractRewardProcessor):
    async def process(self, input: RewardInput) -> Any:
        if input.ground_truth == "raise":
            raise ValueError("cannot score")
        return {"reward": {"reward_score": 1}, "truth": input.ground_truth, "extra": input.model_extra}


class Rollout(AbstractRolloutProcessor):
    async def process(self, input: RolloutInput) -> Any:
        return {}


@pytest.fixture
async def client(executor_of: ExecutorOf) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(executor_of(Echo()), "the-token"))
    headers = {"authorization": "Bearer the-token"}
    async with httpx.AsyncClient(transport=transport, base_url="http://worker", headers=headers) as client:
        yield client


async def test_health_says_what_is_hosted(client: httpx.AsyncClient) -> None:
    response = await client.get("/health")
    assert response.status_code == 200
    assert response.json() == {
        "status": "healthy",
        "func_type": "reward",
        "processor": "Echo",
        "parser": "RewardInput",
    }


@pytest.mark.parametrize("given", ["", "Bearer wrong", "the-token", "Basic the-token", "Bearer "])
async def test_without_the_token_nothing_is_answered(client: httpx.AsyncClient, given: str) -> None:
    for method, path in (("GET", "/health"), ("POST", "/api/v1")):
        response = await client.request(method, path, headers={"authorization": given}, json=GOOD)
        assert response.status_code == 401
        assert response.json() == {"detail": "Missing or wrong bearer token."}


async def test_a_call_gives_the_whole_output_and_keeps_unknown_fields(client: httpx.AsyncClient) -> None:
    response = await client.post("/api/v1", json={**GOOD, "additional_field": "any"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "reward": {"reward_score": 1.0, "reward_metrics": None},
        "status": "success",
        "error": None,
        "error_code": None,
        "truth": 3,
        "extra": {"additional_field": "any"},
    }


async def test_a_large_integer_stays_itself(client: httpx.AsyncClient) -> None:
    response = await client.post("/api/v1", json={**GOOD, "ground_truth": 2**80 + 1})
    assert response.json()["truth"] == 2**80 + 1


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"ground_truth": NaN, "agent_output": {}}', b"\xff", b"[" * 9999]
)
async def test_what_is_no_json_is_400(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post("/api/v1", content=body)
    assert response.status_code == 400
    assert response.json()["detail"].startswith("Invalid JSON body: ")


async def test_a_wrong_input_is_422_without_its_values(executor_of: ExecutorOf) -> None:
    transport = httpx.ASGITransport(create_app(executor_of(Rollout()), "t"))
    resource = {"model_name": 5, "base_url": "http://x", "api_key": "sk-very-secret"}
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
        response = await client.post(
            "/api/v1",
            json={"messages": "sk-very-secret", "model_resource": resource},
            headers={"authorization": "Bearer t"},
        )
    assert response.status_code == 422
    assert response.json()["detail"] == (
        "Request parsing error: messages: Input should be a valid list; "
        "model_resource.model_name: Input should be a valid string"
    )
    assert "sk-very-secret" not in response.text


async def test_another_func_type_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post("/api/v1", json={**GOOD, "func_type": "rollout"})
    assert response.status_code == 422
    assert "func_type is rollout, but function 'f' is a reward" in response.json()["detail"]


async def test_a_body_beyond_the_limit_is_413(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "MAX_BODY_BYTES", 1000)
    response = await client.post("/api/v1", json={**GOOD, "ground_truth": "x" * 1000})
    assert response.status_code == 413
    assert (await client.post("/api/v1", json=GOOD)).status_code == 200


async def test_an_exception_is_500_with_its_text(client: httpx.AsyncClient) -> None:
    response = await client.post("/api/v1", json={**GOOD, "ground_truth": "raise"})
    assert response.status_code == 500
    assert response.json()["message"].startswith("ValueError: cannot score")
    assert response.json()["error_code"] == "exception"


async def test_no_other_page_exists(client: httpx.AsyncClient) -> None:
    for path in ("/docs", "/openapi.json", "/redoc", "/"):
        assert (await client.get(path)).status_code == 404


async def test_a_full_queue_is_503(executor_of: ExecutorOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strop.workers.executor._QUEUE_LIMIT", 0)

    class Gated(AbstractRewardProcessor):
        def __init__(self) -> None:
            self.entered = asyncio.Event()
            self.gate = asyncio.Event()

        async def process(self, input: RewardInput) -> Any:
            self.entered.set()
            await self.gate.wait()
            return {"reward": {"reward_score": 1}}

    processor = Gated()
    transport = httpx.ASGITransport(create_app(executor_of(processor, concurrency=1), "t"))
    headers = {"authorization": "Bearer t"}
    async with httpx.AsyncClient(transport=transport, base_url="http://worker", headers=headers) as client:
        first = asyncio.create_task(client.post("/api/v1", json=GOOD))
        await processor.entered.wait()
        response = await client.post("/api/v1", json=GOOD)
        assert response.status_code == 503
        assert response.json() == {"detail": "Server is busy, please try again later."}
        processor.gate.set()
        assert (await first).status_code == 200


async def test_a_caller_that_goes_away_cancels_the_call(executor_of: ExecutorOf) -> None:
    class Waits(AbstractRewardProcessor):
        def __init__(self) -> None:
            self.entered = asyncio.Event()
            self.cancelled = asyncio.Event()

        async def process(self, input: RewardInput) -> Any:
            self.entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

    processor = Waits()
    arrived = iter([{"type": "http.request", "body": json.dumps(GOOD).encode(), "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        for message in arrived:
            return message
        await processor.entered.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(create_app(executor_of(processor), "t")(_post("/api/v1"), receive, send), 5)
    await asyncio.wait_for(processor.cancelled.wait(), 5)
    assert sent[0]["status"] == 499


def test_a_worker_listens_on_the_loopback_interface_only() -> None:
    with listen(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        assert port > 0
        with pytest.raises(OSError, match="Address already in use"):
            listen(port)


def ark_reward(context, sample, completions):
    return {"rewards": [float(len(completions))] * len(completions), "metrics": {"n": len(completions)}}


async def test_arks_own_request_is_answered_as_ark_answers_at_both_paths(executor_of: ExecutorOf) -> None:
    transport = httpx.ASGITransport(create_app(executor_of(hosted_ark(ark_reward)()), "the-token"))
    headers = {"authorization": "Bearer the-token"}
    body = {"context": {}, "sample": {"messages": []}, "completions": [{"messages": []}, {"messages": {}}]}
    answer = {"rewards": [2.0, 2.0], "metrics": {"n": 2}, "status": "success"}
    async with httpx.AsyncClient(transport=transport, base_url="http://worker", headers=headers) as client:
        for path, sent in (("/", body), ("/api/v1", {"data": body, "method": "POST", "path": "/"})):
            response = await client.post(path, json=sent)
            assert (response.status_code, response.json()) == (200, answer)
        ours = await client.post("/api/v1", json={"agent_outputs": [{"messages": []}]})
        assert ours.json()["reward"]["rewards"] == [{"reward_score": 1.0, "reward_metrics": {"n": 1.0}}]
        broken = await client.post("/", json={"completions": [], "sample": 1})
        assert (broken.status_code, broken.json()["detail"]) == (
            422, "Request parsing error: sample: expected an object with messages and extra",
        )  # fmt: skip


async def test_other_methods_are_405_and_say_which_are_answered(client: httpx.AsyncClient) -> None:
    for method, path, allowed in (("GET", "/api/v1", "POST"), ("POST", "/health", "GET, HEAD")):
        response = await client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert response.json() == {"detail": "Method Not Allowed"}


async def test_a_slash_at_the_end_is_the_same_page(client: httpx.AsyncClient) -> None:
    assert (await client.post("/api/v1/", json=GOOD)).json()["reward"]["reward_score"] == 1.0
    assert (await client.get("/health/")).json()["status"] == "healthy"


async def test_a_body_in_another_encoding_of_unicode_is_read(client: httpx.AsyncClient) -> None:
    body = json.dumps({**GOOD, "ground_truth": "二十五"}, ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        response = await client.post("/api/v1", content=body.encode(encoding))
        assert response.json()["truth"] == "二十五"


async def test_a_caller_that_goes_before_its_body_has_ended_calls_nothing(executor_of: ExecutorOf) -> None:
    class Counts(AbstractRewardProcessor):
        num_calls = 0

        async def process(self, input: RewardInput) -> Any:
            self.num_calls += 1
            return {"reward": {"reward_score": 1}}

    processor, sent = Counts(), []
    messages = [
        {"type": "http.request", "body": json.dumps(GOOD).encode(), "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await create_app(executor_of(processor), "t")(_post("/api/v1"), receive, send)
    assert (sent[0]["status"], processor.num_calls) == (400, 0)


async def test_ending_the_server_ends_its_calls_and_is_not_taken_for_a_caller_that_went(
    executor_of: ExecutorOf,
) -> None:
    class Waits(AbstractRewardProcessor):
        def __init__(self) -> None:
            self.entered = asyncio.Event()

        async def process(self, input: RewardInput) -> Any:
            self.entered.set()
            await asyncio.Event().wait()

    processor, sent = Waits(), []
    arrived = iter([{"type": "http.request", "body": json.dumps(GOOD).encode(), "more_body": False}])

    async def receive() -> Any:
        for message in arrived:
            return message
        return await asyncio.get_running_loop().create_future()  # it stays connected, and says no more

    async def send(message: Any) -> None:
        sent.append(message)

    call = asyncio.ensure_future(create_app(executor_of(processor), "t")(_post("/api/v1"), receive, send))
    await asyncio.wait_for(processor.entered.wait(), 5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 5)
    assert sent == []


def _post(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"authorization", b"Bearer t")],
        "query_string": b"",
    }
