"""`Client` and `AsyncClient` on a real server, and on one that stumbles."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fakes.server import FUNCTIONS, ROWS, json_lines
from strop import AgenticRLFunctionComponent, AsyncClient, Client, FunctionComponentModel, StropError
from strop.client import client as groups
from strop.client.drive import awaited, blocking
from strop.errors import (
    ConfigError,
    ConflictError,
    FunctionError,
    MissingError,
    ThrottledError,
    UnavailableError,
)
from strop.schema import responses as shown

GROUPS = ("evaluations", "files", "functions", "jobs", "models", "deployments")


def steps_of(client: type) -> dict[str, Any]:
    """Methods by group and name -> the steps that they are made of."""
    prefix = "Async" if client is AsyncClient else ""
    return {
        f"{group}.{name}": getattr(method, "steps", method.__doc__)
        for group in GROUPS
        for name, method in vars(getattr(groups, prefix + group.capitalize())).items()
        if isinstance(method, blocking | awaited) or (inspect.isfunction(method) and not name.startswith("_"))
    }


def test_both_clients_have_the_same_methods() -> None:
    assert steps_of(Client) == steps_of(AsyncClient)
    assert len(steps_of(Client)) == 52
    assert all(getattr(steps, "__doc__", steps) for steps in steps_of(Client).values())


def test_a_method_tells_its_signature_and_what_it_does(client) -> None:
    assert str(inspect.signature(client.jobs.wait)).startswith("(job_id: 'str', *, timeout_s:")
    assert client.jobs.wait.__doc__.startswith("Wait until a job has ended")


def test_files_are_sent_listed_and_forgotten(client, tmp_path: Path) -> None:
    path = tmp_path / "数据.jsonl"
    path.write_bytes(json_lines(ROWS))
    made = client.files.upload(path)
    assert (made.name, made.size, made.purpose) == ("数据.jsonl", path.stat().st_size, "fine-tune")
    page = client.files.list(page_size=1)
    assert (len(page), page.total, page.items[0]) == (1, 1, made)
    client.files.delete(made.file_id)
    with pytest.raises(MissingError, match=made.file_id):
        client.files.get(made.file_id)
    (tmp_path / "empty.jsonl").touch()
    for wrong in (tmp_path / "empty.jsonl", tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(ConfigError, match=str(wrong)):
            client.files.upload(wrong)


async def test_the_awaited_client_does_the_same(server, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "rows.jsonl").write_bytes(json_lines(ROWS))
    score = AgenticRLFunctionComponent(
        type="reward", fcmodel=FunctionComponentModel(classpath="functions.Score")
    )
    async with AsyncClient(server.url, server.key) as client:
        file = await client.files.upload(tmp_path / "rows.jsonl")
        function = await client.functions.register(score, workspace=code)
        assert (score.entity_id, function.classpath) == (function.entity_id, "functions.py:Score")
        job = await client.jobs.submit(
            {
                "model": "smollm2-135m",
                "job_name": "quick",
                "training_file_ids": [file.file_id],
                "rewards": [{"reward_id": function.entity_id}],
                "hyper_parameters": {"batch_size": 4},
            }
        )
        told = [item async for item in client.jobs.stream(job.job_id)]
        assert (await client.jobs.wait(job.job_id)).status.value == "SUCCEEDED"
    assert [one.status.value for one in told if isinstance(one, shown.JobInfo)][-1] == "SUCCEEDED"


def test_equal_code_is_registered_once_and_a_class_that_is_not_there_is_told(client, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "functions.py").write_text(FUNCTIONS)

    def register(name: str, kind: str = "reward") -> str:
        component = AgenticRLFunctionComponent(
            type=kind, fcmodel=FunctionComponentModel(classpath=f"functions.py:{name}")
        )
        return client.functions.register(component, workspace=code).entity_id

    first = register("Score")
    assert register("Score") == first
    (code / "functions.py").touch()
    assert register("Score") == first
    assert register("Rank", "group_reward") != first
    with pytest.raises(StropError, match="did you mean 'Score'"):
        register("Scor")
    (code / "functions.py").write_text(FUNCTIONS + "\n# another\n")
    assert register("Score") != first
    client.functions.delete(first)
    assert first not in [one.entity_id for one in client.functions.list()]


def test_an_environment_that_cannot_be_built_is_told_with_the_end_of_its_log(client) -> None:
    with pytest.raises(FunctionError, match="no-such-folder"):
        client.functions.make_layer("/no-such-folder/package.whl\n")


def test_models_and_deployments_are_told_in_types(client) -> None:
    assert [model.model_name for model in client.models.list()] == ["smollm2-135m"]
    assert client.models.get("smollm2-135m").model_source == "base"
    assert client.deployments.list().total == 0
    for call in (client.models.get, client.models.delete, client.deployments.get, client.deployments.delete):
        with pytest.raises(MissingError, match="nowhere"):
            call("nowhere")
    with pytest.raises(StropError, match="nowhere"):
        client.deployments.create("nowhere")


def test_what_cannot_be_done_now_is_a_conflict(server, client) -> None:
    job_id = server.submit(job_name="quick")
    client.jobs.wait(job_id)
    with pytest.raises(ConflictError, match="SUCCEEDED"):
        client.jobs.cancel(job_id)
    with pytest.raises(MissingError, match="no checkpoint '9'"):
        client.jobs.publish(job_id, "mine", checkpoint=9)


def test_the_types_have_every_field_that_the_server_sends(server, client) -> None:
    """A field that only one side knows would be lost without a word."""
    job_id = server.submit(job_name="quick", resource_config={"gpus": 8})
    server.becomes(job_id, "SUCCEEDED")
    entity = server.get("/functions")["functions"][0]["entity_id"]
    started = server.post(f"/fine-tunes/online/faas/jobId-1/{entity}", {"cpu": 2})
    data = server.http.get("/files").json()["data"]["files"][0]
    pairs = [
        (shown.JobInfo, server.job(job_id), set()),
        (shown.FileInfo, data, set()),
        (shown.FunctionInfo, server.get(f"/functions/{entity}"), set()),
        (shown.InstanceInfo, started, {"instanceId"}),
        (shown.EventInfo, server.get(f"/fine-tunes/{job_id}/events")["events"][0], set()),
        (shown.CheckpointInfo, server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"][0], set()),
        (shown.ModelInfo, server.get("/models")["models"][0], set()),
    ]
    for model, value, twice in pairs:
        assert set(value) - twice <= set(model.model_fields), model
        assert model.model_validate(value)


class Stumbling:
    """A server that replies what it is told to, one reply after another; the last one for ever."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, str, str | None]] = []
        stumbling = self

        class Reply(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                stumbling.asked.append((self.command, self.path, self.headers.get("authorization")))
                status, headers, body = (
                    stumbling.replies.pop(0) if len(stumbling.replies) > 1 else stumbling.replies[0]
                )
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Reply)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def says(self, *replies: tuple[int, object] | tuple[int, object, dict[str, str]]) -> None:
        self.asked.clear()
        self.replies = [
            (
                one[0],
                one[2] if len(one) > 2 else {},
                one[1] if isinstance(one[1], bytes) else json.dumps(one[1]).encode(),
            )
            for one in replies
        ]

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def stumbling() -> Iterator[Stumbling]:
    made = Stumbling()
    yield made
    made.close()


EMPTY = (200, {"output": {"page_no": 1, "page_size": 10, "total": 0, "jobs": []}})


def test_what_may_be_asked_twice_is_asked_again_after_a_failure(stumbling) -> None:
    with Client(stumbling.url, "k") as client:
        for stumble in (500, 502, 503, 504, 429):
            stumbling.says((stumble, {}), (stumble, b"<html>", {"retry-after": "0"}), EMPTY)
            assert client.jobs.list().total == 0
            assert len(stumbling.asked) == 3
        stumbling.says(
            (503, {"code": "ServiceUnavailable", "message": "busy\n  fix: later", "request_id": "r-1"})
        )
        with pytest.raises(UnavailableError) as caught:
            client.jobs.list()
    assert len(stumbling.asked) == 4
    assert (caught.value.message, caught.value.fix, caught.value.request_id) == ("busy", "later", "r-1")


def test_a_job_is_never_submitted_twice(stumbling) -> None:
    with Client(stumbling.url, "k") as client:
        stumbling.says((502, {}))
        with pytest.raises(UnavailableError):
            client.jobs.submit({"model": "m"})
        assert len(stumbling.asked) == 1
        stumbling.says((429, {"message": "slow down"}, {"retry-after": "0"}))
        with pytest.raises(ThrottledError, match="slow down"):
            client.jobs.submit({"model": "m"})
        assert len(stumbling.asked) == 4  # what was throttled has not been worked on


def test_a_refusal_that_will_not_change_is_not_asked_again(stumbling) -> None:
    with Client(stumbling.url, "k") as client:
        stumbling.says((500, {"message": "no"}, {"x-should-retry": "false"}))
        with pytest.raises(UnavailableError, match="no"):
            client.jobs.list()
    assert len(stumbling.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        (200, b"hello"),
        (200, []),
        (200, {"data": {}}),
        (200, {"output": None}),
        (200, {"output": {"jobs": [{}]}}),
    ],
)
def test_what_is_no_reply_of_a_strop_server_is_told_as_that(stumbling, reply) -> None:
    stumbling.says(reply)
    with Client(stumbling.url, "k") as client, pytest.raises(UnavailableError, match=r"reply (is|has) no"):
        client.jobs.list()


def test_the_api_key_goes_to_the_server_alone(stumbling, tmp_path: Path) -> None:
    """Uploads and function calls have addresses of their own, on whatever machine the server says."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "f.py").write_text("class F: pass\n")
    other = Stumbling()
    try:
        other.says((200, {}))
        stumbling.says(
            (200, {"output": {"functions": [], "instances": []}}),
            (200, {"output": {"url": f"{other.url}/put?signature=s"}}),
            (200, {"output": {"reward_id": "rw-1"}}),
            (404, {"message": "gone"}),
        )
        component = AgenticRLFunctionComponent(type="reward", fcmodel=FunctionComponentModel(classpath="f.F"))
        with Client(stumbling.url, "secret") as client, pytest.raises(MissingError):
            client.functions.register(component, workspace=code)
        assert other.asked == [("PUT", "/put?signature=s", None)]
        assert {key for _, _, key in stumbling.asked} == {"Bearer secret"}
    finally:
        other.close()


def test_a_stream_that_breaks_is_taken_up_again_and_nothing_is_told_twice(stumbling) -> None:
    def frame(**value: object) -> bytes:
        return b"id:1\nevent:result\n:HTTP_STATUS/200\ndata:" + json.dumps(value).encode() + b"\n\n"

    job = {"job_id": "ft-1", "job_name": "n", "model": "m", "create_time": "2026-01-01 00:00:00"}
    event = frame(type="event", kind="note", message="one", time="2026-01-01 00:00:00")
    running = frame(type="status", status="RUNNING", **job)
    rest = frame(type="metrics", step=1, metrics={"a": 1.0, "b": "x"}) + frame(type="new", x=1)
    done = frame(type="status", status="SUCCEEDED", **job)
    kind = {"content-type": "text/event-stream"}
    stumbling.says((200, event + running, kind), (200, event + running + rest + done, kind))
    with Client(stumbling.url, "k") as client:
        told = list(client.jobs.stream("ft-1"))
    assert [type(item).__name__ for item in told] == ["EventInfo", "JobInfo", "StepMetrics", "JobInfo"]
    assert told[2].metrics == {"a": 1.0}
    stumbling.says((404, {"message": "no job", "request_id": "r"}))
    with Client(stumbling.url, "k") as client, pytest.raises(MissingError, match="no job"):
        list(client.jobs.stream("ft-1"))


def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    with (
        Client("http://127.0.0.1:9", "k") as client,
        pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:9 "),
    ):
        client.jobs.list()
    for wrong in ("127.0.0.1:8080", "ftp://x", "http://", "http://x:99999"):
        with pytest.raises(ConfigError, match="is no address"):
            Client(wrong, "k")
