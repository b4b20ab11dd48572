"""What jobs and models have to do with each other, through the API."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import httpx

from fakes.server import Server
from strop.schema.job import Checkpoint
from strop.store.checkpoints import checkpoint_id, mark_removed, record_checkpoint
from strop.store.models import register_model


def with_checkpoints(server: Server, job_id: str, root: Path) -> None:
    """Step 7 was validated better than the last, step 9."""
    for step, validation in ((7, 0.9), (9, 0.4)):
        folder = root / f"{job_id}-{step}"
        folder.mkdir()
        (folder / "config.json").write_text(f"{step}")
        made = Checkpoint(
            checkpoint_id=checkpoint_id(job_id, step),
            job_id=job_id,
            step=step,
            folder=folder,
            policy_version=step,
            validation=validation,
            created_at=datetime.now(UTC),
        )
        with server.database.write() as session:
            record_checkpoint(session, made)


def test_a_job_for_an_unknown_model_is_400_and_lists_what_is_there(server: Server) -> None:
    with server.database.write() as session:
        register_model(session, "qwen3.5-9b", "/models/Qwen3.5-9B")
    refused = server.http.post("/fine-tunes", json=server.job_body(model="qwen3-8b"))
    assert (refused.status_code, refused.json()["code"]) == (400, "InvalidParameter")
    assert "there are: qwen3.5-9b, smollm2-135m" in refused.json()["message"]


def test_a_job_whose_models_name_is_taken_is_409_before_any_work(server: Server) -> None:
    with server.database.write() as session:
        register_model(session, "calculator", "/models/calculator")
    refused = server.http.post("/fine-tunes", json=server.job_body(tuned_model_name="calculator"))
    assert (refused.status_code, refused.json()["code"]) == (409, "Conflict")


def test_a_checkpoint_is_published_by_id_by_step_and_as_the_best(server: Server, tmp_path: Path) -> None:
    job_id = server.submit(job_name="quick")
    server.becomes(job_id, "SUCCEEDED")
    with_checkpoints(server, job_id, tmp_path)
    best = server.get(f"/fine-tunes/{job_id}/export/best", model_name="the-best")
    assert best["lineage"]["step"] == 7
    assert best["lineage"]["job_id"] == job_id
    assert best["model_source"] == "custom"
    for which, name in ((f"{job_id}:checkpoint-9", "by-id"), ("9", "by-step"), ("last", "the-last")):
        made = server.get(f"/fine-tunes/{job_id}/export/{which}", model_name=name)
        assert (made["model_name"], made["lineage"]["step"]) == (name, 9)
    again = server.http.get(f"/fine-tunes/{job_id}/export/last", params={"model_name": "the-best"})
    assert (again.status_code, again.json()["code"]) == (409, "Conflict")
    missing = server.http.get(f"/fine-tunes/{job_id}/export/3", params={"model_name": "x"})
    assert missing.status_code == 404
    nameless = server.http.get(f"/fine-tunes/{job_id}/export/9", params={"model_name": "../x"})
    assert nameless.status_code == 400
    listed = server.get("/models", model_source="custom")["models"]
    assert {one["model_name"] for one in listed} == {"the-best", "by-id", "by-step", "the-last"}
    assert server.http.delete("/models/by-id").status_code == 200
    assert server.http.get("/models/by-id").status_code == 404
    next_job = server.submit(model="the-best", job_name="quick")
    assert server.job(next_job)["base_model"] == "the-best"


def test_the_best_checkpoint_of_a_job_that_learns_from_rows_has_the_lowest_loss(
    server: Server, tmp_path: Path
) -> None:
    rows = [{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}] * 4
    job_id = server.post(
        "/fine-tunes",
        {
            "model": "smollm2-135m",
            "training_file_ids": [server.upload_rows(rows)],
            "hyper_parameters": {"batch_size": 2},
            "training_type": "sft",
            "job_name": "quick",
        },
    )["job_id"]
    server.becomes(job_id, "SUCCEEDED")
    with_checkpoints(server, job_id, tmp_path)
    with server.database.write() as session:  # the trainer's own, which was validated at step 1
        mark_removed(session, Path("nowhere"))
    shown = server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]
    assert [(one["step"], one["best"]) for one in shown] == [(7, False), (9, True)]
    published = server.get(f"/fine-tunes/{job_id}/export/best", model_name="lowest-loss")
    assert published["lineage"]["step"] == 9
    with httpx.Client(base_url=server.url, headers={"origin": server.url}) as browser:
        browser.post("/console/sign-in", data={"key": server.key})
        page = browser.get(f"/console/jobs/{job_id}/output").text
    (marked,) = [row for row in page.split("<tr>") if ">best</span>" in row]
    assert '<td class="num">v9</td>' in marked
