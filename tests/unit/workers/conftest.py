"""An executor around a processor that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strop.functions import AbstractProcessor
from strop.workers.executor import Executor
from strop.workers.spec import WorkerSpec


@pytest.fixture
def executor_of(tmp_path: Path) -> Callable[..., Executor]:
    def make(
        processor: AbstractProcessor[Any, Any], *, timeout_s: float = 5.0, concurrency: int = 4
    ) -> Executor:
        spec = WorkerSpec(
            name="f",
            classpath="f.py:F",
            root=tmp_path,
            timeout_s=timeout_s,
            concurrency=concurrency,
        )
        return Executor(spec, processor)

    return make
