"""Steps of `client.jobs`: submit, look at, wait for, stop, go on, delete; what a job said and made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from strop.client.files import segment
from strop.client.wire import LONG_S, Call, Pause, Steps, listed, typed, without_empty
from strop.errors import UnavailableError
from strop.locales import msg
from strop.schema.job import JobStatus
from strop.schema.responses import (
    CheckpointInfo,
    EventInfo,
    FindingInfo,
    JobInfo,
    Listed,
    ModelInfo,
    Point,
    SpanInfo,
    TrajectoryInfo,
)

_FIRST_POLL_S, _LONGEST_POLL_S = 0.5, 5.0


def submit(body: Mapping[str, Any]) -> Steps[JobInfo]:
    """Submit a job in the wire's form; `AgenticRL` makes that of files and functions.

    Raises:
        RequestError: everything that is wrong with it and with its rows.
    """
    reply = yield Call(method="POST", path="fine-tunes", body=body, idempotent=False, timeout_s=LONG_S)
    return typed(JobInfo, reply)


def get(job_id: str) -> Steps[JobInfo]:
    """One job."""
    return typed(JobInfo, (yield Call(method="GET", path=_path(job_id))))


def list_(
    *, page_no: int = 1, page_size: int = 10, status: JobStatus | str | None = None
) -> Steps[Listed[JobInfo]]:
    """Jobs, newest first."""
    params = {"page_no": page_no, "page_size": page_size, "status": str(status) if status else None}
    return listed(JobInfo, (yield Call(method="GET", path="fine-tunes", params=params)), "jobs")


def cancel(job_id: str) -> Steps[JobInfo]:
    """End a job; a running one saves a checkpoint first (`wait` for that)."""
    return (yield from _told(job_id, "cancel"))


def pause(job_id: str) -> Steps[JobInfo]:
    """Let a job rest; a running one saves a checkpoint first."""
    return (yield from _told(job_id, "pause"))


def resume(job_id: str) -> Steps[JobInfo]:
    """Let a paused job go on from its newest checkpoint."""
    return (yield from _told(job_id, "resume"))


def delete(job_id: str) -> Steps[None]:
    """Delete an ended job with its checkpoints; published models stay."""
    yield Call(method="DELETE", path=_path(job_id), idempotent=False)


def wait(job_id: str, *, timeout_s: float | None = None) -> Steps[JobInfo]:
    """Wait until a job has ended, however it ended: look at its `status`.

    Raises:
        UnavailableError: it is still going on after `timeout_s` seconds.
    """
    give_up = None if timeout_s is None else time.monotonic() + timeout_s
    poll_s = _FIRST_POLL_S
    while True:
        job = yield from get(job_id)
        if job.status.final:
            return job
        left = None if give_up is None else give_up - time.monotonic()
        if left is not None and left <= 0:
            raise UnavailableError(
                msg(
                    "job {job_id!r} is {status} after {timeout_s:g} s",
                    job_id=job_id,
                    status=job.status,
                    timeout_s=timeout_s,
                ),
                fix=msg("it goes on; wait again, or longer"),
            )
        yield Pause(poll_s if left is None else min(poll_s, left))
        poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)


def logs(job_id: str, *, offset: int = 1, lines: int = 1000) -> Steps[list[str]]:
    """What a job's processes printed, from line `offset` on; line 1 is the first."""
    found: list[str] = []
    while len(found) < lines:
        wanted = min(1000, lines - len(found))
        params = {"offset": offset + len(found), "line": wanted}
        reply = yield Call(method="GET", path=_path(job_id, "logs"), params=params)
        more = [str(line) for line in reply.get("logs") or []]
        found += more
        if len(more) < wanted:
            break
    return found


def tail(job_id: str, *, lines: int = 100) -> Steps[tuple[list[str], int]]:
    """The last lines, and how many there are in all."""
    first = yield Call(method="GET", path=_path(job_id, "logs"), params={"offset": 1, "line": 1})
    total = int(first.get("total", 0))
    start = max(1, total - lines + 1)
    return (yield from logs(job_id, offset=start, lines=lines)), total


def stream_path(job_id: str, *, progress: bool) -> str:
    """Where a job's stream is."""
    return _path(job_id, "stream") + ("?progress=true" if progress else "")


def events(job_id: str, *, kind: str | None = None) -> Steps[list[EventInfo]]:
    """What a person should know of a job, oldest first."""
    found = yield from _all(_path(job_id, "events"), "events", {"kind": kind}, None, page=1000)
    return [typed(EventInfo, one) for one in found]


def metrics(
    job_id: str, names: list[str] | None = None, *, naming: Literal["strop", "ark"] = "strop"
) -> Steps[dict[str, list[Point]]]:
    """The curves of a job by name, all of them unless some are named; `ark` knows them by Ark's names."""
    params = {"names": ",".join(names) if names else None, "naming": None if naming == "strop" else naming}
    reply = yield Call(method="GET", path=_path(job_id, "metrics"), params=params)
    curves: dict[str, list[Any]] = reply.get("metrics") or {}
    return {name: [typed(Point, point) for point in points] for name, points in curves.items()}


def trajectories(
    job_id: str,
    *,
    step: int | None = None,
    split: str | None = None,
    sample_id: str | None = None,
    status: str | None = None,
    min_reward: float | None = None,
    max_reward: float | None = None,
    limit: int | None = 50,
) -> Steps[list[TrajectoryInfo]]:
    """Rollouts of a job without their turns; `limit` None is all of them."""
    params = {
        "step": step,
        "split": split,
        "sample_id": sample_id,
        "status": status,
        "min_reward": min_reward,
        "max_reward": max_reward,
    }
    found = yield from _all(_path(job_id, "trajectories"), "trajectories", params, limit, page=500)
    return [typed(TrajectoryInfo, one) for one in found]


def trajectory(job_id: str, rollout_id: str, *, step: int | None = None) -> Steps[TrajectoryInfo]:
    """One rollout with its turns."""
    from urllib.parse import quote

    path = f"{_path(job_id, 'trajectories')}/{quote(rollout_id, safe='/')}"
    return typed(TrajectoryInfo, (yield Call(method="GET", path=path, params={"step": step})))


def spans(
    job_id: str,
    *,
    rollout_id: str | None = None,
    kind: str | None = None,
    status: str | None = None,
    text: str | None = None,
    limit: int | None = 100,
) -> Steps[list[SpanInfo]]:
    """Spans of a job in the order of arrival; `limit` None is all of them."""
    params = {"rollout_id": rollout_id, "kind": kind, "status": status, "text": text}
    found = yield from _all(_path(job_id, "spans"), "spans", params, limit, page=1000)
    return [typed(SpanInfo, one) for one in found]


def span_tree(job_id: str, rollout_id: str) -> Steps[list[SpanInfo]]:
    """All spans of a rollout depth first, each with its depth and its offset in its trace."""
    reply = yield Call(method="GET", path=_path(job_id, "spans", "tree"), params={"rollout_id": rollout_id})
    return [typed(SpanInfo, one) for one in reply.get("spans") or []]


def diagnosis(job_id: str, *, open_only: bool = False) -> Steps[list[FindingInfo]]:
    """What goes wrong in a job, by the step at which it began."""
    params = {"open_only": "true" if open_only else None}
    reply = yield Call(method="GET", path=_path(job_id, "diagnosis"), params=params)
    return [typed(FindingInfo, one) for one in reply.get("findings") or []]


def checkpoints(job_id: str) -> Steps[list[CheckpointInfo]]:
    """Checkpoints of a job, in order of steps."""
    reply = yield Call(method="GET", path=_path(job_id, "checkpoints"))
    return [typed(CheckpointInfo, one) for one in reply.get("checkpoints") or []]


def publish(job_id: str, model_name: str, *, checkpoint: str | int = "last") -> Steps[ModelInfo]:
    """Make a checkpoint (`last`, `best` by validation, a step or an id) a model with a name."""
    path = f"{_path(job_id, 'export')}/{segment(str(checkpoint))}"
    params = {"model_name": model_name}
    reply = yield Call(method="GET", path=path, params=params, idempotent=False, timeout_s=LONG_S)
    return typed(ModelInfo, reply)


def _all(
    path: str, key: str, params: Mapping[str, Any], limit: int | None, *, page: int
) -> Steps[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    after: str | None = None
    while limit is None or len(found) < limit:
        size = page if limit is None else min(page, limit - len(found))
        asked = without_empty({**params, "after": after, "limit": size})
        reply = yield Call(method="GET", path=path, params=asked)
        found += reply.get(key) or []
        after = reply.get("next")
        if not reply.get("more") or after is None:
            break
    return found


def _told(job_id: str, what: str) -> Steps[JobInfo]:
    return typed(JobInfo, (yield Call(method="POST", path=_path(job_id, what))))


def _path(job_id: str, *more: str) -> str:
    return "/".join(("fine-tunes", segment(job_id), *more))
