"""A job whose process is gone does not stay RUNNING for ever."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from strop.errors import StoreError
from strop.processes.mark import ProcessMark, is_gone, this_process
from strop.schema.job import Job, JobStatus
from strop.store.jobs import claim_job, create_job, fail_lost_jobs, get_job, live_jobs, move_job

TRAINER = """
import sys
from strop.store.database import open_database
from strop.store.jobs import claim_job, move_job
from strop.processes.mark import this_process
from strop.schema.job import JobStatus
database = open_database()
with database.write() as session:
    claim_job(session, "job-1", this_process())
    move_job(session, "job-1", JobStatus.RUNNING)
print("trains", flush=True)
sys.stdin.read()
"""


def test_a_killed_trainer_s_job_is_failed_with_the_reason_and_a_living_one_s_is_not(database, job):
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None
    with trainer:
        assert trainer.stdout.readline() == "trains\n"
        with database.write() as session:
            assert fail_lost_jobs(session) == []
            assert [(one.job_id, one.pid) for one in live_jobs(session)] == [("job-1", trainer.pid)]
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        with database.write() as session:
            (lost,) = fail_lost_jobs(session)
            assert live_jobs(session) == []
    assert (lost.job_id, lost.status) == ("job-1", JobStatus.FAILED)
    assert f"its process {trainer.pid} on " in (lost.error or "")
    assert "--resume" in (lost.error or "")
    assert lost.ended_at is not None
    with database.write() as session:
        assert fail_lost_jobs(session) == []


def test_a_number_that_another_process_has_now_does_not_pass_for_the_trainer(database, job):
    before = replace(this_process(), started="another-boot/123")
    with database.write() as session:
        claim_job(session, "job-1", before)
        move_job(session, "job-1", JobStatus.RUNNING)
    assert is_gone(before)
    with database.write() as session:
        assert [one.job_id for one in fail_lost_jobs(session)] == ["job-1"]


def test_of_another_machine_s_process_nothing_is_sure_unless_the_caller_knows(database, job):
    with database.write() as session:
        claim_job(session, "job-1", ProcessMark(host="far-away", pid=os.getpid(), started="x"))
        move_job(session, "job-1", JobStatus.RUNNING)
        assert fail_lost_jobs(session) == []
        assert live_jobs(session) == []
        assert [one.job_id for one in fail_lost_jobs(session, surely="job-1")] == ["job-1"]


def test_a_job_that_nobody_trains_yet_is_left_alone(database, job):
    with database.write() as session:
        assert fail_lost_jobs(session) == []
        assert get_job(session, "job-1").status is JobStatus.PENDING


def test_a_zombie_is_gone(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(replace(this_process(), pid=child.pid, started="unknown"))
    child.communicate()


def test_a_claim_names_the_process_and_the_job_it_resumes(database, job):
    with database.write() as session:
        create_job(
            session,
            Job(job_id="job-2", name="j", status=JobStatus.PENDING, model="m", created_at=datetime.now(UTC)),
        )
        claimed = claim_job(session, "job-2", this_process(), resumes="job-1")
    assert (claimed.pid, claimed.resumes) == (os.getpid(), "job-1")
    with database.read() as session:
        assert get_job(session, "job-2") == claimed


def test_a_job_is_not_claimed_from_a_living_process_nor_after_its_end(database, job):
    parent = ProcessMark(host=this_process().host, pid=os.getppid(), started="unknown")
    with database.write() as session:
        claim_job(session, "job-1", parent)
    with pytest.raises(StoreError, match=f"trained by process {os.getppid()}"), database.write() as session:
        claim_job(session, "job-1", this_process())
    with database.write() as session:
        move_job(session, "job-1", JobStatus.CANCELED)
    with pytest.raises(StoreError, match="has ended: it is CANCELED"), database.write() as session:
        claim_job(session, "job-1", this_process())
