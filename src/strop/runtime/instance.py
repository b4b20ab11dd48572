"""One function's calls -> its live worker: replaced when it is lost or stuck, while calls go on.

Failure is data here: `call` never raises for what user code did. A call runs at most once: it is sent again
only when the worker surely did not take it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace

import aiohttp

from strop.errors import FunctionError
from strop.runtime.masking import Mask
from strop.runtime.process import OnLine, WorkerProcess
from strop.runtime.quarantine import Quarantine
from strop.runtime.spec import WorkerSpec
from strop.runtime.wire import (
    Answer,
    api_key,
    error_reply,
    output_reply,
    request_body,
    says_stuck,
    trace_headers,
)
from strop.schema.function import INPUT_OF, FunctionInput, FunctionType
from strop.schema.reply import FunctionReply

_MAX_STARTS = 3
"""Starts in a row that may fail before calls are answered `worker_lost` at once."""
_COOL_DOWN_S = 30.0
"""After that, the first call past this time tries a start again."""
_MIN_RESTART_LIMIT_S = 30.0
_RESTART_FACTOR = 10.0
_MAX_REFUSALS = 3
_FIRST_DELAY_S = 0.05
_MAX_BACKOFF_S = 5.0
_EXIT_NOTICE_S = 5.0
_MAX_ERROR_CHARS = 16_000


def new_client() -> aiohttp.ClientSession:
    """The HTTP client that instances share. They keep the deadlines; proxies are not for 127.0.0.1.

    aiohttp, because a call through httpx looks at every open connection: 20 ms each with 64 in flight.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=600)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)


class Instance:
    """The running worker of one function, and those that it replaced and that still finish calls."""

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        job_id: str,
        client: aiohttp.ClientSession,
        on_line: OnLine,
        grace_s: float,
        start_limit_s: float,
        alone: bool = False,
    ) -> None:
        """`alone`: it is a ward itself, in which lost calls are tried again, and has none."""
        self.spec = spec
        self._job_id = job_id
        self._client = client
        self._on_line = on_line
        self._grace_s = grace_s
        self._start_limit_s = start_limit_s
        self._mask = Mask(spec.env.values())
        self._places = asyncio.Semaphore(spec.concurrency)
        self._workers: set[WorkerProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[WorkerProcess] | None = None
        self._func_type = spec.func_type
        self._num_losses = 0
        self._gave_up_at: float | None = None
        self._closing = False
        self._quarantine = None if alone else Quarantine(self._ward)

    async def start(self) -> FunctionType:
        """Start the first worker. Returns the type of the class it found.

        Raises:
            FunctionError: it could not start; with the user's traceback, or what else there is to know.
        """
        self._serving = _background(self._spawn())
        began = asyncio.get_running_loop().time()
        self._func_type = (await asyncio.shield(self._serving)).func_type
        took_s = asyncio.get_running_loop().time() - began
        # A replacement is waited for by calls: what once took a second must not be given ten minutes.
        usual_s = max(_MIN_RESTART_LIMIT_S, _RESTART_FACTOR * took_s)
        self._start_limit_s = min(self._start_limit_s, usual_s)
        return self._func_type

    async def call(self, payload: FunctionInput) -> FunctionReply:
        """Send one call and say what came of it.

        Units:
            `timeout_s` of the spec counts from when a place is free; a call may have waited before that.
        Concurrency:
            At most `concurrency` calls are in flight, the others wait in order. Cancelling this cancels an
            async `process`.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        secret = api_key(payload)
        with self._mask.hiding(*([secret] if secret else [])):
            reply = await self._call(payload)
            error = self._mask(reply.error)[:_MAX_ERROR_CHARS] if reply.error is not None else None
        return replace(reply, error=error, latency_s=loop.time() - began)

    async def close(self) -> None:
        """Kill all workers; calls in flight are answered `worker_lost`."""
        self._closing = True
        if self._quarantine is not None:
            await self._quarantine.close()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in list(self._workers)))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, payload: FunctionInput) -> FunctionReply:
        if payload.func_type is not self._func_type or not isinstance(payload, INPUT_OF[payload.func_type]):
            text = f"is a {self._func_type} function; the input is a {type(payload).__name__}"
            error = f"function {self.spec.name!r} {text} of func_type {payload.func_type}"
            return FunctionReply(error=error, error_code="invalid_input")
        try:
            body = request_body(payload)
        except (ValueError, TypeError, RecursionError) as error:
            text = f"function {self.spec.name!r}: its input cannot be sent as JSON: {error}"
            return FunctionReply(error=text, error_code="invalid_input")
        if self._quarantine is not None and self._quarantine.holds(payload):
            return await self._quarantine.call(payload)
        async with self._places:
            return await self._send_until_taken(payload, body)

    def _ward(self) -> Instance:
        """Another worker of the same function, for one call at a time; starts in the background."""
        ward = Instance(
            replace(self.spec, concurrency=1),
            job_id=self._job_id,
            client=self._client,
            on_line=self._on_line,
            grace_s=self._grace_s,
            start_limit_s=self._start_limit_s,
            alone=True,
        )
        ward._func_type = self._func_type
        ward._serving = _background(ward._respawn())
        return ward

    def _lost(self, payload: FunctionInput) -> None:
        if self._quarantine is not None:
            self._quarantine.suspect(payload)

    async def _send_until_taken(self, payload: FunctionInput, body: bytes) -> FunctionReply:
        loop = asyncio.get_running_loop()
        stop_waiting = loop.time() + self.spec.timeout_s
        delay = _FIRST_DELAY_S
        num_sends = num_refused = 0
        while True:
            try:
                worker = await self._worker()
            except FunctionError as error:
                return FunctionReply(error=str(error), error_code="worker_lost", attempts=max(1, num_sends))
            num_sends += 1
            reply = await self._send(worker, payload, body)
            if reply is None:
                num_refused += 1
                if num_refused == _MAX_REFUSALS:
                    text = f"function {self.spec.name!r} refused {num_refused} connections"
                    return FunctionReply(error=text, error_code="unreachable", attempts=num_sends)
            elif reply.error_code == "busy" and loop.time() + delay < stop_waiting:
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)
            else:
                return replace(reply, attempts=num_sends)

    async def _send(self, worker: WorkerProcess, payload: FunctionInput, body: bytes) -> FunctionReply | None:
        """One request; None when the worker surely did not take it."""
        name = self.spec.name
        headers = {
            "authorization": f"Bearer {worker.token}",
            "content-type": "application/json",
            **trace_headers(payload),
        }
        url = f"http://127.0.0.1:{worker.port}/api/v1"
        worker.take()
        try:
            async with asyncio.timeout(self.spec.timeout_s + self._grace_s):
                async with self._client.post(url, data=body, headers=headers) as response:
                    answer = Answer(status=response.status, content=await response.read())
        except TimeoutError:
            self._retire(worker)
            self._lost(payload)
            text = f"did not answer within its timeout of {self.spec.timeout_s:g} s; it blocks its process"
            return FunctionReply(error=f"{payload.func_type} function {name!r} {text}", error_code="timeout")
        except (aiohttp.ClientError, OSError) as error:
            return await self._transport_failure(worker, payload, error)
        finally:
            worker.release()
        if answer.status == 200:
            self._num_losses = 0
            return output_reply(name, payload, answer.content)
        if answer.status == 503:
            return FunctionReply(error=f"function {name!r} is busy: its queue is full", error_code="busy")
        if says_stuck(answer):
            self._retire(worker)
        return error_reply(name, answer)

    async def _transport_failure(
        self, worker: WorkerProcess, payload: FunctionInput, error: aiohttp.ClientError | OSError
    ) -> FunctionReply | None:
        """A broken connection means a lost worker, once its end was seen; a refused one was not taken."""
        try:
            async with asyncio.timeout(_EXIT_NOTICE_S):
                await worker.exited.wait()
        except TimeoutError:
            text = f"the connection to function {self.spec.name!r} broke: {type(error).__name__}: {error}"
            return FunctionReply(error=text, error_code="unreachable")
        if isinstance(error, aiohttp.ClientConnectorError):
            return None
        self._lost(payload)
        return FunctionReply(error=worker.exit_text(), error_code="worker_lost")

    async def _worker(self) -> WorkerProcess:
        """The worker that takes new calls; waits for one that is starting.

        Raises:
            FunctionError: there is none and none is coming.
        """
        if self._closing or self._serving is None:
            raise FunctionError(f"function {self.spec.name!r} is not running")
        now = asyncio.get_running_loop().time()
        if self._gave_up_at is not None and now - self._gave_up_at > _COOL_DOWN_S:
            self._gave_up_at = None
            self._serving = _background(self._respawn())
        serving = self._serving
        try:
            return await asyncio.shield(serving)
        except asyncio.CancelledError:
            if serving.cancelled():
                raise FunctionError(f"function {self.spec.name!r} was closed") from None
            raise

    async def _spawn(self) -> WorkerProcess:
        worker = WorkerProcess(self.spec, job_id=self._job_id, mask=self._mask, on_line=self._on_line)
        await worker.start(limit_s=self._start_limit_s, on_stuck=lambda: self._retire(worker))
        self._workers.add(worker)
        self._follow(self._after_exit(worker))
        return worker

    async def _respawn(self) -> WorkerProcess:
        """Start again, later after every loss; give up after `_MAX_STARTS` starts that failed."""
        failure: FunctionError | None = None
        for attempt in range(_MAX_STARTS):
            await asyncio.sleep(_backoff(self._num_losses + attempt))
            try:
                return await self._spawn()
            except FunctionError as error:
                failure = error
        self._gave_up_at = asyncio.get_running_loop().time()
        text = f"failed to start again {_MAX_STARTS} times in a row; the last time: {failure}"
        raise FunctionError(f"function {self.spec.name!r} {text}")

    async def _after_exit(self, worker: WorkerProcess) -> None:
        await worker.exited.wait()
        self._workers.discard(worker)
        if not worker.draining and not self._closing:
            worker.draining = True
            self._num_losses += 1
            self._serving = _background(self._respawn())

    def _retire(self, worker: WorkerProcess) -> None:
        """Send no more calls to `worker`; kill it when those it has are answered or out of time."""
        if worker.draining or self._closing or worker.exited.is_set():
            return
        worker.draining = True
        self._serving = _background(self._respawn())
        self._follow(self._kill_when_idle(worker))

    async def _kill_when_idle(self, worker: WorkerProcess) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(worker.idle.wait(), self.spec.timeout_s + self._grace_s)
        await worker.kill()

    def _follow(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _backoff(num_losses: int) -> float:
    """0 s before the first replacement, then 0.1, 0.2, 0.4 ... s."""
    return min(0.1 * 2.0 ** (num_losses - 2), _MAX_BACKOFF_S) if num_losses > 1 else 0.0


def _background(work: Coroutine[None, None, WorkerProcess]) -> asyncio.Task[WorkerProcess]:
    task = asyncio.create_task(work)
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: asyncio.Task[WorkerProcess]) -> None:
    """Calls take its exception from it; when there is no call, nobody has to."""
    if not task.cancelled():
        task.exception()
