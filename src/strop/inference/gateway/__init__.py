"""An agent's chat calls -> Turns with token ids. See `Gateway`."""

from strop.inference.gateway.errors import RequestRefused
from strop.inference.gateway.gateway import Gateway
from strop.inference.gateway.sampler import Generation, Sampler
from strop.inference.gateway.stats import Stats

__all__ = ["Gateway", "Generation", "RequestRefused", "Sampler", "Stats"]
