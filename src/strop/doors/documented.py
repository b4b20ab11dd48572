"""What the OpenAPI document says of replies that no route names: failures, streams and plain text."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Responses = dict[int | str, dict[str, Any]]


class Failure(BaseModel):
    """A request that was not carried out. `message` names the place and the fix."""

    request_id: str
    code: str
    message: str


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIFailure(BaseModel):
    """A failure as OpenAI's clients read it."""

    error: OpenAIError


class FunctionFailure(BaseModel):
    """A call that a function instance did not answer; `Message` or `message` says why."""

    detail: str | None = None
    Message: str | None = None
    message: str | None = None
    error_code: str | None = None


FAILURES: Responses = {
    "4XX": {"model": Failure, "description": "The request is wrong, or comes at the wrong time"},
    "5XX": {
        "model": Failure,
        "description": "The server failed; its log has the reason under the request_id",
    },
}
OPENAI_FAILURES: Responses = {
    "4XX": {"model": OpenAIFailure, "description": "The call is wrong, or beyond a limit"},
    "5XX": {"model": OpenAIFailure, "description": "No replica answers"},
}
FUNCTION_FAILURES: Responses = {
    "4XX": {"model": FunctionFailure | Failure, "description": "The input is invalid, or the token is wrong"},
    "5XX": {"model": FunctionFailure | Failure, "description": "The function failed"},
}

EVENTS: Responses = {
    200: {
        "description": "Server-sent events",
        "content": {"text/event-stream": {"schema": {}}},
    }
}
ANSWER: Responses = {
    200: {
        "description": "A completion; with `stream`, server-sent events",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {}},
        },
    }
}
