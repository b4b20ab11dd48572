"""One function's calls -> a pool of workers that answer them, whatever becomes of single workers.

Failure is data here: `call` never raises for what user code did. A call runs at most once: it is sent again
only when the worker certainly did not take it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import aiohttp

from strop.errors import FunctionError
from strop.schema.function import INPUT_OF, FunctionInput, FunctionType
from strop.schema.reply import FunctionReply
from strop.workers.call_spans import CallSpans, Sink
from strop.workers.gauges import Gauges, Reading
from strop.workers.masking import Mask
from strop.workers.process import OnLine, WorkerProcess
from strop.workers.quarantine import Quarantine
from strop.workers.size import PoolSize
from strop.workers.spec import WorkerSpec
from strop.workers.wire import (
    Answer,
    api_key,
    error_reply,
    is_ours,
    output_reply,
    request_body,
    says_stuck,
    trace_headers,
)
from strop.workers.worker_pool import WorkerPool

_MAX_REFUSALS = 3
_FIRST_DELAY_S = 0.05
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
    """The running workers of one function.

    Concurrency:
        Belongs to one event loop.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        job_id: str,
        client: aiohttp.ClientSession,
        on_line: OnLine,
        grace_s: float,
        start_limit_s: float,
        size: PoolSize | None = None,
        alone: bool = False,
        on_spans: Sink | None = None,
    ) -> None:
        """`alone`: it is itself the isolated worker in which lost calls are tried again. `on_spans` takes the
        spans of the calls, where the function makes none itself."""
        self.spec = spec
        self._job_id = job_id
        self._client = client
        self._on_line = on_line
        self._grace_s = grace_s
        self._start_limit_s = start_limit_s
        self._mask = Mask(spec.env.values())
        self._func_type = spec.func_type
        self._gauges = Gauges()
        self._on_spans = on_spans
        self._spans: CallSpans | None = None
        size = replace(size or PoolSize(), concurrency=spec.concurrency)
        self._pool = WorkerPool(
            spec.name,
            self._worker,
            size,
            self._gauges,
            start_limit_s=start_limit_s,
            drain_s=spec.timeout_s + grace_s,
            memory_size=spec.limits.memory_size,
        )
        self._quarantine = None if alone else Quarantine(self._isolated_worker)

    async def start(self) -> FunctionType:
        """Start the first worker; the others follow. Returns the type of the class it found.

        Raises:
            FunctionError: it could not start; with the user's traceback, or what else there is to know.
        """
        first = await self._pool.start()
        self._func_type = first.func_type
        if self._on_spans is not None and first.untraced:
            preset = self.spec.classpath.startswith("strop.")
            self._spans = CallSpans(self.spec.name if preset else first.class_name, self._on_spans)
        return self._func_type

    async def call(self, payload: FunctionInput) -> FunctionReply:
        """Send one call and return what came of it; `busy` when too many wait already.

        Units:
            `timeout_s` of the spec counts from when a place is free; a call may have waited before that.
        Concurrency:
            At most `concurrency` calls are in flight in a worker, the others wait in order. Cancelling this
            cancels an async `process`.
        """
        loop = asyncio.get_running_loop()
        began, began_ns = loop.time(), time.time_ns()
        secret = api_key(payload)
        with self._mask.hiding(*([secret] if secret else [])):
            reply = await self._call(payload)
            error = self._mask(reply.error)[:_MAX_ERROR_CHARS] if reply.error is not None else None
        reply = replace(reply, error=error, latency_s=loop.time() - began)
        self._gauges.count(reply)
        if self._spans is not None and reply.attempts:
            self._spans.put(payload, reply, start_ns=began_ns, duration_ns=int(reply.latency_s * 1e9))
        return reply

    async def restart(self, spec: WorkerSpec | None = None) -> None:
        """Replace every worker by a new one, of `spec` where one is given; calls are served meanwhile.

        Raises:
            FunctionError: a new worker does not start; workers that were not replaced yet keep running.
        """
        before = self.spec
        self.spec = spec or before
        try:
            await self._pool.restart()
        except BaseException:
            self.spec = before
            raise

    def reading(self) -> Reading:
        """Its state now."""
        pool, gauges = self._pool, self._gauges
        load = pool.load()
        return Reading(
            workers=len(pool.workers),
            starting=pool.num_starting,
            busy=load.num_busy,
            queue=load.num_waiting,
            calls=gauges.num_calls,
            cold_starts=gauges.num_cold_starts,
            starts=gauges.num_starts,
            losses=gauges.num_losses,
            p50_s=gauges.percentile(0.5),
            p95_s=gauges.percentile(0.95),
            memory_bytes=sum(worker.memory_bytes for worker in pool.workers),
            errors=dict(gauges.errors),
        )

    async def close(self) -> None:
        """Kill all workers; calls in flight are answered `worker_lost`."""
        if self._quarantine is not None:
            await self._quarantine.close()
        await self._pool.close()

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
        if self._pool.num_waiting >= self._pool.size.queue:
            return replace(_busy(self.spec.name), attempts=0)
        return await self._send_until_taken(payload, body)

    def _isolated_worker(self) -> Instance:
        """Another worker of the same function, for one call at a time; starts in the background."""
        worker = Instance(
            replace(self.spec, concurrency=1),
            job_id=self._job_id,
            client=self._client,
            on_line=self._on_line,
            grace_s=self._grace_s,
            start_limit_s=self._start_limit_s,
            alone=True,
        )
        worker._func_type = self._func_type
        return worker

    def _lost(self, payload: FunctionInput) -> None:
        if self._quarantine is not None:
            self._quarantine.suspect(payload)

    async def _send_until_taken(self, payload: FunctionInput, body: bytes) -> FunctionReply:
        loop = asyncio.get_running_loop()
        stop_waiting: float | None = None
        delay = _FIRST_DELAY_S
        num_sends = num_refused = 0
        while True:
            try:
                worker = await self._pool.take()
            except FunctionError as error:
                return FunctionReply(error=str(error), error_code="worker_lost", attempts=max(1, num_sends))
            stop_waiting = stop_waiting or loop.time() + self.spec.timeout_s
            num_sends += 1
            try:
                reply = await self._send(worker, payload, body)
            finally:
                self._pool.give_back(worker)
            if reply is None:
                num_refused += 1
                if num_refused == _MAX_REFUSALS:
                    text = f"function {self.spec.name!r} refused {num_refused} connections"
                    return FunctionReply(error=text, error_code="unreachable", attempts=num_sends)
            elif reply.output is None and reply.error_code == "busy" and loop.time() + delay < stop_waiting:
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)
            else:
                return replace(reply, attempts=num_sends)

    async def _send(self, worker: WorkerProcess, payload: FunctionInput, body: bytes) -> FunctionReply | None:
        """One request; None when the worker certainly did not take it."""
        name = self.spec.name
        headers = {
            "authorization": f"Bearer {worker.token}",
            "content-type": "application/json",
            **trace_headers(payload),
        }
        url = f"http://127.0.0.1:{worker.port}/api/v1"
        try:
            async with asyncio.timeout(self.spec.timeout_s + self._grace_s):
                async with self._client.post(url, data=body, headers=headers) as response:
                    answer = Answer(status=response.status, content=await response.read())
        except TimeoutError:
            self._pool.retire(worker)
            self._lost(payload)
            text = f"did not answer within its timeout of {self.spec.timeout_s:g} s; it blocks its process"
            return FunctionReply(error=f"{payload.func_type} function {name!r} {text}", error_code="timeout")
        except (aiohttp.ClientError, OSError) as error:
            return await self._transport_failure(worker, payload, error)
        if answer.status == 200:
            self._pool.succeeded()
            return output_reply(name, payload, answer.content)
        if answer.status == 503:
            return _busy(name)
        if says_stuck(answer) or not is_ours(answer):
            self._pool.retire(worker)
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

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self.spec, job_id=self._job_id, mask=self._mask, on_line=self._on_line)


def _busy(name: str) -> FunctionReply:
    return FunctionReply(error=f"function {name!r} is busy: its queue is full", error_code="busy")
