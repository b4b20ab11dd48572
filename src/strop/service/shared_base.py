"""LoRA deployments of one base -> one fleet whose replicas hold the base once and every adapter beside it.

A deployment that comes or goes is an adapter that replicas load or drop while they answer; no process
starts or ends for it but the first and the last. `AdapterDeployment` is a deployment's part of the fleet,
with a fleet's face.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from strop.schema.deployment import DeploymentStatus
from strop.service.fleet import Fleet, Patience, Runs
from strop.service.replica import STOP_S, ReplicaSpec
from strop.service.traffic import Traffic

_AGAIN_S = 1.0
"""Seconds until a replica is asked again that did not answer; a dead one is noticed by its end."""


def is_model(folder: str) -> bool:
    return (Path(folder) / "config.json").is_file()


def base_of(source: str) -> str | None:
    """The folder of the base that a published LoRA model was trained from; None if it has none here."""
    try:
        config: dict[str, Any] = json.loads((Path(source) / "adapter" / "adapter_config.json").read_bytes())
        base = str(Path(config["base_model_name_or_path"]).absolute())
        return base if is_model(base) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


class AdapterDeployment:
    """One deployment of a shared base. `on_refused` is told why the base cannot carry it.

    A share has as many replicas as the most that any deployment of its base wants.
    """

    def __init__(
        self,
        name: str,
        source: str,
        base: SharedBase,
        *,
        traffic: Traffic,
        on_change: Callable[[], None],
        on_refused: Callable[[AdapterDeployment, str], None],
    ) -> None:
        self.name, self.source = name, source
        self.capacity = 0
        self.on_change, self.on_refused = on_change, on_refused
        self._base, self._traffic = base, traffic

    @property
    def num_ready(self) -> int:
        """Of the wanted ones: a deployment beside it may have more."""
        return min(len(self._carriers()), self.capacity)

    @property
    def status(self) -> DeploymentStatus:
        if self.num_ready:
            return DeploymentStatus.RUNNING
        failed = self._base.fleet.status is DeploymentStatus.FAILED
        return DeploymentStatus.FAILED if failed else DeploymentStatus.DEPLOYING

    @property
    def error(self) -> str | None:
        return self._base.fleet.error

    def resize(self, capacity: int) -> None:
        self.capacity = capacity
        self._base.keep(self)

    def least_busy(self, *, other_than: Runs | None = None) -> Runs | None:
        fit = [one for one in self._carriers() if one is not other_than and not one.exited.is_set()]
        return min(fit, key=lambda one: one.num_in_flight, default=None)

    async def close(self, *, at_once: bool = False) -> None:
        """Leave the base, after the answers under way or `at_once`; the last one ends the replicas."""
        if not at_once:
            await self._traffic.idle(within_s=STOP_S)
        await self._base.let_go(self, at_once=at_once)

    def _carriers(self) -> list[Runs]:
        return [one for one in self._base.fleet.ready if self._base.carries(one, self)]


class SharedBase:
    """A base's fleet and the shares of it.

    `client` gives the connections to replicas; `on_empty` is called when the last share has been let go.
    """

    def __init__(
        self,
        folder: str,
        *,
        make: Callable[[ReplicaSpec], Runs],
        patience: Patience,
        client: Callable[[], aiohttp.ClientSession],
        on_empty: Callable[[], object],
    ) -> None:
        self.folder = folder
        self._client, self._on_empty = client, on_empty
        self._shares: dict[str, AdapterDeployment] = {}
        self._carried: dict[Runs, dict[str, AdapterDeployment | None]] = {}
        self._turn = asyncio.Event()
        spec = ReplicaSpec(deployed_model=f"base {Path(folder).name}", source=folder, shared=True)
        self.fleet = Fleet(
            spec, make=make, patience=patience, on_change=self._tell, look_after=self._look_after
        )

    def keep(self, share: AdapterDeployment) -> None:
        """Carry the share from now on, with as many replicas as it wants."""
        self._shares[share.name] = share
        self._fit()

    async def let_go(self, share: AdapterDeployment, *, at_once: bool) -> None:
        """Carry it no more. Without any share left the replicas end."""
        if self._shares.get(share.name) is not share:
            return
        del self._shares[share.name]
        if self._shares:
            if not at_once:
                self._fit()
            return
        self._on_empty()
        await self.fleet.close(at_once=at_once)

    def carries(self, replica: Runs, share: AdapterDeployment) -> bool:
        return self._carried.get(replica, {}).get(share.name) is share

    def _fit(self) -> None:
        self.fleet.resize(max(share.capacity for share in self._shares.values()))
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    def _tell(self) -> None:
        gone = self.fleet.status is DeploymentStatus.FAILED and not is_model(self.folder)
        for share in list(self._shares.values()):
            share.on_change()
            if gone:
                share.on_refused(share, f"there is no model in {self.folder!r} any more")

    async def _look_after(self, replica: Runs) -> None:
        """Bring what a replica carries to what is wanted, whenever that changes."""
        self._carried[replica] = {}
        try:
            while True:
                turn = self._turn
                heard = await self._bring_up_to_date(replica)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(turn.wait(), None if heard else _AGAIN_S)
        finally:
            del self._carried[replica]

    async def _bring_up_to_date(self, replica: Runs) -> bool:
        """False when the replica did not answer."""
        carried = self._carried[replica]
        try:
            for name, share in list(carried.items()):
                if share is None or self._shares.get(name) is not share:
                    carried[name] = None  # no call goes there any more, and it is asked again if need be
                    await self._ask(replica, "unload_lora_adapter", {"lora_name": name})
                    del carried[name]
            for name, share in list(self._shares.items()):
                if name in carried:
                    continue
                adapter = {"lora_name": name, "lora_path": share.source}
                refusal = await self._ask(replica, "load_lora_adapter", adapter)
                if refusal is None:
                    carried[name] = share
                    share.on_change()
                else:
                    share.on_refused(share, refusal)
        except aiohttp.ClientError:
            return False
        return True

    async def _ask(self, replica: Runs, what: str, body: dict[str, str]) -> str | None:
        """Returns why it was refused."""
        headers = {"authorization": f"Bearer {replica.key}"}
        async with self._client().post(f"{replica.url}/v1/{what}", json=body, headers=headers) as answer:
            if answer.status in (400, 404):
                return str((await answer.json())["error"]["message"])
            if answer.status == 500:  # as it would the next time, and others wait behind it
                return "the replica failed at it; its log tells more"
            answer.raise_for_status()
            return None
