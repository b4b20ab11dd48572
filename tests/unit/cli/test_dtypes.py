"""A job that leaves its precisions open gets those that the processor is fast at, and the record says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from strop.cli.checking import with_dtypes
from strop.config.loading import load_job

EXAMPLES = Path(__file__).parents[3] / "examples"
TRAIN, SAMPLING = (f"training.hyper_parameters.{name}" for name in ("train_dtype", "sampling_dtype"))


@pytest.mark.parametrize(("fast", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_what_is_auto_is_what_the_processor_is_fast_at(
    fast: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strop.cli.checking.has_fast_bfloat16", lambda: fast)
    job = with_dtypes(load_job(EXAMPLES / "calculator" / "job.yaml", {"model": "smollm2-135m"}))
    assert (job.hyper_parameters.train_dtype, job.hyper_parameters.sampling_dtype) == (dtype, dtype)
    assert (job.origins[TRAIN], job.origins[SAMPLING]) == ("this machine", "this machine")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("asked", ["float32", "bfloat16"])
def test_what_is_asked_for_stays(fast: bool, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strop.cli.checking.has_fast_bfloat16", lambda: fast)
    changes = {"train_dtype": asked, "sampling_dtype": asked}
    job = with_dtypes(load_job(EXAMPLES / "calculator" / "job.yaml", changes))
    assert (job.hyper_parameters.train_dtype, job.hyper_parameters.sampling_dtype) == (asked, asked)
    assert job.origins[TRAIN] == job.origins[SAMPLING] == "override"
