"""What went wrong with a call -> an HTTP status and an error body in OpenAI's form.

Clients decide by status and `code` what to do, so both are chosen here and nowhere else. A body never holds
a key, a stack trace or an echo of the request.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from strop.errors import EngineError, StropError
from strop.locales import msg

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)


class RequestRefused(StropError):
    """A call that gets an error instead of an answer. `param` names the field of the request at fault.

    Units:
        retry_after_s: seconds after which the same call may be answered; None says nothing.
    """

    boundary = "gateway"

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.http_status = status
        self.param = param
        self.code = code
        self.retry = retry
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.http_status >= 500 else "invalid_request_error"
        if self.http_status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """`x-should-retry` overrules what OpenAI's clients would do by status: they repeat a 409."""
        headers = {} if self.retry is None else {"x-should-retry": str(self.retry).lower()}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_s)))
        return headers


class ClientGone(Exception):
    """The client closed the connection before its answer was ready; nobody reads what we send."""


def attempt_ended(rollout_id: str, attempt_id: str) -> RequestRefused:
    return RequestRefused(
        msg(
            "attempt {attempt_id!r} of rollout {rollout_id!r} has ended; its calls are no longer answered",
            attempt_id=attempt_id,
            rollout_id=rollout_id,
        ),
        status=409,
        code="attempt_ended",
        retry=False,
    )


def unknown_attempt(rollout_id: str, attempt_id: str) -> RequestRefused:
    return RequestRefused(
        msg(
            "there is no attempt {attempt_id!r} of rollout {rollout_id!r}; use "
            "model_resource.base_url as it is",
            attempt_id=attempt_id,
            rollout_id=rollout_id,
        ),
        status=404,
        code="unknown_attempt",
    )


def unknown_url(request: Request, served: str, *, status: int) -> RequestRefused:
    """`served` says what there is; `status` is 404, or 405 for another method."""
    message = f"{request.method} {request.url.path}: not served here; there are {served} below the base_url"
    return RequestRefused(message, status=status, code="unknown_url")


def wrong_key() -> RequestRefused:
    return RequestRefused(
        msg(
            "this api_key does not open this attempt; use the api_key of the same "
            "model_resource as the base_url"
        ),
        status=401,
        code="invalid_api_key",
    )


def no_room(prompt_tokens: int, max_length: int) -> RequestRefused:
    return RequestRefused(
        msg(
            "This model's maximum context length is {max_length} tokens. However, your "
            "messages resulted in {prompt_tokens} tokens, which leaves no room for an "
            "answer. Reduce the length of the messages.",
            max_length=max_length,
            prompt_tokens=prompt_tokens,
        ),
        param="messages",
        code="context_length_exceeded",
    )


def refusal_of(error: Exception) -> RequestRefused:
    """The answer to a call that ended in `error`; a trace of what nobody foresaw goes to the log alone."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, EngineError):
        logger.warning("engine error during a call: %s", error)
        return RequestRefused(
            msg("the engine could not finish this call: {message}", message=error.message),
            status=500,
            code="engine_error",
        )
    logger.error("unexpected error during a call", exc_info=error)
    return RequestRefused(msg("internal error; the log has the details"), status=500)
