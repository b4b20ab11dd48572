"""A control plane of the test's own, and its clients."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.server import FUNCTIONS, ROWS, Server, json_lines, serving
from strop import Client
from strop.store.home import home

JOB = """
job_name: quick
model: smollm2-135m
tuned_model_name: tuned
datasets:
  - {type: training, file_name: rows/train.jsonl}
  - {type: validation, file_name: rows/validation.jsonl}
functions:
  - type: rollout
    name: agent
    timeout: 60
    fcmodel: {classpath: functions.Agent}
    runtime: {cpu: 2, env: {A: 1}}
  - {type: reward, name: score, weight: 0.8, fcmodel: {classpath: functions.py:Score}}
  - {type: group_reward, name: rank, weight: 0.2, fcmodel: {classpath: functions.py:Rank}}
training:
  hyper_parameters: {batch_size: 4, n_rollouts: 2, learning_rate: 1.0e-6, n_gpus_rollout: 8}
  resources: {mtu_spec_code: MTU4}
"""


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    """Nothing may go wrong unseen: what the server logs as an error fails the test."""
    with serving(home()) as made:
        yield made
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.key) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder: job, functions, rows, and things that are nobody's business."""
    folder = tmp_path / "project"
    (folder / "rows").mkdir(parents=True)
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "job.yaml").write_text(JOB)
    (folder / ".env.local").write_text("SECRET=1")
    (folder / "rows" / "train.jsonl").write_bytes(json_lines(ROWS))
    (folder / "rows" / "validation.jsonl").write_text(
        json.dumps({"messages": [{"role": "user", "content": "1 + 2?"}]}) + "\n"
    )
    return folder
