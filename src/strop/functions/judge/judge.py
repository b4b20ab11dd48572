"""Question and answer -> a grade of 0 to 1 by one or several models; two answers -> the better one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from strop.functions.judge.endpoint import Endpoint, Spent, own_bill
from strop.functions.judge.rubric import Messages, Rubric
from strop.functions.presets.answer import CannotScore, answer_of, plain_text
from strop.schema.function import Reward, RewardInput, RewardOutput, TaskStatus

Read = TypeVar("Read")

_IN_A_SENTENCE = re.compile(r"\{[^{}\n]*\}(?=[^\S\n]*[?!,;]|[^\S\n.]*\w)")
"""An object with more of the sentence behind it, on its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`score` is the mean of the judges' `grades`, as 0 to 1; `spread` is how far apart they are, on that
    scale."""

    score: float
    grades: tuple[int, ...]
    spread: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`first` is 1 where the first answer is better, 0 where the second is, 0.5 for a tie; mean over judges.

    `agreement` is the share of judges that said the same in both orders; one that did not counts as a tie.
    """

    first: float
    agreement: float


class Judge:
    """Asks every endpoint, and remembers what they said.

    >>> from strop.functions.judge import Endpoint, Judge, Rubric
    >>> rubric = Rubric(criterion="Is it polite?", anchors={1: "insults the reader", 5: "kind throughout"})
    >>> judge = Judge(Endpoint(model="qwen-max", base_url="https://example.com/v1"), rubric=rubric)

    Concurrency:
        Belongs to one event loop. Equal questions at the same time are asked once; at most `concurrency`
        calls are under way.
    """

    def __init__(
        self,
        *endpoints: Endpoint,
        rubric: Rubric,
        concurrency: int = 16,
        cache_size: int = 10_000,
        tries: int = 3,
    ) -> None:
        """`tries`: how often a reply that cannot be read is asked for anew, beyond the endpoint's own
        retries."""
        if not endpoints:
            raise ValueError("a judge needs an Endpoint at least")
        self.endpoints = endpoints
        self.rubric = rubric
        self._places = asyncio.Semaphore(concurrency)
        self._cache: OrderedDict[str, asyncio.Task[Any]] = OrderedDict()
        self._cache_size = cache_size
        self._tries = tries

    @property
    def spent(self) -> Spent:
        """What all its calls took so far."""
        every = [endpoint.spent for endpoint in self.endpoints]
        return Spent(**{name: sum(getattr(one, name) for one in every) for name in Spent.__slots__})

    async def grade(self, question: str, answer: str, reference: str | None = None) -> Verdict:
        """Grade one answer by the rubric.

        Raises:
            CannotScore: a judge gave no grade, whatever the others said.
        """

        async def ask(endpoint: Endpoint) -> tuple[int, str]:
            return await self._ask(
                endpoint,
                ("grade", question, answer, reference),
                lambda: self.rubric.grading(question, answer, reference),
                self._grade_in,
            )

        told = await asyncio.gather(*(ask(endpoint) for endpoint in self.endpoints))
        scores = [self.rubric.normalised(grade) for grade, _ in told]
        return Verdict(
            score=sum(scores) / len(scores),
            grades=tuple(grade for grade, _ in told),
            spread=max(scores) - min(scores),
            reasons=tuple(reason for _, reason in told),
        )

    async def compare(self, question: str, first: str, second: str) -> Comparison:
        """Ask which answer is better, in both orders: judges favour a place.

        Raises:
            CannotScore: a judge did not say.
        """

        async def ask(endpoint: Endpoint, one: str, other: str) -> str:
            return await self._ask(
                endpoint,
                ("compare", question, one, other),
                lambda: self.rubric.comparing(question, one, other),
                _better_in,
            )

        orders = [
            order
            for endpoint in self.endpoints
            for order in (ask(endpoint, first, second), ask(endpoint, second, first))
        ]
        said = await asyncio.gather(*orders)
        mirrored = {"A": "B", "B": "A", "tie": "tie"}
        pairs = [(said[index], mirrored[said[index + 1]]) for index in range(0, len(said), 2)]
        values = {"A": 1.0, "B": 0.0, "tie": 0.5}
        agreed = [one == other for one, other in pairs]
        return Comparison(
            first=sum(values[one] if same else 0.5 for (one, _), same in zip(pairs, agreed, strict=True))
            / len(pairs),
            agreement=sum(agreed) / len(agreed),
        )

    async def reward(self, input: RewardInput) -> RewardOutput:
        """Grade a rollout's answer: `process` of a reward may be this alone. Without a grade it is FAILED."""
        messages = input.agent_output.messages or []
        question = "\n".join(
            plain_text(one.get("content")) for one in messages if one.get("role") in ("system", "user")
        )
        reference = None if input.ground_truth is None else str(input.ground_truth)
        answer = answer_of(input).text
        if not answer.strip():
            return RewardOutput(reward=Reward(reward_score=0.0, reward_metrics={"judged": 0.0}))
        try:
            with own_bill() as bill:
                verdict = await self.grade(question, answer, reference)
        except CannotScore as error:
            return failed(error)
        metrics = {
            "judged": 1.0,
            "spread": verdict.spread,
            "cost": bill.cost,
            "calls": float(bill.calls),
        }
        return RewardOutput(reward=Reward(reward_score=verdict.score, reward_metrics=metrics))

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints))

    async def _ask(
        self,
        endpoint: Endpoint,
        what: tuple[str | None, ...],
        messages: Callable[[], Messages],
        read: Callable[[str], Read | None],
    ) -> Read:
        """From memory, from a call that is under way, or by a call; failures are not remembered."""
        named = json.dumps([endpoint.model, endpoint.base_url, *what])
        key = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._cache.get(key)
        if known is None:
            known = self._cache[key] = asyncio.create_task(self._call(endpoint, messages, read))
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        else:
            endpoint.spent.cached += 1
            self._cache.move_to_end(key)
        try:
            return await asyncio.shield(known)
        except CannotScore:
            self._cache.pop(key, None)
            raise

    async def _call(
        self, endpoint: Endpoint, messages: Callable[[], Messages], read: Callable[[str], Read | None]
    ) -> Read:
        text = ""
        async with self._places:
            for _ in range(self._tries):
                text = await endpoint.ask(messages())
                found = read(text)
                if found is not None:
                    return found
        raise CannotScore(f"judge {endpoint.model!r} gave no verdict in {self._tries} tries: {text[:200]!r}")

    def _grade_in(self, text: str) -> tuple[int, str] | None:
        fields = verdict_in(text, "grade")
        grade: Any = fields.get("grade")
        if isinstance(grade, str) and grade.strip().isdecimal():
            grade = int(grade)
        if isinstance(grade, bool) or not isinstance(grade, int | float) or grade != int(grade):
            return None
        return (int(grade), str(fields.get("reason") or "")) if 1 <= grade <= self.rubric.scale else None


def failed(error: CannotScore) -> RewardOutput:
    """A call without a score."""
    return RewardOutput(
        reward=Reward(reward_score=0.0),  # the wire wants one; nobody reads it beside FAILED
        status=TaskStatus.FAILED,
        error=str(error),
        error_code=error.error_code,
    )


def verdict_in(text: str, key: str) -> Mapping[str, Any]:
    """The last JSON object with that key in what a judge said, repaired where it is broken.

    A thought is no verdict, least of all one that was cut off; nor is an object in the middle of a sentence.

    >>> verdict_in('Well: ```json\\n{"reason": "it\\'s fine", "grade": 4,}\\n```', "grade")["grade"]
    4
    >>> verdict_in('<think>At first sight {"grade": 1}? Let me check', "grade")
    {}
    """
    import json_repair

    text = _IN_A_SENTENCE.sub("", _after_thought(text))
    start = text.find("{")
    if start < 0:
        return {}
    try:
        read: Any = json_repair.loads(text[start:])
    except (ValueError, RecursionError):
        return {}
    found = cast("list[Any]", read) if isinstance(read, list) else [read]
    objects = [cast("Mapping[str, Any]", one) for one in found if isinstance(one, dict) and key in one]
    return objects[-1] if objects else {}


def _after_thought(text: str) -> str:
    """What was said once thinking had ended; nothing where it had not."""
    _, ended, said = text.rpartition("</think>")
    if ended:
        return said
    return "" if "<think>" in said else said


def _better_in(text: str) -> str | None:
    better = str(verdict_in(text, "better").get("better") or "").strip().strip("\"'.").upper()
    return {"A": "A", "B": "B", "TIE": "tie"}.get(better.removeprefix("ANSWER "))
