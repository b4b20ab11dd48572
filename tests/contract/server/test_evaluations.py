"""Evaluations over the API: what is asked, what is refused, and what is seen of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from strop.schema.job import Checkpoint, Event, Job, JobStatus
from strop.store.checkpoints import record_checkpoint
from strop.store.events import record_event
from strop.store.jobs import create_job


def body(server, **changes):
    asked = {
        "model": "smollm2-135m",
        "datasets": [{"file_id": server.upload_rows(name="held_out.jsonl")}],
        "rollout": {"rollout_id": server.register("rollout", "Agent"), "name": "agent"},
        "rewards": [{"reward_id": server.register("reward", "Score"), "name": "score"}],
        "name": "waits",
    }
    return {key: value for key, value in (asked | changes).items() if value is not None}


def test_an_evaluation_is_listed_apart_from_trainings_and_ends_when_told(server):
    made = server.post("/evaluations", body(server, n_rollouts=4, temperature=0.7))
    ident = made["evaluation_id"]
    assert (made["status"], made["model"], made["n_rollouts"]) == ("PENDING", "smollm2-135m", 4)
    assert made["datasets"] == ["held_out"]
    listed = server.get("/evaluations")
    assert ident in [one["evaluation_id"] for one in listed["evaluations"]]
    assert ident not in [one["job_id"] for one in server.get("/fine-tunes")["jobs"]]
    server.becomes(ident, "RUNNING")
    server.post(f"/evaluations/{ident}/cancel")
    server.becomes(ident, "CANCELED")
    assert server.http.post(f"/evaluations/{ident}/cancel").status_code == 409
    assert server.http.delete(f"/evaluations/{ident}").status_code == 200
    assert server.http.get(f"/evaluations/{ident}").status_code == 404


def test_results_are_told_as_they_come_and_the_mean_when_all_are_there(server):
    two = [{"file_id": server.upload_rows(name=f"{name}.jsonl")} for name in ("easy", "hard")]
    ident = server.post("/evaluations", body(server, datasets=two))["evaluation_id"]

    def tell(dataset: str, mean: float) -> None:
        data = {
            "dataset": dataset,
            "mean": mean,
            "parts": {},
            "n_rollouts": 1,
            "num_samples": 16,
            "num_failed": 0,
        }
        told = Event(job_id=ident, kind="evaluated", message="", data=data, created_at=datetime.now(UTC))
        with server.database.write() as session:
            record_event(session, told)

    tell("1-easy", 0.5)
    seen = server.get(f"/evaluations/{ident}")
    assert ([one["mean"] for one in seen["results"]], "mean" in seen) == ([0.5], False)
    tell("2-hard", 0.25)
    tell("1-easy", 0.75)  # measured again, after its process had died
    seen = server.get(f"/evaluations/{ident}")
    assert [(one["dataset"], one["mean"]) for one in seen["results"]] == [("1-easy", 0.75), ("2-hard", 0.25)]
    assert seen["mean"] == 0.5
    server.post(f"/evaluations/{ident}/cancel")
    server.becomes(ident, "CANCELED")


def test_a_checkpoint_is_measured_where_it_lies_and_only_in_its_workspace(server, tmp_path):
    now = datetime.now(UTC)
    for workspace in ("default", "elsewhere"):
        job = Job(
            job_id=f"ft-{workspace}", name="j", status=JobStatus.SUCCEEDED, model="m", workspace_id=workspace,
            created_at=now,
        )  # fmt: skip
        made = Checkpoint(
            checkpoint_id=f"{workspace}-step-1", job_id=job.job_id, step=1, folder=tmp_path,
            policy_version=1, created_at=now,
        )  # fmt: skip
        with server.database.write() as session:
            create_job(session, job)
            record_checkpoint(session, made)
    asked = body(server, model=None, checkpoint_id="default-step-1")
    ident = server.post("/evaluations", asked)["evaluation_id"]
    assert server.get(f"/evaluations/{ident}")["model"] == "default-step-1"
    server.post(f"/evaluations/{ident}/cancel")
    server.becomes(ident, "CANCELED")
    told = "no checkpoint '{}'\n  fix: list the job's checkpoints and take an id from there"
    for foreign in ("elsewhere-step-1", "elsewhere-step-2"):  # whether it is there or not
        reply = server.http.post("/evaluations", json=asked | {"checkpoint_id": foreign})
        assert (reply.status_code, reply.json()["message"]) == (404, told.format(foreign))


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"model": None}, 400, "name one of model, checkpoint_id and deployed_model, not 0"),
        ({"deployed_model": "x"}, 400, "not 2"),
        ({"model": "nothing"}, 400, "there is no model 'nothing'"),
        ({"model": None, "deployed_model": "nothing"}, 404, "no deployment 'nothing'"),
        ({"datasets": []}, 400, "datasets"),
        ({"datasets": [{"file_id": "gone"}]}, 400, "no file 'gone'"),
        ({"rewards": []}, 400, "rewards"),
        ({"n_rollouts": 4}, 400, "at temperature 0 every rollout is the same"),
        ({"n_rollouts": 0}, 400, "n_rollouts"),
        (
            {"hyper_parameters": {"learning_rate": 1}},
            400,
            "learning_rate: has no effect where nothing is learned",
        ),
        ({"hyper_parameters": {"max_tokens": "many"}}, 400, "max_tokens"),
        ({"temprature": 1}, 400, "temprature"),
    ],
)
def test_what_cannot_be_measured_is_refused(server, changes, status, told):
    reply = server.http.post("/evaluations", json=body(server, **changes))
    assert reply.status_code == status, reply.text
    assert told in reply.json()["message"]


def test_a_training_is_no_evaluation(server):
    job_id = server.submit(job_name="waits")
    assert server.http.get(f"/evaluations/{job_id}").status_code == 404
    assert server.http.post(f"/evaluations/{job_id}/cancel").status_code == 404
    server.post(f"/fine-tunes/{job_id}/cancel")
