"""What came of one call of a user function."""

from __future__ import annotations

from dataclasses import dataclass

from strop.schema.function import FunctionOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReply:
    """Either an output, or an error with its text; never both missing.

    `error_code` is one of `exception`, `timeout`, `worker_lost`, `invalid_output`, `invalid_input`,
    `unreachable`, `busy`, or what the function itself set when it returned FAILED (`failed` if it set none).
    `latency_s` in seconds, waiting included; `attempts` counts HTTP requests: none where the
    queue was full.
    """

    output: FunctionOutput | None = None
    error: str | None = None
    error_code: str | None = None
    latency_s: float = 0.0
    attempts: int = 1

    @property
    def ok(self) -> bool:
        return self.output is not None and self.error is None
