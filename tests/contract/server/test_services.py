"""The services as a second door would find them: no request, no route, no web framework."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fakes.server import FAKE_TRAINER, FUNCTIONS, ROWS, json_lines, zipped
from strop.cli.checking import PipelineFlow
from strop.errors import ConfigError, ConflictError, MissingError, ModelError, Problem, RequestError
from strop.schema.access import Caller
from strop.schema.function import FunctionType
from strop.schema.job import JobStatus
from strop.service import evaluations, files, functions, jobs, models
from strop.service.evaluations import NewEvaluation
from strop.service.files import NewFile
from strop.service.functions import NewFunction
from strop.service.job_plan import JobFunction, NewJob, RowsFile
from strop.service.services import Services, open_services
from strop.service.settings import Settings
from strop.store.events import list_events
from strop.store.home import home
from strop.store.keys import ensure_workspace

HERE = Caller(workspace_id="default", key_id="key-1", key_name="somebody")
ELSEWHERE = Caller(workspace_id="other", key_id="key-2", key_name="a neighbour")


@pytest.fixture
def services() -> Iterator[Services]:
    opened = open_services(Settings(home=home()), PipelineFlow(), trainer_command=FAKE_TRAINER)
    with opened.database.write() as session:
        ensure_workspace(session, HERE.workspace_id)
        ensure_workspace(session, ELSEWHERE.workspace_id)
    yield opened
    opened.layers.close()
    opened.database.close()


def uploaded(services: Services) -> str:
    content = json_lines(ROWS)
    (file,) = files.store(services, HERE, [NewFile(name="../rows.jsonl", chunks=[content])])
    assert (file.name, file.size, file.sha256) == (
        "rows.jsonl",
        len(content),
        hashlib.sha256(content).hexdigest(),
    )
    return file.file_id


def registered(services: Services, kind: FunctionType, func: str) -> str:
    content = zipped({"functions.py": FUNCTIONS})
    path = services.settings.home / "bundle.zip"
    path.write_bytes(content)
    functions.keep_bundle(services, HERE.workspace_id, "mine", path, hashlib.sha256(content).hexdigest())
    new = NewFunction(name="functions.py", func=func, unique_key="mine")
    return functions.register(services, HERE, kind, new).entity_id


def new_job(services: Services, **changes: object) -> NewJob:
    rollout = registered(services, FunctionType.ROLLOUT, "Agent")
    reward = registered(services, FunctionType.REWARD, "Score")
    values: dict[str, object] = {
        "model": "smollm2-135m",
        "training": [RowsFile(place="training_file", file_id=uploaded(services))],
        "functions": [
            JobFunction(place="rollout", type=FunctionType.ROLLOUT, entity_id=rollout),
            JobFunction(place="rewards[0]", entity_id=reward, not_honoured=["vpc_id"]),
        ],
        "hyper_parameters": {"batch_size": 4, "n_rollouts": 2, "n_gpus_training": 8},
    }
    return NewJob(**values | changes)  # pyright: ignore[reportArgumentType]


def test_a_job_is_created_listed_paused_resumed_canceled_and_deleted(services: Services) -> None:
    made = jobs.submit(services, HERE, new_job(services), request={"as": "the client said"})
    job_id = made.job.job_id
    assert made.job.status is JobStatus.PENDING
    assert made.job.config["tuned_model_name"] == f"smollm2-135m-{job_id}"
    assert made.submission is not None
    assert made.submission.creator == "somebody"
    assert made.submission.request == {"as": "the client said"}
    rows = services.folder_of(job_id) / "data" / "training" / "rows.jsonl"
    assert rows.read_bytes() == json_lines(ROWS)
    with services.database.read() as session:
        notes = [event.message for event in list_events(session, job_id, kind="not_honoured").items]
    assert [note.partition(":")[0] for note in notes] == [
        "hyper_parameters.n_gpus_training",
        "function 'Score'",
    ]
    found, total = jobs.list_jobs(services, HERE, page_no=1, page_size=10)
    assert ([one.job.job_id for one in found], total) == ([job_id], 1)
    assert jobs.pause(services, HERE, job_id).job.status is JobStatus.SUSPENDED
    assert jobs.resume(services, HERE, job_id).job.status is JobStatus.QUEUING
    with pytest.raises(ConflictError, match="only a job that has ended"):
        jobs.delete(services, HERE, job_id)
    assert jobs.cancel(services, HERE, job_id).job.status is JobStatus.CANCELED
    jobs.delete(services, HERE, job_id)
    assert not services.folder_of(job_id).exists()
    with pytest.raises(MissingError):
        jobs.get(services, HERE, job_id)


def test_everything_that_is_wrong_with_a_job_is_reported_at_once_and_nothing_is_left(
    services: Services,
) -> None:
    wrong = new_job(
        services,
        training=[RowsFile(place="training_file", file_id="file-1")],
        functions=[JobFunction(place="rewards[0]", entity_id="rw-1")],
        problems=[Problem(place="suffix", message="longer than 64 letters")],
    )
    with pytest.raises(ConfigError) as refused:
        jobs.submit(services, HERE, wrong, request={})
    assert [problem.place for problem in refused.value.problems] == ["suffix", "training_file", "rewards[0]"]
    with pytest.raises(ModelError, match="there is no model 'gpt-9'"):
        jobs.submit(services, HERE, new_job(services, model="gpt-9"), request={})
    assert jobs.list_jobs(services, HERE, page_no=1, page_size=10) == ([], 0)
    assert list((services.settings.home / "jobs").glob("*")) == []


def test_an_evaluation_is_a_job_of_its_own_kind(services: Services) -> None:
    as_job = new_job(services)
    new = NewEvaluation(model="smollm2-135m", rows=as_job.training, functions=as_job.functions)
    made = evaluations.submit(services, HERE, new, request={})
    assert made.job.job_id.startswith("ev-")
    assert (made.settings.datasets, made.mean) == (["rows"], None)
    found, total = evaluations.list_evaluations(services, HERE, page_no=1, page_size=10)
    assert ([one.job.job_id for one in found], total) == ([made.job.job_id], 1)
    assert jobs.list_jobs(services, HERE, page_no=1, page_size=10) == ([], 0)
    learning = NewEvaluation(model="m", rows=(), functions=(), hyper_parameters={"learning_rate": 1e-5})
    with pytest.raises(ConfigError, match="has no effect where nothing is learned"):
        evaluations.submit(services, HERE, learning, request={})


def test_a_workspace_sees_nothing_of_another(services: Services) -> None:
    job_id = jobs.submit(services, HERE, new_job(services), request={}).job.job_id
    file_id = files.list_files(services, HERE, page_no=1, page_size=10)[0][0].file_id
    entity_id = functions.list_functions(services, HERE)[0][0].entity_id
    assert jobs.list_jobs(services, ELSEWHERE, page_no=1, page_size=10) == ([], 0)
    assert files.list_files(services, ELSEWHERE, page_no=1, page_size=10) == ([], 0)
    assert functions.list_functions(services, ELSEWHERE) == ([], [])
    for look in (
        lambda: jobs.get(services, ELSEWHERE, job_id),
        lambda: jobs.cancel(services, ELSEWHERE, job_id),
        lambda: files.get(services, ELSEWHERE, file_id),
        lambda: files.delete(services, ELSEWHERE, file_id),
        lambda: functions.get(services, ELSEWHERE, entity_id),
        lambda: functions.forget(services, ELSEWHERE, entity_id),
        lambda: models.publish(services, ELSEWHERE, job_id, "last", "mine"),
    ):
        with pytest.raises(MissingError):
            look()


def test_an_upload_holds_for_its_key_alone_and_not_for_ever(services: Services) -> None:
    expires, signature = functions.sign_upload(services, "default", "mine")
    assert 0 < expires - datetime.now(UTC).timestamp() <= services.settings.limits.upload_url_s
    functions.check_upload(services, "default", "mine", expires=str(expires), signature=signature)
    for workspace, key, until in (
        ("other", "mine", expires),
        ("default", "yours", expires),
        ("default", "mine", expires + 1),
    ):
        with pytest.raises(Exception, match="expired or was not made by this server"):
            functions.check_upload(services, workspace, key, expires=str(until), signature=signature)
    with pytest.raises(RequestError, match="is invalid"):
        functions.sign_upload(services, "default", "../mine")


def test_services_load_no_web_framework() -> None:
    code = (
        "import sys; from strop.service import deployments, evaluations, files, functions, jobs, models\n"
        "print(sorted(name for name in ('fastapi', 'torch') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
