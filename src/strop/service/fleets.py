"""Rows of the store <-> fleets of replicas: every deployment of this server, running as it was asked for.

LoRA models of one base share its replicas within their workspace; what cannot share has replicas of its own.

A server that starts again starts the replicas of every row; what it deletes has gone when its row has. One
task writes what fleets become, so that the event loop never waits for the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import anyio.to_thread

from strop.errors import ConflictError, MissingError, StoreError
from strop.schema.deployment import Deployment, DeploymentStatus
from strop.service.fleet import Fleet, Patience, Runs
from strop.service.rate_limits import RateLimits
from strop.service.replica import Replica, ReplicaSpec
from strop.service.shared_base import AdapterDeployment, SharedBase, base_of
from strop.service.traffic import Traffic
from strop.store.database import Database
from strop.store.deployments import forget_deployment, list_deployments, move_deployment

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Deployed:
    """A deployment that has replicas, or is getting them."""

    name: str
    workspace_id: str
    fleet: Fleet | AdapterDeployment
    limits: RateLimits
    traffic: Traffic
    recorded: tuple[DeploymentStatus, str | None] = (DeploymentStatus.PENDING, None)


class Fleets:
    """Until `open` nothing runs.

    Concurrency:
        Every method is called from the event loop that `open` ran in.
    """

    def __init__(
        self,
        database: Database,
        *,
        make: Callable[[ReplicaSpec], Runs] = Replica,
        patience: Patience | None = None,
    ) -> None:
        self._database = database
        self._make = make
        self._patience = patience or Patience()
        self._deployed: dict[str, Deployed] = {}
        self._going: dict[str, Deployed] = {}
        self._bases: dict[tuple[str, str], SharedBase] = {}
        self._changed: set[str] = set()
        self._news = asyncio.Event()
        self._turn = asyncio.Event()
        self._recording: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._client: aiohttp.ClientSession | None = None

    @property
    def client(self) -> aiohttp.ClientSession:
        """The connections to replicas, without deadlines: answers take long, and a lost replica closes."""
        assert self._client is not None, "there are no replicas before `open`"
        return self._client

    async def open(self) -> None:
        """Start the replicas of every deployment in the store, and finish deletions that were interrupted."""
        self._recording = asyncio.create_task(self._record())
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        self._client = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
            auto_decompress=False,
        )
        for deployment in await anyio.to_thread.run_sync(self._wanted):
            self.add(deployment)

    async def close(self) -> None:
        """End all replicas at once; the rows stay, so that the next server starts them again."""
        if self._recording is not None:
            recording, self._recording = self._recording, None
            recording.cancel()
            await asyncio.wait({recording})
        every = [*self._deployed.values(), *self._going.values()]
        await asyncio.gather(*(one.fleet.close(at_once=True) for one in every))
        await asyncio.gather(*self._leaving, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def add(self, deployment: Deployment) -> None:
        """Run what the store has a row of; nothing before `open` and after `close`."""
        if self._recording is None:
            return
        name, traffic = deployment.deployed_model, Traffic()
        base = base_of(deployment.source)
        fleet = self._alone(deployment) if base is None else self._share(deployment, base, traffic)
        self._deployed[name] = Deployed(
            name=name,
            workspace_id=deployment.workspace_id,
            fleet=fleet,
            limits=RateLimits(rpm=deployment.rpm_limit, tpm=deployment.tpm_limit),
            traffic=traffic,
            recorded=(deployment.status, deployment.error),
        )
        fleet.resize(deployment.capacity)

    def change(self, deployment: Deployment) -> None:
        """Bring capacity and limits to what the row says now."""
        deployed = self._deployed.get(deployment.deployed_model)
        if deployed is not None:
            deployed.limits.rpm, deployed.limits.tpm = deployment.rpm_limit, deployment.tpm_limit
            deployed.fleet.resize(deployment.capacity)

    def remove(self, deployed_model: str) -> None:
        """Let the replicas finish their answers, end them, then forget the row. Returns at once."""
        self._leave(self._remove(deployed_model))

    def find(self, deployed_model: str, workspace_id: str) -> Deployed | None:
        """What a caller of that workspace may ask."""
        found = self._deployed.get(deployed_model)
        return found if found is not None and found.workspace_id == workspace_id else None

    def names(self, workspace_id: str) -> list[str]:
        return sorted(name for name, one in self._deployed.items() if one.workspace_id == workspace_id)

    def all(self) -> dict[str, Deployed]:
        return dict(self._deployed)

    def num_ready(self, deployed_model: str) -> int:
        found = self._deployed.get(deployed_model)
        return found.fleet.num_ready if found is not None else 0

    async def changes(self) -> AsyncIterator[None]:
        """Yield at once, and then whenever something was written about any deployment."""
        while True:
            turn = self._turn
            yield
            await turn.wait()

    def _alone(self, deployment: Deployment) -> Fleet:
        name = deployment.deployed_model
        spec = ReplicaSpec(deployed_model=name, source=deployment.source)
        return Fleet(spec, make=self._make, patience=self._patience, on_change=partial(self._note, name))

    def _share(self, deployment: Deployment, folder: str, traffic: Traffic) -> AdapterDeployment:
        key = (deployment.workspace_id, folder)
        if key not in self._bases:
            self._bases[key] = SharedBase(
                folder,
                make=self._make,
                patience=self._patience,
                client=lambda: self.client,
                on_empty=lambda: self._bases.pop(key),
            )
        return AdapterDeployment(
            deployment.deployed_model,
            deployment.source,
            self._bases[key],
            traffic=traffic,
            on_change=partial(self._note, deployment.deployed_model),
            on_refused=partial(self._part, deployment),
        )

    def _part(self, deployment: Deployment, share: AdapterDeployment, reason: str) -> None:
        """Give a share that its base cannot carry replicas of its own, which load the merged model."""
        deployed = self._deployed.get(share.name)
        if deployed is None or deployed.fleet is not share:
            return
        _log.warning("deployment %s gets replicas of its own: %s", share.name, reason)
        deployed.fleet = self._alone(deployment)
        deployed.fleet.resize(share.capacity)
        self._leave(share.close())

    def _leave(self, end: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(end)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _note(self, name: str) -> None:
        self._changed.add(name)
        self._news.set()

    async def _record(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            names, self._changed = self._changed, set()
            for name in names:
                deployed = self._deployed.get(name)
                if deployed is not None:
                    await self._write(name, deployed)
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()

    async def _write(self, name: str, deployed: Deployed) -> None:
        state = (deployed.fleet.status, deployed.fleet.error)
        if state == deployed.recorded:
            return
        if state[1] is not None and state[1] != deployed.recorded[1]:
            _log.warning("deployment %s: %s", name, state[1])
        try:
            await anyio.to_thread.run_sync(self._move, name, *state)
            deployed.recorded = state
        except (MissingError, ConflictError):
            return  # being deleted
        except StoreError as error:
            _log.error("the status of deployment %s could not be written: %s", name, error)

    def _move(self, name: str, status: DeploymentStatus, error: str | None) -> None:
        with self._database.write() as session:
            move_deployment(session, name, status, error=error)

    def _wanted(self) -> list[Deployment]:
        with self._database.write() as session:
            rows = list_deployments(session)
            for row in rows:
                if row.status is DeploymentStatus.DELETING:
                    forget_deployment(session, row.deployed_model)
        return [row for row in rows if row.status is not DeploymentStatus.DELETING]

    async def _remove(self, name: str) -> None:
        deployed = self._deployed.pop(name, None)
        if deployed is not None:
            self._going[name] = deployed
            await deployed.fleet.close()
            del self._going[name]
        await anyio.to_thread.run_sync(self._forget, name)
        self._news.set()

    def _forget(self, name: str) -> None:
        with self._database.write() as session:
            forget_deployment(session, name)
