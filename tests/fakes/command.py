"""What the `strop` fixture of the end-to-end tests is: arguments -> the finished command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Strop = Callable[..., "subprocess.CompletedProcess[str]"]
