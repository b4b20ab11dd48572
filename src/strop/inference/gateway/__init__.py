"""An agent's chat calls -> Turns with token ids. See `Gateway`."""

from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.sampler import Generation, Sampler
from strop.inference.gateway.calls import Stats
from strop.inference.gateway.gateway import Gateway

__all__ = ["Gateway", "Generation", "RequestRefused", "Sampler", "Stats"]
