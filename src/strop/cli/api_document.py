"""The app -> `docs/api/openapi.json`: `python -m strop.cli.api_document PATH`. `make docs` writes it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from strop.cli.checking import PipelineFlow
from strop.doors.app import create_app
from strop.service.settings import Settings


def api_document() -> str:
    """The OpenAPI document as JSON. Its version is the path's, `v1`, and not the program's."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = Settings(
            home=home, database_url=f"sqlite:///{home / 'strop.db'}", storage_url=str(home / "blobs")
        )
        app = create_app(settings, PipelineFlow())
        document: dict[str, Any] = app.openapi()
        app.state.services.database.close()
    document["info"]["version"] = "1"
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(api_document(), encoding="utf-8")
