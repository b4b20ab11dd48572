"""Values -> the JSON that DashScope's clients accept.

Success is always HTTP 200 with `request_id` and `output` (or `data`, for files), without a top-level `code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.responses import Response

from strop.doors.failures import json_reply, request_id
from strop.locales import accepted_language
from strop.schema.responses import without_nulls


def language_of(request: Request) -> str:
    """Of the sentences in an answer: what is noted of a job, and why it failed."""
    return accepted_language(request.headers.get("accept-language", ""))


def output(request: Request, value: Mapping[str, Any], *, key: str = "output") -> Response:
    """A success: `value` without its nulls under `output`, which is never null itself."""
    return json_reply({"request_id": request_id(request), key: without_nulls(value)}, 200)
