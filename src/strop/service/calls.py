"""A chat call to a deployed model -> the answer of the least busy replica, with its tokens counted.

The body goes through as it is, and so does what comes back, piece by piece. A replica that is lost before its
answer has begun is replaced by another one.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
import orjson

from strop.schema.deployment import PROMPT_TOKENS, TELL_USAGE, USAGE_COMMENT
from strop.service.fleet import Runs
from strop.service.fleets import Deployed

LEFT = 499
"""Counted as the status of a call whose client left before the answer's end."""

_TAIL_BYTES = 1024
_USAGE = re.compile(re.escape(USAGE_COMMENT) + rb"(\{[^\n]*\})\n\n")


class NoReplica(Exception):
    """No replica answers now; `why` is known if the deployment failed."""

    def __init__(self, why: str | None) -> None:
        super().__init__(why)
        self.why = why


class ReplicaLost(Exception):
    """The replica that took the call ended, or its connection broke; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a replica answers. `whole` is its body unless that is a stream; then `parts` are its pieces."""

    status: int
    headers: Mapping[str, str]
    whole: bytes | None
    parts: AsyncIterator[bytes]


class Call:
    """One call. Lives in the event loop of the fleets."""

    def __init__(self, deployed: Deployed, client: aiohttp.ClientSession, body: bytes) -> None:
        self._deployed = deployed
        self._client = client
        self._body = body
        self._usage = _Usage()

    @property
    def model(self) -> str:
        return self._deployed.name

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Until the block ends the deployment is not deleted; then the call's tokens are counted."""
        traffic, limits = self._deployed.traffic, self._deployed.limits
        traffic.begin()
        try:
            yield
        finally:
            traffic.end()
            prompt, completion = self._usage.tokens()
            limits.used(prompt + completion)
            traffic.prompt_tokens += prompt
            traffic.completion_tokens += completion

    def ended(self, status: int) -> None:
        """Count the call by the status that its client got."""
        self._deployed.traffic.calls[status] += 1

    @asynccontextmanager
    async def answer(self) -> AsyncGenerator[Answer]:
        """The answer, open while the block runs.

        Raises:
            NoReplica: none answers. ReplicaLost: before the block, or in it while it read the parts.
        """
        lost: tuple[Runs, aiohttp.ClientError] | None = None
        for _ in range(2):
            replica = self._deployed.fleet.least_busy(other_than=lost[0] if lost else None)
            if replica is None:
                break
            replica.num_in_flight += 1
            begun = False
            try:
                async with self._ask(replica) as answer:
                    begun = True
                    yield answer
                return
            except aiohttp.ClientError as error:
                if begun:
                    raise ReplicaLost(type(error).__name__) from error
                lost = replica, error
            finally:
                replica.num_in_flight -= 1
        if lost is not None:
            raise ReplicaLost(type(lost[1]).__name__) from lost[1]
        raise NoReplica(self._deployed.fleet.error)

    @asynccontextmanager
    async def _ask(self, replica: Runs) -> AsyncGenerator[Answer]:
        headers = {
            "authorization": f"Bearer {replica.key}",
            "content-type": "application/json",
            TELL_USAGE: "1",
        }
        url = f"{replica.url}/v1/chat/completions"
        async with self._client.post(url, data=self._body, headers=headers) as reply:
            self._usage.prompt_tokens = int(reply.headers.get(PROMPT_TOKENS, "0"))
            streams = reply.headers.get("content-type", "").startswith("text/event-stream")
            whole = None if streams else await reply.read()
            if whole is not None:
                self._usage.whole(whole)
            yield Answer(
                status=reply.status, headers=reply.headers, whole=whole, parts=self._parts(reply, whole)
            )

    async def _parts(self, reply: aiohttp.ClientResponse, whole: bytes | None) -> AsyncIterator[bytes]:
        if whole is None:
            async for part in reply.content.iter_any():
                self._usage.part(part)
                yield part


class _Usage:
    """Tokens of an answer: as the replica says, or counted by events where it was cut off."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self._num_events = 0
        self._tail = b""
        self._said: tuple[int, int] | None = None

    def whole(self, body: bytes) -> None:
        try:
            usage = orjson.loads(body).get("usage", {})
            self._said = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        except (orjson.JSONDecodeError, KeyError, AttributeError):
            self._said = 0, 0  # an error, which costs nothing

    def part(self, part: bytes) -> None:
        self._num_events += part.count(b"\n\n")
        self._tail = (self._tail + part)[-_TAIL_BYTES:]

    def tokens(self) -> tuple[int, int]:
        if self._said is not None:
            return self._said
        found = _USAGE.search(self._tail)
        if found is not None:
            usage = orjson.loads(found[1])
            return int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        return self.prompt_tokens, self._num_events
