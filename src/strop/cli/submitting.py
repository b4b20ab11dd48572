"""A job file -> a job of a server, with words on the way. For `strop jobs submit` and `strop run --server`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from strop.client import Client
    from strop.schema.shown import JobInfo


def submit_file(client: Client, path: Path, settings: list[str], console: Console) -> JobInfo:
    """Check everything here, then send.

    Raises:
        ConfigError, DataError: what is wrong, before anything was sent. RequestError: the server refused.
    """
    from strop.cli.run import overrides
    from strop.client import submission
    from strop.client.tuning import read_tuning

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    tuning, workspace = read_tuning(path, {}, settings=overrides(settings))
    return client.run(submission.run(tuning, workspace, say))
