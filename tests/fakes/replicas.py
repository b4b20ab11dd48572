"""Replicas in the test's own event loop: a scripted engine behind a real address, started and killed at will.

`from fakes.replicas import Barracks`; satisfies `strop.service.fleet.Runs`.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from fakes.sampler import FakeSampler
from fakes.serving import Shop, served_model
from fakes.tokenizer import tiny_tokenizer
from strop.errors import EngineError
from strop.service.replica import ReplicaSpec


class FakeReplica:
    def __init__(self, spec: ReplicaSpec, barracks: Barracks) -> None:
        self.spec = spec
        self.key = secrets.token_urlsafe(8)
        self.num_in_flight = 0
        self.exited = asyncio.Event()
        self.stopped = False
        self.script = FakeSampler(tiny_tokenizer(), barracks.answer)
        self.adapters: dict[str, FakeSampler] = {}
        self._barracks = barracks
        self._shop: Shop | None = None

    @property
    def url(self) -> str:
        assert self._shop is not None
        return self._shop.address

    async def start(self, *, limit_s: float) -> None:
        self._barracks.started.append(self)
        try:
            if self._barracks.refusals:
                raise EngineError(self._barracks.refusals.pop(0))
            await self._barracks.may_start.wait()
        except BaseException:
            self.exited.set()
            raise
        model = served_model(self.script, self.script.tokenizer, name=self.spec.deployed_model)
        self._shop = Shop(model, api_key=self.key, read=self._read if self.spec.shared else None)
        await self._shop.open(grace_s=0)

    def _read(self, folder: Path) -> FakeSampler:
        """A sampler that answers with the name of the adapter's folder."""
        if folder.name in self._barracks.unusable:
            raise EngineError(self._barracks.unusable[folder.name])
        if folder.name in self._barracks.broken:
            raise ArithmeticError("nobody thought of this")
        sampler = FakeSampler(tiny_tokenizer(), lambda prompt_ids, params: folder.name)
        self.adapters[folder.name] = sampler
        return sampler

    @property
    def models(self) -> list[str]:
        """What it serves now, its base first."""
        assert self._shop is not None
        return [one.name for one in self._shop.models.all()]

    async def stop(self) -> None:
        self.stopped = True
        await self.kill()

    async def kill(self) -> None:
        if self._shop is not None and not self.exited.is_set():
            self.exited.set()
            await self._shop.close()

    async def die(self) -> None:
        """As by SIGKILL: connections break, nothing is said."""
        assert self._shop is not None
        for connection in list(self._shop.server.server_state.connections):
            connection.transport.abort()
        await self.kill()

    def exit_text(self) -> str:
        return "was killed by SIGKILL"


class Barracks:
    """Makes replicas and remembers them, in order of their starts. `refusals` fail as many starts; `unusable`
    says by name of its folder why an adapter is refused; at one of `broken` a replica fails."""

    def __init__(self) -> None:
        self.started: list[FakeReplica] = []
        self.refusals: list[str] = []
        self.unusable: dict[str, str] = {}
        self.broken: set[str] = set()
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.answer = lambda prompt_ids, params: "hello"

    def make(self, spec: ReplicaSpec) -> FakeReplica:
        return FakeReplica(spec, self)

    @property
    def alive(self) -> list[FakeReplica]:
        return [one for one in self.started if not one.exited.is_set()]
