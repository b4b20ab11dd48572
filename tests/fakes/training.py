"""A job file -> trained in the process of the test: `strop run` but for the processes around it.

`from fakes.training import train_job`. For tests whose subject is the training; torch is loaded already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from strop.cli.run_folder import find_resumed
from strop.cli.training_here import summary, train_here
from strop.config.loading import load_job


def train_job(
    job: Path, *, out: Path | None = None, resume: Path | None = None, **changes: Any
) -> dict[str, Any]:
    """What `strop run --json` prints; `changes` are those of `--set`."""
    config = load_job(job, changes)
    resumed = find_resumed(str(resume), out) if resume is not None else None
    result, session = train_here(config, Console(quiet=True), out=out, resumed=resumed)
    return summary(session.config, session.job_id, result, published_as=session.published_as)
