"""A job's Trajectories tab: by step, by sample, as a filtered list, one whole, two side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import Field
from sqlalchemy.orm import Session
from starlette.responses import RedirectResponse, Response

from strop.console.charts import charts_of
from strop.console.chat import conversation
from strop.console.drawings import histogram, scatter, shade
from strop.console.job_frame import job_here, job_page
from strop.console.pages import BASE, LARGEST
from strop.console.requests import CallerHere, ServicesHere
from strop.console.tokens import tokenizer_of, tokens_of
from strop.errors import MissingError
from strop.locales import msg
from strop.schema.function import TaskStatus
from strop.schema.job import Job
from strop.schema.responses import without_nulls
from strop.service.job_history import trajectory_values
from strop.service.services import Services
from strop.store.jobs import get_job
from strop.store.trajectory_lists import (
    Brief,
    Wanted,
    find_trajectories,
    get_by_key,
    list_samples,
    of_sample,
    of_step,
    splits_of,
    step_span,
)

router = APIRouter()

PAGE_SIZE = 50
TREND = ("critic/rewards/mean", "critic/rewards/min", "critic/rewards/max", "trace/success_rate/agent/avg")

Split = Annotated[str, Query(max_length=40)]
Key = Annotated[int, Field(ge=0, le=LARGEST)]
"""Of a trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Of some rollouts: how many, how they went. Rewards None where nothing was scored."""

    num: int
    num_failed: int
    mean: float | None
    low: float | None
    high: float | None
    num_tokens: int

    @property
    def success(self) -> float | None:
        return (self.num - self.num_failed) / self.num if self.num else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaded:
    """A rollout as a chip: its reward, coloured by its place among those of the page."""

    brief: Brief
    css: str


@router.get("/jobs/{job_id}/trajectories")
def steps_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    step: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
    split: Split = "",
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        splits = splits_of(session, job_id)
        chosen = split or (splits[0] if splits else "train")
        span = step_span(session, job_id, chosen, step)
        at = step if step is not None else span.last
        briefs = of_step(session, job_id, chosen, at) if at is not None else ()
    rewards = _rewards(briefs)
    groups: dict[str, list[Shaded]] = {}
    for one in _shaded(briefs):
        groups.setdefault(one.brief.group_id, []).append(one)
    trend = charts_of(sorted(TREND), str(here.hyper_parameters.get("algorithm", "")))
    return job_page(
        request,
        services,
        here,
        "steps",
        split=chosen,
        splits=splits,
        step=at,
        span=span,
        summary=summary_of(briefs),
        bars=histogram(rewards),
        groups=[
            (rows[0].brief.sample_id, rows, summary_of([row.brief for row in rows]))
            for rows in groups.values()
        ],
        trend=trend,
    )


@router.get("/jobs/{job_id}/samples")
def samples_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    split: Split = "",
    sample: Annotated[str, Query(max_length=400)] = "",
    after: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        splits = splits_of(session, job_id)
        chosen = split or (splits[0] if splits else "train")
        if sample:
            briefs = of_sample(session, job_id, sample, split=chosen)
            if not briefs:
                raise MissingError(
                    msg("sample {sample!r} has no rollouts in {chosen}", sample=sample, chosen=chosen),
                    fix=msg("take one from the list"),
                )
            return _sample_page(request, services, here, chosen, splits, sample, briefs)
        lines, following = list_samples(session, job_id, chosen, after=after, limit=PAGE_SIZE)
    return job_page(
        request,
        services,
        here,
        "samples",
        split=chosen,
        splits=splits,
        lines=lines,
        following=following,
        after=after,
    )


def _sample_page(
    request: Request,
    services: Services,
    here: Any,
    split: str,
    splits: Sequence[str],
    sample: str,
    briefs: Sequence[Brief],
) -> Response:
    by_step: dict[int, list[Shaded]] = {}
    for one in _shaded(briefs):
        by_step.setdefault(one.brief.step, []).append(one)
    scored = [brief for brief in briefs if brief.reward is not None]
    return job_page(
        request,
        services,
        here,
        "sample",
        split=split,
        splits=splits,
        sample=sample,
        summary=summary_of(briefs),
        steps=[(step, rows, summary_of([row.brief for row in rows])) for step, rows in by_step.items()],
        dots=scatter([(brief.step, brief.reward) for brief in scored if brief.reward is not None]),
    )


@router.get("/jobs/{job_id}/rollouts")
def rollouts_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    split: Split = "",
    step: Annotated[str, Query(max_length=12, pattern=r"^[0-9]*$")] = "",
    sample: Annotated[str, Query(max_length=400)] = "",
    rollout: Annotated[str, Query(max_length=400)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    low: Annotated[str, Query(max_length=40)] = "",
    high: Annotated[str, Query(max_length=40)] = "",
    tool: Annotated[str, Query(max_length=200)] = "",
    text: Annotated[str, Query(max_length=400)] = "",
    before: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        splits = splits_of(session, job_id)
        chosen = split or (splits[0] if splits else "train")
        wanted = Wanted(
            split=chosen,
            step=int(step) if step else None,
            sample_id=sample or None,
            rollout_id=rollout or None,
            status=next((one for one in TaskStatus if one.value == status), None),
            min_reward=number_in(low),
            max_reward=number_in(high),
            tool=tool.strip(),
            text=text.strip(),
        )
        found = find_trajectories(session, job_id, wanted, before=before, limit=PAGE_SIZE)
    asked = {
        "split": chosen,
        "step": step,
        "sample": sample,
        "rollout": rollout,
        "status": status,
        "low": low,
        "high": high,
        "tool": tool,
        "text": text,
    }
    return job_page(
        request,
        services,
        here,
        "rollouts",
        split=chosen,
        splits=splits,
        found=found,
        rows=_shaded(found.items),
        asked=asked,
        before=before,
    )


@router.get("/jobs/{job_id}/trajectories/{key}")
def trajectory_page(
    request: Request, services: ServicesHere, caller: CallerHere, job_id: str, key: Key
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        shown = _whole(session, services, here.job, key)
        siblings = _siblings(session, job_id, shown["brief"])
    return job_page(request, services, here, "trajectory", siblings=siblings, **shown)


@router.get("/jobs/{job_id}/trajectories/{key}/raw")
def raw(services: ServicesHere, caller: CallerHere, job_id: str, key: Key) -> Response:
    """One trajectory with its turns, as the API tells it."""
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        _, recorded = get_by_key(session, job_id, key)
    body = orjson.dumps(without_nulls(trajectory_values(recorded)), option=orjson.OPT_INDENT_2)
    return Response(body, media_type="application/json")


@router.get("/jobs/{job_id}/side-by-side")
def side_by_side(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    key: Annotated[list[Key] | None, Query()] = None,
) -> Response:
    keys = list(dict.fromkeys(key or []))[:2]
    if len(keys) < 2:
        return RedirectResponse(f"{BASE}/jobs/{job_id}/rollouts", status_code=303)
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        pair = [_whole(session, services, here.job, one) for one in keys]
    return job_page(request, services, here, "side_by_side", pair=pair)


def summary_of(briefs: Sequence[Brief]) -> Summary:
    rewards = _rewards(briefs)
    return Summary(
        num=len(briefs),
        num_failed=sum(brief.status is TaskStatus.FAILED for brief in briefs),
        mean=fmean(rewards) if rewards else None,
        low=min(rewards, default=None),
        high=max(rewards, default=None),
        num_tokens=sum(brief.num_sampled_tokens for brief in briefs),
    )


def number_in(text: str) -> float | None:
    """
    >>> number_in(" 0.5 "), number_in(""), number_in("x"), number_in("nan")
    (0.5, None, None, None)
    """
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _rewards(briefs: Sequence[Brief]) -> list[float]:
    return [brief.reward for brief in briefs if brief.reward is not None and math.isfinite(brief.reward)]


def _shaded(briefs: Sequence[Brief]) -> list[Shaded]:
    rewards = _rewards(briefs)
    low, high = min(rewards, default=0.0), max(rewards, default=0.0)
    return [Shaded(brief=brief, css=shade(brief.reward, low, high)) for brief in briefs]


def _whole(session: Session, services: Services, job: Job, key: int) -> dict[str, Any]:
    """Everything that one trajectory's page shows."""
    brief, recorded = get_by_key(session, job.job_id, key)
    tokenizer = tokenizer_of(session, job, services.settings.home)
    one = recorded.trajectory
    versions = sorted({version for turn in one.turns for version in turn.policy_versions})
    return {
        "brief": brief,
        "recorded": recorded,
        "one": one,
        "said": conversation(one),
        "tokens": {turn.index: tokens_of(turn, tokenizer) for turn in one.turns},
        "versions": versions,
    }


def _siblings(session: Session, job_id: str, brief: Brief) -> list[Shaded]:
    """The rollouts of the same group."""
    step = of_step(session, job_id, brief.split, brief.step)
    return _shaded([one for one in step if one.group_id == brief.group_id])
