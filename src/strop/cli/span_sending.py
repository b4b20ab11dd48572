"""A job -> the environment by which its function workers send their spans to the server of this home."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import quote

from strop.errors import StoreError
from strop.service.secret import open_signer
from strop.service.span_access import job_token
from strop.store.home import SERVER_FILE, home
from strop.tracing.tracing import CONTENT_SWITCH, SWITCH

_FIXED = {
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "none",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3",
    # Soon, since a worker is killed when its job ends; bounded, since a dead receiver must cost no memory.
    "OTEL_BSP_SCHEDULE_DELAY": "500",
    "OTEL_BSP_EXPORT_TIMEOUT": "3000",
    "OTEL_BSP_MAX_QUEUE_SIZE": "2048",
}
_UNLESS_GIVEN = {
    SWITCH: "true",
    CONTENT_SWITCH: "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
}
"""The last two are what DashScope's own package wants before it writes messages."""


def span_environment(job_id: str) -> Mapping[str, str]:
    """Address, token and settings of OpenTelemetry for the job's workers; empty where no server listens.

    A function's `runtime.env` goes before all of it.
    """
    url = server_url()
    if url is None:
        return {}
    try:
        token = job_token(open_signer(home()), job_id)
    except StoreError:
        return {}
    return {
        **{key: value for key, value in _UNLESS_GIVEN.items() if key not in os.environ},
        **_FIXED,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"authorization={quote(f'Bearer {token}')}",
        "OTEL_RESOURCE_ATTRIBUTES": f"bailian.agentic_rl.job_id={job_id}",
    }


def server_url() -> str | None:
    """Where the server of this home listens, as it wrote down itself."""
    try:
        written = json.loads((home() / SERVER_FILE).read_text(encoding="utf-8"))
        return str(written["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
