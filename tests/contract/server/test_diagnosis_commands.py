"""`strop jobs diagnose`, `watch`, `spans` and `metrics --format` against a server with a job in it."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from fakes.spans import span
from strop.cli.commands import app
from strop.schema.finding import Curve, Evidence, Finding, Severity, Text, Witness
from strop.schema.job import Event, Job, JobStatus
from strop.store.events import record_event
from strop.store.findings import record_finding
from strop.store.jobs import create_job, move_job
from strop.store.metrics import record_metrics
from strop.store.spans import record_spans

JOB = "ft-shown"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def job(server, monkeypatch):
    monkeypatch.setenv("STROP_URL", server.url)
    monkeypatch.setenv("STROP_API_KEY", server.key)
    monkeypatch.setenv("STROP_LANG", "en")
    with server.database.write() as session:
        if not server.http.get(f"/fine-tunes/{JOB}").is_success:
            made = Job(
                job_id=JOB, name="shown", status=JobStatus.PENDING, model="m", config={}, created_at=NOW
            )
            create_job(session, made)
            move_job(session, JOB, JobStatus.FAILED, error="out of luck\n  fix: none")
            planned = Event(
                job_id=JOB, kind="planned", message="8 steps", data={"total_steps": 8}, created_at=NOW
            )
            record_event(session, planned)
            for step, reward in enumerate((0.25, 0.5, float("nan"), 1.0), 1):
                record_metrics(session, JOB, step, {"critic/rewards/mean": reward, "actor/entropy": 2.0})
            record_spans(
                session, JOB, [span(1, name="invoke_rollout A"), span(2, parent_span_id=span(1).span_id)]
            )
            record_finding(
                session,
                Finding(
                    job_id=JOB,
                    rule="P4",
                    severity=Severity.ALARM,
                    first_step=2,
                    last_step=4,
                    summary=Text(en="entropy fell", zh="熵下降"),
                    evidence=Evidence(
                        curves=[Curve(name="actor/entropy", points=[(4, 2.0)])],
                        trajectories=[Witness(rollout_id="s4-0-r0", step=4, note="the same text")],
                    ),
                    created_at=NOW,
                    updated_at=NOW,
                ),
            )
    return JOB


def strop(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_diagnose_says_what_why_and_what_to_do_and_ends_with_1_while_an_alarm_holds(job):
    done = strop("jobs", "diagnose", job)
    assert done.exit_code == 1
    for words in (
        "P4  Entropy collapse",
        "from step 2",
        "entropy fell",
        "cause",
        "dapo",
        "s4-0-r0   the same text",
    ):
        assert words in done.output
    (found,) = json.loads(strop("jobs", "diagnose", job, "--json").output)
    assert (found["rule"], found["title"]["zh"]) == ("P4", "熵骤降")


def test_watch_draws_progress_curves_findings_and_errors_and_ends_with_the_job(job):
    done = strop("jobs", "watch", job)
    assert done.exit_code == 1
    for words in ("step 4 of 8", "critic/rewards/mean", "▁▃ █", "1", "Entropy collapse", "✗ out of luck"):
        assert words in done.output


def test_spans_of_a_rollout_are_drawn_as_a_tree(job):
    done = strop("jobs", "spans", job, "s1-0-r0")
    first, second = done.output.splitlines()
    assert "invoke_rollout A" in first
    assert "  chat m2" in second


def test_metrics_are_written_as_csv_with_an_empty_field_where_there_was_no_number(job, tmp_path):
    out = tmp_path / "m.csv"
    assert strop("jobs", "metrics", job, "--format", "csv", "--out", str(out)).exit_code == 0
    rows = list(csv.reader(out.read_text().splitlines()))
    assert rows[0] == ["job_id", "metric", "step", "value"]
    assert [row[2:] for row in rows if row[1] == "critic/rewards/mean"] == [
        ["1", "0.25"],
        ["2", "0.5"],
        ["3", ""],
        ["4", "1.0"],
    ]
    assert strop("jobs", "metrics", job, "actor/entropy", "--format", "csv").output.splitlines()[1] == (
        f"{JOB},actor/entropy,1,2.0"
    )


def test_metrics_are_written_as_parquet_with_their_types(job, tmp_path):
    import pyarrow.parquet as pq

    out = tmp_path / "m.parquet"
    assert strop("jobs", "metrics", job, "--format", "parquet", "--out", str(out)).exit_code == 0
    table = pq.read_table(out)
    assert [str(field.type) for field in table.schema] == ["string", "string", "int64", "double"]
    assert table.num_rows == 8


def test_an_export_that_cannot_be_is_refused_with_the_fix(job):
    assert "--out" in strop("jobs", "metrics", job, "--format", "parquet").exception.fix
    assert strop("jobs", "metrics", job, "--out", "x.csv").exit_code == 2


def test_metrics_are_shown_under_arks_names_and_others_are_told_to_be_missing(job):
    done = strop("jobs", "metrics", job, "--names", "ark", "--json")
    assert json.loads(done.output) == {"train/actor/entropy": [[step, 2.0] for step in (1, 2, 3, 4)]}
    done = strop("jobs", "metrics", job, "--names", "ark", "train/actor/entropy", "actor/entropy")
    assert done.exit_code == 1
    assert "train/actor/entropy" in done.output
    assert "nothing was recorded as actor/entropy" in done.output
    out = strop("jobs", "metrics", job, "--names", "ark", "--format", "csv").output.splitlines()
    assert out[1] == f"{JOB},train/actor/entropy,1,2.0"
