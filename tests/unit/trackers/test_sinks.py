"""Each tracker's own library reads back what a small run handed to it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.server import eventually
from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig
from strop.trackers.sink import TrackedRun, open_sink

STEPS = {
    1: {"critic/rewards/mean": 0.25, "validation/data/reward/mean@1": 0.5},
    2: {"critic/rewards/mean": 0.75, "trace/reward/格式/avg": 1.0},
}


@pytest.fixture
def run(tmp_path: Path) -> TrackedRun:
    config = {
        "training": {"hyper_parameters": {"algorithm": "gspo", "learning_rate": 2e-6, "lora_rank": None}},
        "functions": [{"name": "agent", "runtime": {"env": {"KEY": "***"}}}],
        "origins": {"name": "job.yaml:1"},
    }
    return TrackedRun(job_id="ft-1", name="calculator", folder=tmp_path, config=config)


def feed(run: TrackedRun, status: JobStatus | None = JobStatus.SUCCEEDED, **settings):
    sink = open_sink(TrackerConfig.model_validate(settings), run)
    for step, values in STEPS.items():
        sink.log(step, values)
    sink.close(status)
    return sink


def test_the_configuration_is_told_flat_and_without_what_is_not_set(run: TrackedRun):
    assert run.settings() == {
        "training.hyper_parameters.algorithm": "gspo",
        "training.hyper_parameters.learning_rate": "2e-06",
        "functions.0.name": "agent",
        "functions.0.runtime.env.KEY": "***",
    }


def test_tensorboard_reads_every_value_and_the_configuration_from_the_runs_folder(run: TrackedRun):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = feed(run, type="tensorboard")
    assert sink.where == f"tensorboard --logdir {run.folder / 'tensorboard'}"
    found = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    scalars = {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars == {
        "critic/rewards/mean": [(1, 0.25), (2, 0.75)],
        "validation/data/reward/mean@1": [(1, 0.5)],
        "trace/reward/格式/avg": [(2, 1.0)],
    }
    told = found.Tensors("job")[0].tensor_proto.string_val[0].decode()
    assert '"algorithm": "gspo"' in told


@pytest.mark.filterwarnings("ignore::DeprecationWarning:sqlalchemy", "ignore:The ``noload``")
def test_mlflow_has_a_run_of_the_jobs_name_with_values_settings_and_its_end(run: TrackedRun):
    from mlflow import MlflowClient

    uri = f"sqlite:///{run.folder / 'mlflow.db'}"
    feed(run, type="mlflow", experiment="sums")
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("sums")
    assert experiment is not None
    [found] = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("calculator", "FINISHED")
    assert found.data.tags["strop.job_id"] == "ft-1"
    assert found.data.params["training.hyper_parameters.learning_rate"] == "2e-06"
    history = client.get_metric_history(found.info.run_id, "critic/rewards/mean")
    assert [(one.step, one.value) for one in history] == [(1, 0.25), (2, 0.75)]
    # MLflow takes no @ in a name.
    assert found.data.metrics["validation/data/reward/mean_1"] == 0.5
    assert found.data.metrics["trace/reward/格式/avg"] == 1.0
    # A job that goes on after a pause goes on in its run.
    feed(run, JobStatus.FAILED, type="mlflow", experiment="sums", tracking_uri=uri)
    [again] = client.search_runs([experiment.experiment_id])
    assert (again.info.run_id, again.info.status) == (found.info.run_id, "FAILED")


def kept_records(data: bytes) -> Iterator[bytes]:
    """The records of a `.wandb` file: after seven bytes of its own, LevelDB's log in blocks of 32 KiB."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if (left := 32_768 - at % 32_768) < 7:
            at += left
            continue
        length, kind = struct.unpack("<4xHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_weights_and_biases_offline_holds_the_run_until_it_is_synced(
    run: TrackedRun, monkeypatch: pytest.MonkeyPatch
):
    from wandb.proto import wandb_internal_pb2

    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    feed(run, type="wandb", mode="offline", project="sums", entity="team")
    [path] = run.folder.glob("wandb/offline-run-*/run-ft-1.wandb")

    def read():
        """All of it: its writer is a process of its own, which may be a moment behind."""
        found = [wandb_internal_pb2.Record.FromString(data) for data in kept_records(path.read_bytes())]
        return found if found and found[-1].WhichOneof("record_type") == "exit" else None

    records = eventually(read)
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in one.history.item}
        for one in records
        if one.WhichOneof("record_type") == "history"
    ]
    assert [
        {name: row[name] for name in (*STEPS[at], "step")} for at, row in zip((1, 2), rows, strict=True)
    ] == [
        {**STEPS[1], "step": 1},
        {**STEPS[2], "step": 2},
    ]
    [about] = [one.run for one in records if one.WhichOneof("record_type") == "run"]
    assert (about.run_id, about.project, about.entity, about.display_name) == (
        "ft-1",
        "sums",
        "team",
        "calculator",
    )


def test_prometheus_scrapes_the_newest_value_of_each_metric_until_the_run_has_ended(run: TrackedRun):
    sink = open_sink(TrackerConfig(type="prometheus", host="127.0.0.2", port=0), run)
    assert sink.where.startswith("http://127.0.0.2:")
    try:
        for step, values in STEPS.items():
            sink.log(step, values)
        text = httpx.get(sink.where).text
    finally:
        sink.close(JobStatus.SUCCEEDED)
    found = {
        (sample.name, sample.labels.get("metric")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["job_id"] == "ft-1"
    }
    assert found == {
        ("strop_job_metric", "critic/rewards/mean"): 0.75,
        ("strop_job_metric", "validation/data/reward/mean@1"): 0.5,
        ("strop_job_metric", "trace/reward/格式/avg"): 1.0,
        ("strop_job_step", None): 2.0,
    }
    with pytest.raises(httpx.ConnectError):
        httpx.get(sink.where)
