"""Typed input -> request body, and HTTP reply -> what came of the call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import responses
from typing import Any, cast

from pydantic import ValidationError

from strop.functions import validation_text
from strop.schema.function import (
    OUTPUT_OF,
    FunctionInput,
    FunctionOutput,
    FunctionType,
    GroupRewardInput,
    GroupRewardOutput,
    RolloutInput,
    TaskStatus,
)
from strop.schema.reply import FunctionReply
from strop.tracing.ids import traceparent_of
from strop.workers.jsonable import jsonable


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP reply, read to its end."""

    status: int
    content: bytes


def request_body(payload: FunctionInput) -> bytes:
    """Dump an input with the API key in clear, which a plain dump masks.

    Raises:
        ValueError: something in it that JSON cannot hold, NaN and infinity included.
    """
    values = jsonable(payload)
    key = api_key(payload)
    if key is not None:
        values["model_resource"]["api_key"] = key
    return json.dumps(values, allow_nan=False).encode()


def trace_headers(payload: FunctionInput) -> dict[str, str]:
    """Which trace the call belongs to: that of its attempt at a rollout."""
    ids = payload.request_metadata
    if ids is None:
        return {}
    return {"traceparent": traceparent_of(ids.job_id, ids.rollout_id, ids.attempt_id)}


def api_key(payload: FunctionInput) -> str | None:
    """The secret of an input, where it has one."""
    return payload.model_resource.api_key.get_secret_value() if isinstance(payload, RolloutInput) else None


def output_reply(name: str, payload: FunctionInput, content: bytes) -> FunctionReply:
    """Read a 200: a valid output, a failure that the function itself reported, or an invalid output."""
    func_type = payload.func_type
    try:
        output = OUTPUT_OF[func_type].model_validate_json(content)
    except ValidationError as error:
        text = validation_text(error, show_values=True)
        return _invalid(f"{func_type} function {name!r} returned no valid output: {text}")
    if output.status is TaskStatus.FAILED:
        return _failed(name, func_type, output)
    if isinstance(payload, GroupRewardInput) and isinstance(output, GroupRewardOutput):
        num_rewards, num_outputs = len(output.reward.rewards), len(payload.agent_outputs)
        if num_rewards != num_outputs:
            counts = f"{num_rewards} rewards for {num_outputs} agent outputs"
            return _invalid(f"{func_type} function {name!r} returned {counts}")
    return FunctionReply(output=output)


def error_reply(name: str, answer: Answer) -> FunctionReply:
    """Read anything but a 200 or a 503."""
    body = _error_body(answer)
    text = str(body.get("message") or body.get("detail") or responses.get(answer.status, ""))
    if answer.status in (400, 413, 422):
        return FunctionReply(error=f"function {name!r} refused its input: {text}", error_code="invalid_input")
    code = body.get("error_code")
    if isinstance(code, str):
        return FunctionReply(error=text, error_code=code)
    return FunctionReply(
        error=f"function {name!r} answered HTTP {answer.status}: {text}", error_code="unreachable"
    )


def says_stuck(answer: Answer) -> bool:
    """Whether the worker reports that code of this call still runs in it."""
    return answer.status == 504 and bool(_error_body(answer).get("stuck"))


def is_ours(answer: Answer) -> bool:
    """Whether an answer other than 200 is one that a sound worker gives; code of a function may have broken
    the libraries that its process shares with it."""
    body = _error_body(answer)
    return "error_code" in body or (answer.status in (400, 413, 422) and "detail" in body)


def _error_body(answer: Answer) -> dict[str, Any]:
    try:
        body: Any = json.loads(answer.content)
    except ValueError:
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _failed(name: str, func_type: FunctionType, output: FunctionOutput) -> FunctionReply:
    # GroupRewardOutput declares no error_code; one that was set comes as an extra field.
    code: Any = getattr(output, "error_code", None)
    return FunctionReply(
        output=output,
        error=output.error or f"{func_type} function {name!r} returned status failed without an error text",
        error_code=str(code) if code else "failed",
    )


def _invalid(text: str) -> FunctionReply:
    return FunctionReply(error=text, error_code="invalid_output")
