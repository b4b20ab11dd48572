"""The commands that talk to a server: what they print, what they end with."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from fakes.server import Server
from strop.cli.commands import app
from strop.cli.next_steps import RunCommand
from strop.cli.server_run import RunPlace, place_of_run, resume_there
from strop.config.job import JobConfig
from strop.config.loading import load_job
from strop.errors import ConfigError, MissingError, StropError
from strop.schema.watching import TrackerConfig, TrackerType
from strop.service.server_file import written_down
from strop.store.home import home

Strop = Callable[..., Result]


@pytest.fixture
def strop(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Strop]:
    """The command line in this process, for a user who set the two variables."""
    monkeypatch.setenv("STROP_URL", server.url)
    monkeypatch.setenv("STROP_API_KEY", server.key)
    monkeypatch.setenv("STROP_LANG", "en")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object, ends: int = 0, stdin: str | None = None) -> Result:
        done = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
        if isinstance(done.exception, StropError):
            raise done.exception
        assert done.exit_code == ends, done.output
        return done

    return call


def test_a_job_is_submitted_followed_and_looked_at(strop: Strop, server: Server, project: Path) -> None:
    told = json.loads(strop("jobs", "submit", project / "job.yaml", "--set", "seed=7", "--json").stdout)
    job_id = told["job_id"]
    assert told["hyper_parameters"]["seed"] == 7
    waited = strop("jobs", "wait", job_id).stdout
    assert f"{job_id}   SUCCEEDED" in waited
    assert "reward 0.50" in waited
    assert "strop deployments create tuned" in waited
    assert job_id in strop("jobs", "list").stdout
    assert json.loads(strop("jobs", "list", "--status", "FAILED", "--json").stdout) == []
    assert "SUCCEEDED" in strop("jobs", "get", job_id).stdout
    assert "0.5" in strop("jobs", "metrics", job_id).stdout
    assert "0.5" in strop("jobs", "metrics", job_id, "critic/rewards/mean").stdout
    assert "nothing was recorded as x/y" in strop("jobs", "metrics", job_id, "x/y", ends=1).output
    assert json.loads(strop("jobs", "metrics", job_id, "--json").stdout)["critic/rewards/mean"] == [[1, 0.5]]
    assert f"{job_id}-step-1" in strop("jobs", "checkpoints", job_id).stdout
    assert json.loads(strop("jobs", "trajectories", job_id, "--json").stdout) == []
    assert "n_gpus_rollout" in strop("jobs", "events", job_id).stdout
    assert strop("jobs", "logs", job_id).stdout == ""
    strop("jobs", "delete", job_id)
    with pytest.raises(MissingError):
        strop("jobs", "get", job_id)


def test_a_job_pauses_goes_on_and_is_canceled(strop: Strop, server: Server) -> None:
    job_id = server.submit(job_name="waits")
    server.becomes(job_id, "RUNNING")
    strop("jobs", "pause", job_id)
    server.becomes(job_id, "SUSPENDED")
    strop("jobs", "resume", job_id)
    server.becomes(job_id, "RUNNING")
    assert json.loads(strop("jobs", "cancel", job_id, "--json").stdout)["status"] == "CANCELING"
    canceled = strop("jobs", "wait", job_id, ends=130).stdout
    assert f"strop models publish {job_id} NAME" in canceled


def test_a_failed_job_ends_its_commands_with_1_and_says_why(strop: Strop, server: Server) -> None:
    job_id = server.submit(job_name="fails")
    assert "the numbers went wrong" in strop("jobs", "wait", job_id, ends=1).stdout
    assert json.loads(strop("jobs", "get", job_id, "--json", ends=1).stdout)["code"] == "TrainingFailed"


def test_logs_are_followed_to_the_end_of_the_job(strop: Strop, server: Server) -> None:
    job_id = server.submit(job_name="quick")
    server.becomes(job_id, "SUCCEEDED")
    server.print_lines(job_id, 200)
    last = strop("jobs", "logs", job_id, "-n", 2).stdout.splitlines()
    assert [line[-8:] for line in last] == ["line 199", "line 200"]
    assert len(strop("jobs", "logs", job_id, "-f", "-n", 150).stdout.splitlines()) == 150


def test_run_on_a_server_submits_follows_and_sums_up(strop: Strop, server: Server, project: Path) -> None:
    done = strop("run", project / "job.yaml", "--server", server.url, "--json", "--seed", 3)
    told = json.loads(done.stdout)
    assert (told["status"], told["seed"], told["steps"], told["published_as"]) == ("SUCCEEDED", 3, 1, "tuned")
    with pytest.raises(ConfigError, match="--server or STROP_URL: 1 problem\n  --out: "):
        strop("run", project / "job.yaml", "--server", server.url, "--out", "x")


@pytest.fixture
def plain(project: Path) -> Path:
    """The project's job without what only a cloud has, which `strop run` refuses on its own machine."""
    path = project / "job.yaml"
    path.write_text(path.read_text().replace(", n_gpus_rollout: 8", ""))
    return path


def test_run_trains_on_the_server_that_runs_here_without_being_told_where(
    strop: Strop, server: Server, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STROP_URL", "STROP_API_KEY"):
        monkeypatch.delenv(name)
    with written_down(home(), server.url):
        done = strop("run", plain, "--json", "--set", "seed=5")
    told = json.loads(done.stdout)
    assert (told["status"], told["seed"], told["published_as"]) == ("SUCCEEDED", 5, "tuned")
    assert f"trains on the server that runs here, {server.url}" in done.stderr
    (job,) = server.get("/fine-tunes")["jobs"]
    assert (job["job_id"], job["creator"]) == (told["job_id"], "first")


def test_run_trains_in_its_own_process_where_no_server_can_take_the_job_and_says_why(
    server: Server, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROP_LANG", "en")
    for name in ("STROP_URL", "STROP_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    config = load_job(plain, {})
    other = config.model_copy(update={"model": config.model.model_copy(update={"name": str(plain.parent)})})

    def place(asked: JobConfig = config, **more: Any) -> RunPlace:
        return place_of_run(asked, **{"out": None, "resume": None, **more})

    assert place() == RunPlace()
    with written_down(home(), server.url):
        assert place() == RunPlace(url=server.url)
        assert place(out=plain.parent).why == "--out names a folder of this command's own"
        assert place(resume="auto").why == "--resume starts from a checkpoint on this machine"
        for uri in ("databricks", "databricks://team", "postgresql://db/mlflow", "sqlite:///x.db", "runs"):
            elsewhere = TrackerConfig(type=TrackerType.MLFLOW, tracking_uri=uri)
            told = place(config.model_copy(update={"trackers": (elsewhere,)})).why
            assert told == "its tracking_uri must start with http:// or https://"
        assert place(other).why == (
            f"it has no model {str(plain.parent)!r}; strop models add NAME SOURCE gives it one"
        )
        monkeypatch.setenv("STROP_API_KEY", "sk-wrong")
        assert "key" in (place().why or "")
    with written_down(home(), "http://127.0.0.1:9"):
        assert (place().why or "").startswith("it does not answer")
    assert server.get("/fine-tunes")["total"] == 0


def test_run_lets_a_paused_job_of_the_server_go_on_there_and_leaves_one_that_trains_alone(
    strop: Strop, server: Server, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = server.submit(job_name="waits")
    for name in ("STROP_URL", "STROP_API_KEY"):
        monkeypatch.delenv(name)

    def ends_it() -> None:
        server.becomes(job_id, "RUNNING")
        server.post(f"/fine-tunes/{job_id}/cancel")

    with written_down(home(), server.url):
        server.becomes(job_id, "RUNNING")
        with pytest.raises(
            ConfigError, match=f"(?s){job_id} is RUNNING on the server.*watch it: .* jobs watch"
        ):
            strop("run", plain, "--resume", job_id)
        strop("jobs", "pause", job_id)
        server.becomes(job_id, "SUSPENDED")
        with pytest.raises(ConfigError, match="as it was submitted: --set, --out would have no effect"):
            strop("run", plain, "--resume", job_id, "--set", "seed=3", "--out", "x")
    with pytest.raises(ConfigError, match=r"(?s)none runs here.*start it: .* up; .* jobs resume"):
        strop("run", plain, "--resume", job_id)
    with written_down(home(), server.url):
        ending = threading.Thread(target=ends_it)
        ending.start()
        done = strop("run", plain, "--resume", job_id, "--json", ends=130)
        ending.join()
    told = json.loads(done.stdout)
    assert (told["job_id"], told["status"], told["steps"]) == (job_id, "CANCELED", 2)
    assert f"resumes on the server that runs here, {server.url}" in done.stderr
    assert [job["job_id"] for job in server.get("/fine-tunes")["jobs"]] == [job_id]
    out = io.StringIO()
    console = Console(file=out, width=200)
    assert resume_there(job_id, RunCommand(job=plain), console, as_json=False) is None
    assert "is CANCELED: a new job resumes from its checkpoint, in this command" in out.getvalue()
    assert resume_there("ft-none", RunCommand(job=plain), console, as_json=False) is None


def test_ctrl_c_cancels_a_run_on_a_server_with_a_checkpoint(server: Server, project: Path) -> None:
    text = (project / "job.yaml").read_text().replace("job_name: quick", "job_name: waits")
    (project / "job.yaml").write_text(text)
    command = [sys.executable, "-m", "strop.cli", "run", project / "job.yaml", "--server", server.url]
    env = {**os.environ, "STROP_API_KEY": server.key, "STROP_LANG": "en", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "RUNNING" in line:
                running.send_signal(signal.SIGINT)
                break
        rest = running.stdout.read()
    assert running.returncode == 130, rest
    assert "checkpoint of step 1" in rest
    assert [job["status"] for job in server.get("/fine-tunes")["jobs"]] == ["CANCELED"]


def test_files_are_sent_listed_shown_and_forgotten(strop: Strop, project: Path) -> None:
    file_id = strop("files", "upload", project / "rows" / "train.jsonl").stdout.strip()
    assert file_id in strop("files", "list").stdout
    assert json.loads(strop("files", "get", file_id, "--json").stdout)["name"] == "train.jsonl"
    strop("files", "delete", file_id)
    with pytest.raises(MissingError):
        strop("files", "get", file_id)


def test_a_function_is_shown_registered_called_and_forgotten(strop: Strop, project: Path) -> None:
    shown = strop(
        "functions", "register", "functions.py:Score", "--type", "reward", "--root", project, "--dry-run"
    )
    assert shown.stdout.splitlines() == ["functions.py", "rows/train.jsonl", "rows/validation.jsonl"]
    assert ".env.local" in shown.stderr
    assert "job.yaml" in shown.stderr
    entity = strop("functions", "register", "functions.py:Score", "--type", "reward", "--root", project)
    entity_id = entity.stdout.strip()
    assert entity_id in strop("functions", "list").stdout
    values = {"agent_output": {"messages": [{"role": "assistant", "content": "4"}]}, "ground_truth": "4"}
    called = strop("functions", "test", entity_id, "--input", "-", stdin=json.dumps(values))
    assert "reward_score         1" in called.stdout
    values["ground_truth"] = "raise"
    failed = strop("functions", "test", entity_id, "--input", "-", stdin=json.dumps(values), ends=1)
    assert "no score for this one" in failed.stderr
    instance = strop("functions", "start", entity_id).stdout.strip()
    assert (
        json.loads(strop("functions", "get", entity_id, "--json").stdout)["instances"][0]["state"] == "active"
    )
    assert isinstance(strop("functions", "logs", instance).stdout, str)
    strop("functions", "stop", instance)
    strop("functions", "delete", entity_id)
    assert json.loads(strop("functions", "list", "--json").stdout) == []


def test_models_and_deployments_are_listed(strop: Strop, server: Server) -> None:
    assert "smollm2-135m" in strop("models", "list").stdout
    assert json.loads(strop("deployments", "list", "--json").stdout) == []
    for command in (
        ("get", "nowhere"),
        ("scale", "nowhere", "-c", 2),
        ("delete", "nowhere"),
        ("limit", "nowhere"),
    ):
        with pytest.raises(MissingError, match="nowhere"):
            strop("deployments", *command)
    job_id = server.submit(job_name="quick")
    server.becomes(job_id, "SUCCEEDED")
    with pytest.raises(StropError, match="no checkpoint"):
        strop("models", "publish", job_id, "mine", "--checkpoint", "9")


def test_a_key_is_made_shown_once_opens_its_workspace_and_is_revoked(strop: Strop, server: Server) -> None:
    text = strop("keys", "create", "laptop", "--workspace", "team b").stdout.strip()
    listed = json.loads(strop("keys", "list", "--json").stdout)
    assert [one["name"] for one in listed] == ["first", "laptop"]
    assert text not in strop("keys", "list").stdout
    with server.client(text) as http:
        assert http.get("/files").status_code == 200
        strop("keys", "revoke", listed[1]["key_id"])
        assert http.get("/files").status_code == 401
    with pytest.raises(ConfigError, match="is no name"):
        strop("keys", "create", "\n")


def test_wrong_input_ends_with_2_and_a_server_that_is_not_there_with_1(tmp_path: Path, project: Path) -> None:
    def ended(*arguments: object, **more: str) -> tuple[int, str]:
        env = {**os.environ, "STROP_LANG": "en", "STROP_HOME": str(tmp_path / "none"), **more}
        command = [sys.executable, "-m", "strop.cli", *map(str, arguments)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, told = ended("jobs", "pause", "ft-1")
    assert (code, "strop up" in told) == (1, True)
    assert ended("jobs", "list", "--json") == (0, "")
    code, told = ended("jobs", "list", "--server", "http://127.0.0.1:9", STROP_API_KEY="k")
    assert (code, "cannot be reached" in told) == (1, True)
    (project / "rows" / "train.jsonl").write_text("{}\n" * 16)
    code, told = ended(
        "jobs", "submit", project / "job.yaml", "--server", "http://127.0.0.1:9", STROP_API_KEY="k"
    )
    assert (code, "messages: missing" in told) == (2, True)
    assert "Traceback" not in told


def test_up_writes_down_where_it_is_and_commands_find_it(tmp_path: Path) -> None:
    env = {**os.environ, "STROP_HOME": str(tmp_path / "home"), "STROP_LANG": "en", "PYTHONUNBUFFERED": "1"}
    for name in ("STROP_URL", "STROP_API_KEY"):
        env.pop(name, None)
    command = [sys.executable, "-m", "strop.cli"]
    with subprocess.Popen(
        [*command, "up", "--port", "0"], env=env, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if line.startswith("Ctrl-C"):
                break
        listed = subprocess.run(
            [*command, "jobs", "list", "--json"], env=env, capture_output=True, text=True, check=False
        )
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
    assert (listed.returncode, listed.stdout.strip()) == (0, "[]"), listed.stderr
    assert not (tmp_path / "home" / "server.json").exists()
