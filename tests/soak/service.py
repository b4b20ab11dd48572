"""Servers, trainers, workers and replicas killed at random moments -> nothing lost, counted twice or left.

`python -m soak.service 100`. A real server, tiny random models, jobs that follow one another; a witness
uploads files all the time and remembers what the server said it had taken.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from fakes.jobs import FUNCTIONS
from fakes.model import save_tiny_model
from fakes.run_record import Record, checkpoint_bits, record
from fakes.running import Running, processes_with
from fakes.server import eventually, json_lines, zipped
from strop.store.database import open_database
from strop.store.models import register_model
from strop.store.trajectories import list_trajectories

KINDS = ("server", "trainer", "worker", "replica")
COMMANDS = {
    "server": "strop.cli up",
    "trainer": "strop.cli train",
    "worker": "strop.workers.worker",
    "replica": "strop.cli serve",
}
NUM_STEPS, NUM_ROLLOUTS = 6, 16
"""Of each job: 12 rows in batches of 4 for two epochs, 4 rollouts a row."""

HYPER = {
    "algorithm": "grpo", "learning_rate": 0.01, "batch_size": 4, "n_rollouts": 4, "n_epochs": 2,
    "max_length": 160, "max_prompt_length": 48, "max_tokens": 12, "save_strategy": "steps", "save_steps": 1,
    "save_total_limit": 9, "max_attempts": 9, "eval_steps": 99,
}  # fmt: skip
END_S = 600.0
"""How long the last jobs may take once nobody kills any more."""


@dataclass(slots=True, kw_only=True)
class Survived:
    """`kills` by kind; `ends` of jobs by status; `compared`: jobs bit for bit those of a job left alone."""

    kills: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[str] = field(default_factory=Counter[str])
    compared: int = 0
    files: int = 0
    retried: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])
    down_s: list[float] = field(default_factory=list[float])


class House:
    """`strop up` that is started again on its port whenever it was killed, and its clients."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.mark = root, root / "home", f"SOAK={root}"
        self.port = 0
        self.running = self._up()
        self.key = (self.home / "api_key").read_text().strip()

    def _up(self) -> Running:
        self.home.mkdir(exist_ok=True)
        running = Running("up", "--port", self.port, home=self.home, SOAK=str(self.root), OMP_NUM_THREADS="1")
        line = running.says("Strop is up: open ", 120)
        self.port = int(line.split("http://127.0.0.1:")[1].split()[0])
        eventually(self.answers, within_s=120)
        return running

    def answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=10).status_code == 200
        return False

    def again(self) -> None:
        """Start it after its death."""
        self.running.end()
        self.running = self._up()

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Until the server answers: it may be dying or starting. Only for calls that may be asked twice."""
        give_up = time.monotonic() + 120
        while True:
            try:
                return self.once(method, path, **more)
            except httpx.HTTPError:
                assert time.monotonic() < give_up, f"no answer to {method} {path}"
                time.sleep(0.1)

    def once(self, method: str, path: str, **more: Any) -> httpx.Response:
        prefix = "" if path.startswith(("/v1", "/functions/ro", "/functions/rw")) else "/api/v1"
        headers = {"authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        url = f"http://127.0.0.1:{self.port}{prefix}{path}"
        return httpx.request(method, url, headers=headers, timeout=60, **more)

    def output(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        reply = self.call(method, path, **more)
        assert reply.status_code == 200, reply.text
        return reply.json()["output"]

    def pids(self, kind: str) -> list[int]:
        found = processes_with(self.mark)
        return sorted(pid for pid, command in found.items() if COMMANDS[kind] in command)


class Witness:
    """Uploads files, asks the replica and the function, one call after another, until it is told to stop."""

    def __init__(self, house: House, survived: Survived, instance: dict[str, Any], model: str) -> None:
        self._house, self._survived = house, survived
        self._instance, self._model = instance, model
        self.taken: dict[str, str] = {}
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(0.2):
            number += 1
            try:
                self._upload(b'{"n": %d}\n' % number)
                self._ask("replica", "/v1/chat/completions", {
                    "model": self._model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3,
                })  # fmt: skip
                token = {"authorization": f"Bearer {self._instance['trigger_token']}"}
                path = f"/functions/{self._instance['instance_id']}/api/v1"
                self._ask("function", path, SCORED, headers=token)
            except httpx.HTTPError as error:
                self._survived.answers[f"no answer: {type(error).__name__}"] += 1

    def _upload(self, content: bytes) -> None:
        reply = self._house.once("POST", "/files", files={"files": ("w.jsonl", content)})
        if reply.status_code == 200:
            (made,) = reply.json()["data"]["uploaded_files"]
            self.taken[made["file_id"]] = sha256(content).hexdigest()
        else:
            self.wrong.append(f"upload: {reply.status_code} {reply.text}")

    def _ask(self, what: str, path: str, body: dict[str, Any], **more: Any) -> None:
        reply = self._house.once("POST", path, json=body, **more)
        self._survived.answers[f"{what} {reply.status_code}"] += 1
        if reply.status_code not in (200, 502, 503) and "worker" not in reply.text:
            self.wrong.append(f"{what}: {reply.status_code} {reply.text}")


SCORED = {"agent_output": {"messages": [{"role": "assistant", "content": "aaa"}]}}


def kill_the_service(
    kills: int, *, seed: int = 0, kinds: Sequence[str] = KINDS, pause_s: float = 5.0, baseline: bool = True
) -> Survived:
    """Raises AssertionError where anything is lost, counted twice, untrue or left behind."""
    root = Path(tempfile.mkdtemp(prefix="strop-soak-"))
    house = House(root)
    try:
        return _kill(house, kills, random.Random(seed), kinds, pause_s, baseline)
    finally:
        house.running.kill()
        for pid in processes_with(house.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(root, ignore_errors=True)


def _kill(
    house: House, kills: int, chance: random.Random, kinds: Sequence[str], pause_s: float, baseline: bool
) -> Survived:
    survived = Survived()
    body, instance, model = _prepare(house)
    alone = None
    if baseline:
        alone = _submit(house, body)
        _until_ended(house, [alone])
    jobs = [_submit(house, body)]
    witness = Witness(house, survived, instance, model)
    try:
        while survived.kills.total() < kills:
            time.sleep(chance.uniform(0.0, pause_s))
            kind = kinds[survived.kills.total() % len(kinds)] if len(kinds) == kills else chance.choice(kinds)
            if _job(house, jobs[-1])["status"] in ("SUCCEEDED", "FAILED"):
                jobs.append(_submit(house, body))
            pids = house.pids(kind)
            if not pids:
                continue
            began = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
                survived.kills[kind] += 1
            if kind == "server":
                house.again()
                survived.down_s.append(time.monotonic() - began)
        _until_ended(house, jobs)
    finally:
        witness.stop()
    assert witness.wrong == [], witness.wrong[:5]
    _check_jobs(house, jobs, alone, survived)
    _check_files(house, witness, survived)
    _check_nothing_left(house)
    return survived


def _prepare(house: House) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Model, functions, rows, an instance and a deployment. Returns a job's body, the instance, its name."""
    save_tiny_model(house.root / "model")
    opened = open_database(f"sqlite:///{house.home}/strop.db")
    with opened.write() as session:
        register_model(session, "tiny", str(house.root / "model"))
    opened.close()
    url = house.output("POST", "/fine-tunes/generate/faas/upload/url", json={"unique_key": "soak-1"})["url"]
    assert httpx.put(url, content=zipped({"functions.py": FUNCTIONS})).status_code == 200
    made = {
        kind: house.output(
            "POST", f"/fine-tunes/create/{kind}",
            json={"name": "functions.py", "unique_key": "soak-1", "func": func},
        )
        for kind, func in (("rollout", "TwoAtOnce"), ("reward", "ManyA"))
    }  # fmt: skip
    rows = json_lines([{"messages": [{"role": "user", "content": f"hello {n}"}]} for n in range(12)])
    uploaded = house.call("POST", "/files", files={"files": ("train.jsonl", rows)}).json()["data"]
    reward_id = made["reward"]["reward_id"]
    instance = house.output("POST", f"/fine-tunes/online/faas/jobId-1/{reward_id}", json={})
    deployed = house.output("POST", "/deployments", json={"model_name": "tiny", "suffix": "a"})
    body = {
        "model": "tiny",
        "training_datasets": [{"file_id": uploaded["uploaded_files"][0]["file_id"]}],
        "rollout": {**made["rollout"], "name": "agent", "timeout": 60},
        "rewards": [{"reward_id": reward_id, "name": "many_a"}],
        "hyper_parameters": HYPER,
    }
    return body, instance, deployed["deployed_model"]


def _submit(house: House, body: dict[str, Any]) -> str:
    return house.output("POST", "/fine-tunes", json=body)["job_id"]


def _job(house: House, job_id: str) -> dict[str, Any]:
    return house.output("GET", f"/fine-tunes/{job_id}")


def _until_ended(house: House, jobs: Sequence[str]) -> None:
    def ended() -> bool:
        return all(_job(house, one)["status"] in ("SUCCEEDED", "FAILED", "CANCELED") for one in jobs)

    eventually(ended, within_s=END_S)


def _check_jobs(house: House, jobs: list[str], alone: str | None, survived: Survived) -> None:
    database = house.home / "strop.db"
    straight = record(database, alone) if alone is not None else None
    for job_id in jobs:
        shown = _job(house, job_id)
        survived.ends[shown["status"]] += 1
        if shown["status"] == "FAILED":  # only for the one reason that is true here
            assert "so the job is given up" in shown["message"], shown
            continue
        assert shown["status"] == "SUCCEEDED", shown
        retried = _check_counts(database, job_id)
        survived.retried += retried
        published = house.output("GET", f"/models/{shown['finetuned_output']}")
        assert (published["lineage"]["job_id"], published["lineage"]["step"]) == (job_id, NUM_STEPS)
        if straight is not None and alone is not None and not retried:
            _same(house, straight, alone, job_id)
            survived.compared += 1


def _check_counts(database: Path, job_id: str) -> int:
    """Every step has its rollouts, once each. Returns how many took another attempt."""
    opened = open_database(f"sqlite:///{database}")
    with opened.read() as session:
        items = list_trajectories(session, job_id, limit=100_000).items
    opened.close()
    trained = [one for one in items if one.split == "train"]
    assert Counter(one.step for one in trained) == dict.fromkeys(range(1, NUM_STEPS + 1), NUM_ROLLOUTS)
    assert len({(one.step, one.trajectory.rollout_id) for one in trained}) == len(trained)
    return sum(one.trajectory.attempts > 1 for one in items)


def _same(house: House, straight: Record, alone: str, job_id: str) -> None:
    again = record(house.home / "strop.db", job_id)
    assert again.metrics == straight.metrics
    assert again.turns == straight.turns
    last = f"step-{NUM_STEPS:06d}"
    left, right = (
        checkpoint_bits(house.home / "jobs" / one / "checkpoints" / last) for one in (alone, job_id)
    )
    assert sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key)) == []


def _check_files(house: House, witness: Witness, survived: Survived) -> None:
    for file_id, digest in witness.taken.items():
        told = house.call("GET", f"/files/{file_id}")
        assert told.status_code == 200, f"lost: {file_id}"
        assert told.json()["data"]["sha256"] == digest
        blob = house.home / "blobs" / "files" / digest[:2] / digest
        assert sha256(blob.read_bytes()).hexdigest() == digest, f"not the bytes that were sent: {file_id}"
    survived.files = len(witness.taken)


def _check_nothing_left(house: House) -> None:
    house.running.process.send_signal(signal.SIGTERM)
    house.running.end(60)
    eventually(lambda: processes_with(house.mark) == {}, within_s=60)
    assert not (house.home / "server.json").exists()
    assert list((house.home / "arriving").glob("*")) == []


def told(survived: Survived) -> str:
    """The figures as a sentence for the log."""
    kills = ", ".join(f"{count} {kind}s" for kind, count in sorted(survived.kills.items()))
    ends = ", ".join(f"{count} {status}" for status, count in sorted(survived.ends.items()))
    answers = ", ".join(f"{count} {what}" for what, count in sorted(survived.answers.items()))
    down = sorted(survived.down_s) or [0.0]
    return (
        f"{survived.kills.total()} kills through the real server ({kills}): jobs ended {ends}; "
        f"{survived.compared} of them without a retried rollout and bit for bit the job left alone; "
        f"{survived.retried} rollouts took another attempt, none was lost or counted twice; all "
        f"{survived.files} files that the server had said it took were there, byte for byte; calls "
        f"meanwhile: {answers}; a killed server answered again after {down[len(down) // 2]:.1f} s (median, "
        f"at most {down[-1]:.1f})"
    )


if __name__ == "__main__":
    print(told(kill_the_service(int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
