"""A function from request to answer -> an OpenAI chat endpoint on 127.0.0.1, in threads of this process.

The standard library's server: tests of functions should need nothing that a function does not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from strop.functions.testing.said import Refusal, chunks
from strop.schema.function import ModelResource

Reply = dict[str, Any] | Refusal
"""The body of a chat completion, or an error."""

KEY = "scripted-model-key"


class Endpoint:
    """Serves while it is open. `requests` are the bodies that came, in order.

    Concurrency:
        Answers any number of calls at once; `answer` is called by one at a time.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Reply], *, model_name: str) -> None:
        self._answer = answer
        self.model_name = model_name
        self.requests: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def open(self) -> Self:
        """Begin to listen, on a free port."""
        endpoint = self

        class Handler(_Handler):
            def reply_to(self, request: dict[str, Any]) -> Reply:
                return endpoint._reply_to(request)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def close(self) -> None:
        """Stop. Harmless when done twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """Where an OpenAI client finds it."""
        if self._server is None:
            raise RuntimeError("the endpoint is not open; use it in a with block")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def resource(self) -> ModelResource:
        """What a rollout gets as `model_resource`."""
        return ModelResource.model_validate(
            {"model_name": self.model_name, "base_url": self.base_url, "api_key": KEY}
        )

    def _reply_to(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            self.requests.append(request)
            return self._answer(request)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def reply_to(self, request: dict[str, Any]) -> Reply:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._send(404, {"error": {"message": "only POST /v1/chat/completions is served", "code": 404}})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.path.endswith("/chat/completions"):
            self.do_GET()
            return
        try:
            request: object = json.loads(content)
        except ValueError as error:
            self._send(400, {"error": {"message": f"not JSON: {error}", "code": 400}})
            return
        if not isinstance(request, dict):
            self._send(400, {"error": {"message": "expected an object", "code": 400}})
            return
        asked = cast("dict[str, Any]", request)
        reply = self.reply_to(asked)
        if isinstance(reply, Refusal):
            more = {} if reply.retry_after_s is None else {"retry-after": f"{reply.retry_after_s:g}"}
            self._send(reply.status, {"error": {"message": reply.message, "code": reply.status}}, **more)
        elif asked.get("stream"):
            self._stream(reply)
        else:
            self._send(200, reply)

    def _send(self, status: int, body: dict[str, Any], **headers: str) -> None:
        self._write(status, "application/json", json.dumps(body, ensure_ascii=False).encode(), headers)

    def _stream(self, body: dict[str, Any]) -> None:
        lines = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks(body)]
        self._write(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode(), {})

    def _write(self, status: int, kind: str, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Tests say for themselves what they asked."""
