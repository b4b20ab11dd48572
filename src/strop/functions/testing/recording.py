"""A real model's answers -> a file, and the file -> the same answers again, without the model."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from strop.functions.testing.endpoint import Endpoint, Reply
from strop.functions.testing.said import Refusal

_UNIMPORTANT = ("model", "stream", "stream_options", "user", "metadata")
"""Of a request: what does not choose the answer."""


class Recording(Endpoint):
    """Answers from `file` what was asked before; asks `upstream` for the rest, where one is given.

    Equal requests get the answers that they got then, in that order. Commit the file beside the test: it then
    runs anywhere, and says so when the function asks for something else. Keys are not written to it.

    Side effects:
        Writes `file` after every new answer.
    """

    def __init__(
        self,
        file: Path,
        *,
        upstream: str | None = None,
        api_key: str = "",
        model_name: str = "recorded",
        timeout_s: float = 120.0,
    ) -> None:
        """`upstream` is the base URL of an OpenAI endpoint, as `https://host/v1`."""
        super().__init__(self._play, model_name=model_name)
        self._file = file
        self._upstream = upstream
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._kept: dict[str, list[dict[str, Any]]] = {}
        if file.is_file():
            self._kept = json.loads(file.read_text(encoding="utf-8"))
        self._num_played: Counter[str] = Counter()

    def _play(self, request: dict[str, Any]) -> Reply:
        key = _key(request)
        kept = self._kept.setdefault(key, [])
        number = self._num_played[key]
        self._num_played[key] += 1
        if number < len(kept):
            return kept[number]["reply"]
        if self._upstream is None:
            messages: list[dict[str, Any]] = request.get("messages") or [{}]
            last = messages[-1]
            told = f"{self._file.name} has no answer to {str(last.get('content'))[:200]!r}; record it anew"
            return Refusal(status=400, message=told)
        reply = self._asked(request)
        if not isinstance(reply, Refusal):
            kept.append({"request": request, "reply": reply})
            self._write()
        return reply

    def _asked(self, request: dict[str, Any]) -> Reply:
        body = {key: value for key, value in request.items() if key not in ("stream", "stream_options")}
        call = urllib.request.Request(
            f"{(self._upstream or '').rstrip('/')}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {self._api_key}"},
        )
        try:
            with urllib.request.urlopen(call, timeout=self._timeout_s) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Refusal(status=error.code, message=error.read().decode("utf-8", "replace")[:2000])
        except (OSError, ValueError) as error:
            return Refusal(status=502, message=f"{self._upstream}: {error}")

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_name(f".{self._file.name}.part")
        try:
            part.write_text(
                json.dumps(self._kept, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8"
            )
            os.replace(part, self._file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


def _key(request: dict[str, Any]) -> str:
    """Equal for requests that ask for the same."""
    asked = {key: value for key, value in request.items() if key not in _UNIMPORTANT}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]
