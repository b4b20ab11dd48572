"""Answer -> the grade of a model that judges by a rubric; the kit behind it is `strop.functions.judge`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakKeyDictionary

from pydantic import Field

from strop.functions.presets.answer import Answer, Scored, plain_text, text_of

if TYPE_CHECKING:  # the kit imports this package
    from strop.functions.judge import Judge, Rubric

NEEDS = {"judge": ("openai", "json_repair")}

_judges: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Judge]] = WeakKeyDictionary()
"""One for all calls with equal parameters, so that they share its cache, its places and its bill."""


async def judge(
    answer: str | Answer,
    reference: object = None,
    *,
    model: Annotated[str, Field(min_length=1, description="the judge, as its endpoint calls it")],
    criterion: Annotated[str, Field(min_length=1, description="what is judged, in a sentence")],
    worst: Annotated[str, Field(min_length=1, description="what the lowest grade means, or an example")],
    best: Annotated[str, Field(min_length=1, description="what the highest grade means, or an example")],
    scale: Annotated[Literal[5, 7], Field(description="grades go from 1 to this")] = 5,
    base_url: Annotated[
        str | None,
        Field(pattern=r"^https?://", description="an OpenAI endpoint; OpenAI's own unless set"),
    ] = None,
    api_key_env: Annotated[
        str, Field(min_length=1, description="variable of the environment (`runtime.env`) with its key")
    ] = "OPENAI_API_KEY",
    length_matters: Annotated[
        bool, Field(description="else the judge is told that length is no merit")
    ] = False,
    must_answer: Annotated[bool, Field(description="an empty answer is 0 and costs no call")] = True,
    concurrency: Annotated[int, Field(ge=1, le=1000, description="calls at once of one worker")] = 16,
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="seconds of one try")] = 60.0,
    retries: Annotated[
        int, Field(ge=0, le=20, description="tries after the first, on 429, 5xx and lost connections")
    ] = 4,
    price_prompt: Annotated[
        float, Field(ge=0, description="of a million tokens, for the metric `cost`")
    ] = 0.0,
    price_completion: Annotated[float, Field(ge=0, description="of a million tokens")] = 0.0,
) -> float:
    """0 to 1: the grade of a model that judges by a rubric. A judge that is away is no 0: the call failed.

    Without a reference the judge is told of none. It is asked once about equal questions and answers.
    """
    text = text_of(answer)
    if must_answer and not text.strip():
        return Scored(0.0, judged=0.0)
    from strop.functions.judge import Rubric
    from strop.functions.judge.endpoint import own_bill

    asked = _shared(
        rubric=Rubric(
            criterion=criterion, scale=scale, anchors={1: worst, scale: best}, length_matters=length_matters
        ),
        concurrency=concurrency,
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
        timeout_s=timeout_s,
        retries=retries,
        price_prompt=price_prompt,
        price_completion=price_completion,
    )
    with own_bill() as bill:
        verdict = await asked.grade(_question(answer), text, None if reference is None else str(reference))
    return Scored(verdict.score, judged=1.0, cost=bill.cost, calls=float(bill.calls))


def _question(answer: str | Answer) -> str:
    messages = answer.messages if isinstance(answer, Answer) else ()
    return "\n".join(
        plain_text(one.get("content")) for one in messages if one.get("role") in ("system", "user")
    )


def _shared(*, rubric: Rubric, concurrency: int, **endpoint: Any) -> Judge:
    """The judge of this event loop with these parameters."""
    from strop.functions.judge import Endpoint, Judge

    here = _judges.setdefault(asyncio.get_running_loop(), {})
    key = (repr(rubric), concurrency, tuple(endpoint.values()))
    if key not in here:
        here[key] = Judge(Endpoint(**endpoint), rubric=rubric, concurrency=concurrency)
    return here[key]
