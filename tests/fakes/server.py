"""A real control plane on a port of its own, with a trainer that needs no model, and clients at hand."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from strop.cli.checking import PipelineFlow
from strop.console import mount_console
from strop.doors.app import create_app
from strop.doors.connections import served_by
from strop.doors.openai.proxy import chat_completions
from strop.processes.mark import is_gone
from strop.schema.job import LogLine
from strop.service.first_key import ensure_first_key
from strop.service.fleet import Patience, Runs
from strop.service.replica import Replica, ReplicaSpec
from strop.service.services import Services
from strop.service.settings import Settings
from strop.store.database import Database
from strop.store.jobs import process_of
from strop.store.logs import record_lines
from strop.store.submissions import unfinished
from strop.workers.listening import listen

FAKE_TRAINER = (sys.executable, str(Path(__file__).with_name("trainer.py")))

FUNCTIONS = """
from strop import (
    AbstractGroupRewardProcessor, AbstractRewardProcessor, AbstractRolloutProcessor, AgentOutput, GroupReward,
    GroupRewardOutput, Reward, RewardOutput, RolloutOutput,
)


class Agent(AbstractRolloutProcessor):
    async def process(self, input):
        print("rollout of", input.messages[-1]["content"])
        answer = {"role": "assistant", "content": "4"}
        return RolloutOutput(agent_output=AgentOutput(messages=[*input.messages, answer]))


class Score(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "raise":
            raise RuntimeError("no score for this one")
        said = input.agent_output.messages[-1]["content"]
        score = float(said == input.ground_truth)
        return RewardOutput(reward=Reward(reward_score=score, reward_metrics={"hit": 1.0}))


class Rank(AbstractGroupRewardProcessor):
    def process(self, input):
        rewards = [Reward(reward_score=float(i)) for i, _ in enumerate(input.agent_outputs)]
        return GroupRewardOutput(reward=GroupReward(rewards=rewards))
"""

ROLLOUT_INPUT = {
    "func_type": "rollout",
    "messages": [{"role": "user", "content": "hi"}],
    "model_resource": {"model_name": "m", "base_url": "http://x", "api_key": "very-secret-key"},
}

ROWS = [
    {"messages": [{"role": "user", "content": f"{n} + {n}?"}], "rollout_extra": {"ground_truth": str(2 * n)}}
    for n in range(16)
]


def zipped(files: dict[str, str | bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 3, 1, 12, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return memory.getvalue()


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def eventually(holds: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """Wait for a condition; its value once it is true. Asks ever more seldom: what is waited for needs the
    processors that asking takes."""
    give_up, pause_s = time.monotonic() + within_s, 0.01
    while not (value := holds()):
        assert time.monotonic() < give_up, "it never came to hold"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.1, 0.3)
    return value


class Server:
    """A running server and what a client of it needs."""

    def __init__(self, url: str, key: str, home: Path, services: Services) -> None:
        self.url = url
        self.key = key
        self.home = home
        self.services = services
        self.database = services.database
        self.http = self.client(key)
        self.sign_in_link: str | None = None

    @property
    def api(self) -> str:
        return f"{self.url}/api/v1"

    def client(self, key: str | None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        return httpx.Client(base_url=self.api, headers=headers, timeout=60)

    def upload_bundle(self, content: bytes, *, unique_key: str | None = None) -> str:
        """Calls 1 and 2. Returns the key."""
        key = unique_key or f"reward-{uuid.uuid4()}"
        url = self.post("/fine-tunes/generate/faas/upload/url", {"unique_key": key})["url"]
        done = httpx.put(url, content=content)
        assert done.status_code == 200, done.text
        return key

    def register(self, kind: str, func: str, *, source: str = FUNCTIONS) -> str:
        """Upload the functions of this file and register one. Returns its id."""
        key = self.upload_bundle(zipped({"functions.py": source, "requirements.txt": ""}))
        body = {"name": "functions.py", "unique_key": key, "func": func, "code_url": "http://elsewhere/x.zip"}
        made = self.post(f"/fine-tunes/create/{kind}", body)
        return made[{"rollout": "rollout_id", "reward": "reward_id", "group-reward": "group_reward_id"}[kind]]

    def upload_rows(self, rows: list[dict[str, Any]] | bytes = ROWS, *, name: str = "train.jsonl") -> str:
        content = rows if isinstance(rows, bytes) else json_lines(rows)
        reply = self.http.post("/files", files={"files": (name, content)}, data={"purpose": "fine-tune"})
        assert reply.status_code == 200, reply.text
        return reply.json()["data"]["uploaded_files"][0]["file_id"]

    def job_body(self, **changes: Any) -> dict[str, Any]:
        """A job that is in order."""
        body: dict[str, Any] = {
            "model": "smollm2-135m",
            "training_datasets": [
                {"type": "training", "data_source_type": "file_id", "file_id": self.upload_rows()}
            ],
            "rollout": {"rollout_id": self.register("rollout", "Agent"), "name": "agent"},
            "rewards": [{"reward_id": self.register("reward", "Score"), "name": "score", "weight": 1.0}],
            "hyper_parameters": {"batch_size": 4, "n_rollouts": "2", "learning_rate": "1e-6"},
            "training_type": "reinforcement",
            "job_name": "tiny",
        }
        return body | changes

    def submit(self, **changes: Any) -> str:
        return self.post("/fine-tunes", self.job_body(**changes))["job_id"]

    def job(self, job_id: str) -> dict[str, Any]:
        return self.get(f"/fine-tunes/{job_id}")

    def becomes(self, job_id: str, *statuses: str, within_s: float = 60.0) -> dict[str, Any]:
        """Wait until the job has one of these."""

        def there() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] in statuses else None

        return eventually(there, within_s=within_s)

    def deployed(self, name: str) -> None:
        """Wait until a deployment answers: as long as a replica may load a model, which on a busy machine
        takes minutes, and not once one could not."""

        def there() -> dict[str, Any] | None:
            found = self.get(f"/deployments/{name}")
            assert "error_message" not in found, found
            return found if found["status"] not in ("PENDING", "DEPLOYING") else None

        found = eventually(there, within_s=Patience().start_s)
        assert found["status"] == "RUNNING", found

    def print_lines(self, job_id: str, count: int) -> None:
        """As if the job's trainer had printed `line 001` and so on."""
        now = datetime.now(UTC)
        with self.database.write() as session:
            one = LogLine(job_id=job_id, component="trainer", stream="stdout", text="", created_at=now)
            texts = (f"line {n:03}" for n in range(1, count + 1))
            record_lines(session, [one.model_copy(update={"text": text}) for text in texts])

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        return _output(self.http.get(path, params=params))

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return _output(self.http.post(path, json=body) if body is not None else self.http.post(path))


def _output(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    value = reply.json()["output"]
    assert isinstance(value, dict)
    return value


@contextmanager
def serving(
    home: Path,
    *,
    trainer: tuple[str, ...] = FAKE_TRAINER,
    port: int = 0,
    end_trainers: bool = True,
    make_replica: Callable[[ReplicaSpec], Runs] = Replica,
    **settings: Any,
) -> Generator[Server]:
    """Serve in a thread until the block ends; its home is the process's in the meantime, as in `strop up`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STROP_HOME", str(home))
        yield from _serving(home, trainer, port, end_trainers, make_replica, settings)


def _serving(
    home: Path,
    trainer: tuple[str, ...],
    port: int,
    end_trainers: bool,
    make_replica: Callable[[ReplicaSpec], Runs],
    settings: dict[str, Any],
) -> Generator[Server]:
    chosen = Settings(home=home, **settings)
    app = create_app(chosen, PipelineFlow(), trainer_command=trainer, make_replica=make_replica)
    pages = mount_console(app, app.state.services, ask=chat_completions)
    database = app.state.services.database
    key = ensure_first_key(database, home)
    listener = listen(port)
    server = uvicorn.Server(served_by(app, grace_s=1))
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    made = Server(url, key.path.read_text().strip(), home, app.state.services)
    made.sign_in_link = pages.sign_in_link(url, key.key_id) if key.key_id else None
    try:
        eventually(lambda: server.started)
        yield made
    finally:
        made.http.close()
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()
        if end_trainers:
            _kill_trainers(database)
            database.close()


def _kill_trainers(database: Database) -> None:
    """Trainers outlive their server; those of a test must not outlive the test."""
    with database.read() as session:
        marks = [process_of(job) for job, _ in unfinished(session)]
    for mark in marks:
        if mark is not None and not is_gone(mark):
            os.killpg(mark.pid, signal.SIGKILL)
