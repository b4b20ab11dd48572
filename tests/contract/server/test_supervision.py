import os
import signal

import pytest

from fakes.server import eventually, serving
from strop.processes.mark import is_gone
from strop.schema.job import JobStatus
from strop.store.home import home
from strop.store.jobs import get_job, process_of


def kinds(server, job_id):
    return [one["kind"] for one in server.get(f"/fine-tunes/{job_id}/events")["events"]]


def process(server, job_id):
    with server.database.read() as session:
        return process_of(get_job(session, job_id))


def test_no_more_jobs_run_than_may_and_the_queue_keeps_its_order(own_server):
    first, second, third = (own_server.submit(job_name="waits") for _ in range(3))
    own_server.becomes(first, "RUNNING")
    own_server.becomes(second, "QUEUING")
    own_server.becomes(third, "QUEUING")
    own_server.post(f"/fine-tunes/{first}/cancel")
    own_server.becomes(second, "RUNNING")
    assert own_server.job(third)["status"] == "QUEUING"
    assert own_server.becomes(first, "CANCELED")["end_time"]


def test_a_limit_of_two_runs_two():
    with serving(home(), max_running_jobs=2) as server:
        jobs = [server.submit(job_name="waits") for _ in range(3)]
        for job_id in jobs[:2]:
            server.becomes(job_id, "RUNNING")
        server.becomes(jobs[2], "QUEUING")


def test_a_running_job_is_canceled_by_its_trainer_which_saves(own_server):
    job_id = own_server.submit(job_name="waits")
    own_server.becomes(job_id, "RUNNING")
    eventually(lambda: process(own_server, job_id))
    told = own_server.post(f"/fine-tunes/{job_id}/cancel")
    assert told["status"] in ("CANCELING", "CANCELED")
    own_server.becomes(job_id, "CANCELED")
    assert [one["step"] for one in own_server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]] == [1]
    assert own_server.http.post(f"/fine-tunes/{job_id}/cancel").status_code == 409


def test_a_waiting_job_is_canceled_at_once(own_server):
    running, waiting = own_server.submit(job_name="waits"), own_server.submit(job_name="waits")
    own_server.becomes(waiting, "QUEUING")
    assert own_server.post(f"/fine-tunes/{waiting}/cancel")["status"] == "CANCELED"
    assert own_server.becomes(running, "RUNNING")


def test_a_paused_job_gives_its_place_away_and_goes_on_when_told(own_server):
    job_id, other = own_server.submit(job_name="waits"), own_server.submit(job_name="waits")
    own_server.becomes(job_id, "RUNNING")
    own_server.post(f"/fine-tunes/{job_id}/pause")
    own_server.becomes(job_id, "SUSPENDED")
    own_server.becomes(other, "RUNNING")
    assert own_server.post(f"/fine-tunes/{job_id}/resume")["status"] in ("QUEUING", "RUNNING")
    own_server.post(f"/fine-tunes/{other}/cancel")
    own_server.becomes(job_id, "RUNNING")
    own_server.post(f"/fine-tunes/{job_id}/pause")
    own_server.becomes(job_id, "SUSPENDED")
    assert own_server.post(f"/fine-tunes/{job_id}/cancel")["status"] == "CANCELED"
    assert own_server.http.post(f"/fine-tunes/{job_id}/resume").status_code == 409
    assert own_server.http.post(f"/fine-tunes/{job_id}/pause").status_code == 409
    assert [one["step"] for one in own_server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]] == [
        1,
        2,
    ]


def test_a_trainer_that_keeps_dying_is_given_up_with_the_reason_and_its_last_lines():
    with serving(home(), max_deaths=2) as server:
        job_id = server.submit(job_name="dies")
        job = server.becomes(job_id, "FAILED", within_s=120)
        assert kinds(server, job_id) == ["trainer_died", "trainer_died"]
        assert "killed by SIGKILL; usually the system has run out of memory" in job["message"]
        assert "it has now died 3 times before the first checkpoint" in job["message"]
        assert job["message"].endswith("its last lines:\nworking on dies\nabout to die")
        server.http.headers["accept-language"] = "zh"
        message = server.job(job_id)["message"]
        assert message.startswith("训练进程被 SIGKILL 杀死；多半是系统内存不足；在第一个检查点之前已有 3 次")
        assert message.endswith("最后几行输出：\nworking on dies\nabout to die")
        notes = [one["message"] for one in server.get(f"/fine-tunes/{job_id}/events")["events"]]
        assert notes[0].endswith("任务从头开始（第 1 次，最多 2 次）")
        assert [line[20:] for line in server.get(f"/fine-tunes/{job_id}/logs")["logs"]][:2] == [
            "[trainer] working on dies",
            "[trainer] about to die",
        ]


def test_a_trainer_that_gets_on_between_its_deaths_is_never_given_up():
    with serving(home(), max_deaths=1) as server:
        job_id = server.submit(job_name="dies-and-gets-on")
        server.becomes(job_id, "SUCCEEDED", within_s=120)
        assert kinds(server, job_id) == ["trainer_died"] * 3
        messages = [one["message"] for one in server.get(f"/fine-tunes/{job_id}/events")["events"]]
        assert "resumes from the checkpoint of step 3 (attempt 1 of 1)" in messages[-1]


def test_a_canceled_trainer_that_does_not_end_is_killed_after_its_grace():
    with serving(home(), cancel_grace_s=0.3) as server:
        job_id = server.submit(job_name="hangs")
        server.becomes(job_id, "RUNNING")
        mark = eventually(lambda: process(server, job_id))
        server.post(f"/fine-tunes/{job_id}/cancel")
        server.becomes(job_id, "CANCELED")
        assert is_gone(mark)
        assert "trainer_ended" in kinds(server, job_id)


def test_a_server_that_comes_back_finds_its_jobs_at_work():
    with serving(home(), end_trainers=False) as server:
        running, waiting = server.submit(job_name="waits"), server.submit(job_name="waits")
        server.becomes(running, "RUNNING")
        mark = eventually(lambda: process(server, running))
    assert not is_gone(mark)
    with serving(home()) as server:
        server.becomes(waiting, "QUEUING")
        assert server.job(running)["status"] == "RUNNING"
        assert process(server, running) == mark
        server.post(f"/fine-tunes/{running}/cancel")
        server.becomes(running, "CANCELED")
        server.becomes(waiting, "RUNNING")
        assert "trainer_died" not in kinds(server, running)


def test_a_trainer_that_died_while_the_server_was_away_is_started_again():
    with serving(home(), end_trainers=False) as server:
        job_id = server.submit(job_name="waits")
        server.becomes(job_id, "RUNNING")
        mark = eventually(lambda: process(server, job_id))
    os.killpg(mark.pid, signal.SIGKILL)
    eventually(lambda: is_gone(mark))
    with serving(home()) as server:
        eventually(lambda: process(server, job_id) not in (None, mark))
        server.becomes(job_id, "RUNNING")
        assert kinds(server, job_id) == ["trainer_died"]


def test_two_servers_on_one_store_do_not_start_a_job_twice():
    with serving(home()) as one, serving(home()) as two:
        job_id = one.submit(job_name="quick")
        one.becomes(job_id, "SUCCEEDED")
        assert two.job(job_id)["status"] == "SUCCEEDED"
        assert "trainer_died" not in kinds(two, job_id)


@pytest.mark.parametrize("status", list(JobStatus))
def test_every_status_either_ends_or_leads_to_an_end(status):
    from strop.schema.job import ALLOWED_MOVES

    reached, todo = set(), {status}
    while todo:
        one = todo.pop()
        reached.add(one)
        todo |= ALLOWED_MOVES[one] - reached
    assert status.final or {JobStatus.CANCELED, JobStatus.FAILED} & reached


def test_on_postgresql_a_job_is_submitted_watched_and_canceled_as_on_sqlite(cluster):
    name = cluster.database()
    with serving(home(), database_url=cluster.url(name)) as server:
        job_id = server.submit(job_name="waits")
        server.becomes(job_id, "RUNNING")
        assert server.http.get("/fine-tunes/a%00b").status_code in (400, 404)
        assert server.http.get("/fine-tunes/%ed%a0%80").status_code in (400, 404)
        eventually(lambda: process(server, job_id))
        server.post(f"/fine-tunes/{job_id}/cancel")
        server.becomes(job_id, "CANCELED")
        saved = server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]
        assert [one["step"] for one in saved] == [1]
        assert kinds(server, job_id) == ["cancel_asked"]
    assert not (home() / "strop.db").exists()
    cluster.drop(name)
