"""What the routes work with: one value on `app.state`, handed to them by dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from strop.doors.middleware import caller_in
from strop.doors.streams import Streams
from strop.errors import StropError
from strop.schema.access import Caller
from strop.service.fleets import Fleets
from strop.service.flow import Flow
from strop.service.instances import Instances
from strop.service.layers import LayerBuilder
from strop.service.secret import Signer
from strop.service.settings import Settings
from strop.service.span_forwarding import Forwarding
from strop.service.supervisor import Supervisor
from strop.store.blobs import Blobs
from strop.store.database import Database


@dataclass(slots=True)
class Received:
    """What came in spans since the server began. `busy` batches are being stored right now."""

    busy: int = 0
    stored: int = 0
    rejected: int = 0
    turned_away: int = 0


@dataclass(slots=True, kw_only=True)
class Services:
    """Everything a route may need. `running` is there while the app serves."""

    settings: Settings
    database: Database
    blobs: Blobs
    signer: Signer
    layers: LayerBuilder
    flow: Flow
    supervisor: Supervisor
    fleets: Fleets
    streams: Streams = field(default_factory=Streams)
    received: Received = field(default_factory=Received)
    span_forwarding: Forwarding | None = None
    running: Instances | None = None

    @property
    def instances(self) -> Instances:
        if self.running is None:
            raise StropError("the server is not serving", fix="enter its lifespan first")
        return self.running

    def wake(self) -> None:
        """Let the supervisor look at once."""
        self.supervisor.wake()


def services_of(request: Request) -> Services:
    return request.app.state.services


def caller_of_request(request: Request) -> Caller:
    return caller_in(request.scope)


ServicesHere = Annotated[Services, Depends(services_of)]
CallerHere = Annotated[Caller, Depends(caller_of_request)]
"""Who calls; on guarded paths only."""


def public_url(request: Request, settings: Settings) -> str:
    """Where this client reaches the server, without a trailing slash."""
    return settings.public_url or str(request.base_url).rstrip("/")
