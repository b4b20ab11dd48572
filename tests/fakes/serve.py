"""`python -m fakes.serve HOME`: a control plane with a trainer that needs no model, in a process of its own.

Prints its address and the first key as JSON; ends at the end of its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fakes.replicas import Barracks
from fakes.server import serving


def main(home: Path) -> None:
    with serving(home, max_running_jobs=2, make_replica=Barracks().make) as server:
        print(json.dumps({"url": server.url, "key": server.key}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
