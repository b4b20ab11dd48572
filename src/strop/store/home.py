"""Environment -> the folder where Strop keeps what is its own: database, models, checkpoints.

The one place that reads `STROP_HOME`; everybody else asks here.
"""

from __future__ import annotations

import os
from pathlib import Path

SERVER_FILE = "server.json"
"""Written there by the server that runs: its `url`, its `pid`, and which `process` that is."""

KEY_FILE = "api_key"
"""The first key of that server."""


def home() -> Path:
    """`STROP_HOME`, else `~/.strop`, as an absolute path. Not created: whatever writes there creates it."""
    return Path(os.environ.get("STROP_HOME") or "~/.strop").expanduser().absolute()
