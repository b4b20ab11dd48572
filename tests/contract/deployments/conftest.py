"""The control plane on a port, with replicas in place of processes, and clients of two workspaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest

from fakes.replicas import Barracks
from fakes.sampler import until
from strop.cli.checking import PipelineFlow
from strop.doors.app import create_app
from strop.inference.chat.endpoint import GuestServer, bind
from strop.service.fleet import Patience
from strop.service.settings import Settings
from strop.store.keys import create_key, ensure_workspace
from strop.store.models import register_model

QUICK = Patience(max_failures=3, first_wait_s=0.001, longest_wait_s=0.002)


@dataclass
class Plane:
    """What a test talks to; `restart` is a server that ended and another on the same store."""

    barracks: Barracks
    key: str = ""
    other_key: str = ""
    url: str = ""
    clients: list[Any] = field(default_factory=list[Any])

    async def open(self) -> None:
        app = create_app(Settings(), PipelineFlow(), make_replica=self.barracks.make, patience=QUICK)
        self.fleets = app.state.services.fleets
        self.database = app.state.services.database
        self.life = app.router.lifespan_context(app)
        await self.life.__aenter__()
        listener = bind("127.0.0.1", 0)
        self.server = GuestServer(app, grace_s=1)
        self.serving = asyncio.create_task(self.server.serve(sockets=[listener]))
        await self.server.listening.wait()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def make_keys(self) -> None:
        with self.database.write() as session:
            _, self.key = create_key(session, "default", "ada")
            other = ensure_workspace(session, "other")
            _, self.other_key = create_key(session, other.workspace_id, "eve")
            register_model(session, "tiny", "/models/tiny")

    async def close(self) -> None:
        for client in self.clients:
            await (client.close() if isinstance(client, openai.AsyncOpenAI) else client.aclose())
        self.clients.clear()
        self.server.should_exit = True
        await self.serving
        await self.life.__aexit__(None, None, None)

    async def restart(self) -> None:
        await self.close()
        await self.open()

    def client(self, key: str | None = None, *, path: str = "/v1", **options: Any) -> openai.AsyncOpenAI:
        options = {"max_retries": 0, **options}
        made = openai.AsyncOpenAI(base_url=self.url + path, api_key=key or self.key, **options)
        self.clients.append(made)
        return made

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {key or self.key}"}
        async with httpx.AsyncClient(timeout=20) as client:
            return await client.request(method, f"{self.url}{path}", json=body, headers=headers)

    async def output(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        reply = await self.call(method, f"/api/v1{path}", body)
        assert reply.status_code == 200, reply.text
        return reply.json()["output"]

    async def deploy(self, **more: Any) -> str:
        """A deployment whose replicas all answer. Returns its name."""
        made = await self.output("POST", "/deployments", {"model_name": "tiny", "suffix": "a", **more})
        name = made["deployed_model"]
        await until(lambda: self.fleets.num_ready(name) == made["capacity"])
        return name

    async def until_status(self, name: str, status: str) -> dict[str, Any]:
        while True:
            shown = await self.output("GET", f"/deployments/{name}")
            if shown["status"] == status:
                return shown


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    made = Plane(barracks=Barracks())
    await made.open()
    made.make_keys()
    yield made
    await made.close()
    assert made.barracks.alive == []


@pytest.fixture
def hello() -> Any:
    """What `chat.completions.create` takes, for a model of any name."""

    def arguments(model: str, content: str = "hello", **more: Any) -> dict[str, Any]:
        return {"model": model, "messages": [{"role": "user", "content": content}], **more}

    return arguments
