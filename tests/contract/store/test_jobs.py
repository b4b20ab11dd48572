from datetime import UTC, datetime, timedelta, timezone

import pytest

from strop.errors import StoreError
from strop.schema.job import ALLOWED_MOVES, Job, JobStatus
from strop.store.jobs import create_job, get_job, list_jobs, move_job

START = datetime(2026, 3, 1, tzinfo=UTC)


def make(job_id: str, *, status: JobStatus = JobStatus.PENDING, created_at: datetime = START) -> Job:
    return Job(job_id=job_id, name=job_id, status=status, model="m", created_at=created_at)


def test_a_job_comes_back_as_it_was_made(database, job):
    with database.read() as session:
        assert get_job(session, "job-1") == job


def test_times_come_back_in_utc_whatever_zone_they_were_in(database):
    there = datetime(2026, 3, 1, 20, 0, tzinfo=timezone(timedelta(hours=8)))
    with database.write() as session:
        create_job(session, make("j", created_at=there))
    with database.read() as session:
        assert get_job(session, "j").created_at.isoformat() == "2026-03-01T12:00:00+00:00"


def test_an_id_is_taken_once(database, job):
    with pytest.raises(StoreError, match="'job-1' already"), database.write() as session:
        create_job(session, job)


def test_an_unknown_job_is_an_error_that_names_it(database):
    with pytest.raises(StoreError, match="no job 'job-9'"), database.read() as session:
        get_job(session, "job-9")


@pytest.mark.parametrize("source", list(JobStatus))
@pytest.mark.parametrize("target", list(JobStatus))
def test_a_status_moves_only_where_the_life_cycle_allows(database, source, target):
    with database.write() as session:
        create_job(session, make("j", status=source))
    if target in ALLOWED_MOVES[source]:
        with database.write() as session:
            assert move_job(session, "j", target).status is target
    else:
        with pytest.raises(StoreError, match=f"is {source} and cannot become {target}"):
            with database.write() as session:
                move_job(session, "j", target)
        with database.read() as session:
            assert get_job(session, "j").status is source


def test_running_stamps_the_start_and_a_final_status_the_end_with_its_error(database, job):
    before = datetime.now(UTC)
    with database.write() as session:
        running = move_job(session, "job-1", JobStatus.RUNNING)
    with database.write() as session:
        failed = move_job(session, "job-1", JobStatus.FAILED, error="step 3: 9 of 16 rollouts failed")
    after = datetime.now(UTC)
    assert running.ended_at is None
    assert before <= running.started_at <= failed.ended_at <= after
    assert failed.started_at == running.started_at
    assert failed.error == "step 3: 9 of 16 rollouts failed"
    with database.read() as session:
        assert get_job(session, "job-1") == failed


def test_moving_an_unknown_job_is_an_error(database):
    with pytest.raises(StoreError, match="no job 'ghost'"), database.write() as session:
        move_job(session, "ghost", JobStatus.RUNNING)


def test_jobs_are_listed_newest_first_page_by_page(database):
    with database.write() as session:
        for number in range(5):
            create_job(session, make(f"j{number}", created_at=START + timedelta(hours=number // 2)))
    with database.read() as session:
        first = list_jobs(session, limit=2)
        second = list_jobs(session, limit=2, after=first.next)
        third = list_jobs(session, limit=2, after=second.next)
        assert [[job.job_id for job in page.items] for page in (first, second, third)] == [
            ["j4", "j3"],
            ["j2", "j1"],
            ["j0"],
        ]
        assert [page.more for page in (first, second, third)] == [True, True, False]
        assert list_jobs(session, after=third.next).items == ()


def test_jobs_can_be_listed_by_status(database):
    with database.write() as session:
        create_job(session, make("a"))
        create_job(session, make("b", status=JobStatus.RUNNING))
    with database.read() as session:
        assert [job.job_id for job in list_jobs(session, status=JobStatus.RUNNING).items] == ["b"]
