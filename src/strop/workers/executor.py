"""One call's input -> its output or its failure: a loaded processor, with its limits.

Lives in the worker. Knows nothing of HTTP but the status that a failure is answered with.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from strop.errors import FunctionError
from strop.functions import (
    AbstractProcessor,
    add_up,
    load_processor,
    take_weights,
    user_traceback,
    validation_text,
    where_raised,
)
from strop.locales import msg
from strop.schema.function import OUTPUT_OF, FunctionInput, FunctionType, TaskStatus
from strop.tracing.ids import call_of
from strop.tracing.tracing import is_observed, is_on, prepare
from strop.workers.jsonable import jsonable
from strop.workers.spec import WorkerSpec

_QUEUE_LIMIT = 100
"""Calls that may wait for a free place, as in DashScope's container; more are answered `busy`."""
MAX_OUTPUT_BYTES = 64 * 2**20
_CANCEL_GRACE_S = 0.5
"""How long a cancelled coroutine may take to end before the process counts as stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call without output. `stuck`: code of this call still runs and cannot be stopped from inside."""

    http_status: int
    error_code: str
    message: str
    stuck: bool = False


Outcome = bytes | Failure
"""The output as JSON, or why there is none."""


class Executor:
    """One processor and the calls it has in flight."""

    def __init__(
        self,
        spec: WorkerSpec,
        processor: AbstractProcessor[Any, Any],
        by_metric: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """`by_metric`: the shares by which the metrics make the reward; empty: the function does it."""
        self.spec = spec
        self._by_metric = by_metric
        self.class_name = type(processor).__name__
        self.func_type: FunctionType = processor.func_type
        self.speaks_ark = processor.speaks_ark
        self._processor = processor
        self._is_async = inspect.iscoroutinefunction(processor.process)
        self.untraced = is_on() and not is_observed(processor.process)
        """Whether nothing in this process makes the span of a call."""
        self._threads = ThreadPoolExecutor(spec.concurrency, thread_name_prefix=spec.name)
        self._places = asyncio.Semaphore(spec.concurrency)
        self._num_waiting = 0
        self.on_stuck: Callable[[], None] = lambda: None

    async def run(self, payload: FunctionInput, headers: Mapping[str, str] = MappingProxyType({})) -> Outcome:
        """Process one call within `timeout_s`, waiting for a place included. Spans that it makes belong to
        the trace in the `headers`.

        Concurrency:
            A place is held until the user's code has really ended, also past the deadline. Cancelling this
            cancels an async `process`; a sync one runs on in its thread, and if it outlives the deadline,
            `on_stuck` is told.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.spec.timeout_s
        if not await self._take_place(deadline):
            return Failure(http_status=503, error_code="busy", message=_BUSY)
        with call_of(payload, headers):
            work = self._begin(payload)
        work.add_done_callback(lambda _: self._places.release())
        try:
            await asyncio.wait({work}, timeout=deadline - loop.time())
        except asyncio.CancelledError:
            if not await self._stop(work):
                loop.call_at(deadline, lambda: None if work.done() else self.on_stuck())
            raise
        if work.done():
            return self._result(work)
        stopped = await self._stop(work)
        text = f"{self._named} did not answer within its timeout of {self.spec.timeout_s:g} s"
        return Failure(http_status=504, error_code="timeout", message=text, stuck=not stopped)

    @property
    def sub_weights(self) -> dict[str, float]:
        """The weights of a decorated class's parts, as they are used; or those of counted metrics."""
        meta = getattr(self._processor, "reward_meta", None)
        parts = {name: part.weight for name, part in meta.sub_functions.items()} if meta is not None else {}
        return parts or dict(self._by_metric)

    @property
    def _named(self) -> str:
        return f"{self.func_type} function {self.spec.name!r}"

    async def _take_place(self, deadline: float) -> bool:
        if not self._places.locked():
            return await self._places.acquire()
        if self._num_waiting >= _QUEUE_LIMIT:
            return False
        self._num_waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            return False
        finally:
            self._num_waiting -= 1
        return True

    def _begin(self, payload: FunctionInput) -> asyncio.Future[object]:
        if self._is_async:
            return asyncio.create_task(self._process(payload))
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        return loop.run_in_executor(
            self._threads, lambda: context.run(self._process_in_thread, payload, loop)
        )

    async def _process(self, payload: FunctionInput) -> object:
        try:
            return await self._processor.process(payload)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a rollout: user code may raise anything
            return self._raised(error)

    def _process_in_thread(self, payload: FunctionInput, loop: asyncio.AbstractEventLoop) -> object:
        # Nothing may be raised out of here: a StopIteration, for one, would never reach the waiting loop.
        try:
            result = self._processor.process(payload)
            if inspect.iscoroutine(result):  # a plain function wrapped around an async one
                return asyncio.run_coroutine_threadsafe(result, loop).result()
            return result
        except BaseException as error:  # noqa: BLE001 - a rollout: user code may raise anything
            return self._raised(error)

    async def _stop(self, work: asyncio.Future[object]) -> bool:
        """Cancel what can be cancelled. Returns whether the user's code has ended."""
        if isinstance(work, asyncio.Task):
            work.cancel()
            await asyncio.wait({work}, timeout=_CANCEL_GRACE_S)
        return work.done()

    def _result(self, work: asyncio.Future[object]) -> Outcome:
        if work.cancelled():
            text = f"{self._named} raised CancelledError: it cancelled its own task"
            return Failure(http_status=500, error_code="exception", message=text)
        if (error := work.exception()) is not None:  # GeneratorExit, which a coroutine must not keep
            return self._raised(error)
        result = work.result()
        return result if isinstance(result, Failure) else self._checked(result)

    def _raised(self, error: BaseException) -> Failure:
        root = self.spec.root
        with contextlib.suppress(Exception):  # its stderr may be closed
            print(user_traceback(error, root), file=sys.stderr)
        place = where_raised(error, root)
        if isinstance(error, ValidationError):  # of several lines, the first of which says least
            said = f"{error.title}: {validation_text(error, show_values=True)}"
        else:
            said = _said_by(error)
        text = "".join((f"{type(error).__name__}: {said}", f" ({place})" if place else ""))
        return Failure(http_status=500, error_code=self._processor.code_of_raise, message=text)

    def _checked(self, result: object) -> Outcome:
        """Check a result against its output class, with what was set after validation."""
        output_class = OUTPUT_OF[self.func_type]
        if not isinstance(result, BaseModel | dict):
            found = "None" if result is None else f"{type(result).__name__} {_short(result)}"
            return self._invalid(f"returned {found}; expected {output_class.__name__}")
        try:
            output = output_class.model_validate(jsonable(cast("object", result))).model_dump()
            if self._by_metric and output["status"] == TaskStatus.SUCCESS:
                wrong = add_up(output, self._by_metric)
                if wrong:
                    return self._invalid(wrong)
            content = _encoded(output)
        except ValidationError as error:
            fields = validation_text(error, show_values=True)
            return self._invalid(f"returned no valid {output_class.__name__}: {fields}")
        except _NotFiniteError as error:
            return self._invalid(f"returned {error} that is not a finite number")
        except (ValueError, TypeError, RecursionError) as error:
            return self._invalid(f"returned what JSON cannot hold: {error}")
        except Exception as error:  # noqa: BLE001 - a rollout: its own types may raise anything when dumped
            return self._invalid(f"returned what cannot be read: {type(error).__name__}: {_said_by(error)}")
        if len(content) > MAX_OUTPUT_BYTES:
            return self._invalid(f"returned {len(content)} bytes of JSON; the limit is {MAX_OUTPUT_BYTES}")
        return content

    def _invalid(self, what: str) -> Failure:
        return Failure(http_status=500, error_code="invalid_output", message=f"{self._named} {what}")


_BUSY = "Server is busy, please try again later."


async def open_executor(spec: WorkerSpec) -> Executor:
    """Load the class, make the object, run `setup`.

    Raises:
        FunctionError: one of these failed, with the user's part of the traceback; or the class is of another
        type than configured.
    """
    processor_class = load_processor(spec.classpath, spec.root)
    func_type = processor_class.func_type
    if spec.func_type is not None and spec.func_type is not func_type:
        raise FunctionError(
            msg(
                "function {name!r} is configured as {func_type}, but {name2} is a {func_type2} processor",
                name=spec.name,
                func_type=spec.func_type,
                name2=processor_class.__name__,
                func_type2=func_type,
            ),
            fix=msg(
                "set type: {func_type}, or name a class of type {func_type2}",
                func_type=func_type,
                func_type2=spec.func_type,
            ),
        )
    step = "creating"
    try:
        processor = processor_class(**spec.params)
        step = "setup of"
        done = processor.setup()
        if inspect.isawaitable(done):
            await done
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        text = user_traceback(error, spec.root)
        raise FunctionError(
            msg(
                "function {name!r}: {step} {classpath!r} failed\n{text}",
                name=spec.name,
                step=step,
                classpath=spec.classpath,
                text=text,
            )
        ) from error
    prepare()
    return Executor(spec, processor, take_weights(processor, spec.metric_weights))


def _said_by(error: BaseException) -> str:
    """The text of an error; users' classes may fail even at giving it."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - a rollout: user code may raise anything
        return f"<no text: its __str__ raised {type(second).__name__}>"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a rollout: user code may raise anything
        return f"<no text: its __repr__ raised {type(error).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


class _NotFiniteError(ValueError):
    """NaN or infinity in an output; its text is the place."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def _encoded(output: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(output).encode("utf-8", "surrogatepass")
    except ValueError:
        # Only now: a walk through every value of every output takes longer than writing it.
        place = _non_finite(output, "")
        if place is None:
            raise
        raise _NotFiniteError(place) from None


def _non_finite(value: Any, place: str) -> str | None:
    """The path of the first NaN or infinity; JSON has neither, and null would be another value."""
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        items = [(f"{place}.{key}" if place else key, item) for key, item in pairs]
    elif isinstance(value, list):
        items = [(f"{place}.{index}", item) for index, item in enumerate(cast("list[Any]", value))]
    else:
        return None
    return next((found for path, item in items if (found := _non_finite(item, path))), None)
