"""Answers written down beforehand -> a model that gives them, over the OpenAI API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from strop.functions.testing.endpoint import Endpoint, Reply
from strop.functions.testing.said import Refusal, Said, completion

Line = str | Said | Refusal
Script = Iterable[Line] | Callable[[dict[str, Any]], Line]


class ScriptedModel(Endpoint):
    """Says what its script says: a list of answers, one a call, or a function of the request.

    Calls beyond the script are refused with 400, which no client tries again.

    >>> with ScriptedModel(["4"]) as model:
    ...     model.base_url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, script: Script, *, model_name: str = "scripted") -> None:
        super().__init__(self._say, model_name=model_name)
        self._ask = script if callable(script) else None
        self._lines = [] if callable(script) else list(script)
        self._num_asked = 0

    @property
    def num_left(self) -> int:
        """Answers of a list that nobody has asked for."""
        return max(0, len(self._lines) - self._num_asked)

    def _say(self, request: dict[str, Any]) -> Reply:
        number = self._num_asked
        self._num_asked += 1
        if self._ask is not None:
            line = self._ask(request)
        elif number < len(self._lines):
            line = self._lines[number]
        else:
            told = f"the script has {len(self._lines)} answers, and this is call {number + 1}"
            return Refusal(status=400, message=told)
        if isinstance(line, Refusal):
            return line
        said = Said(text=line) if isinstance(line, str) else line
        return completion(said, number=number, model=str(request.get("model") or self.model_name))
