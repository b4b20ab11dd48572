"""An agent's chat calls -> Turns with token ids. See `Gateway`."""

from strop.gateway.gateway import Gateway
from strop.gateway.refusals import RequestRefused
from strop.gateway.sampler import Generation, Sampler
from strop.gateway.stats import Stats

__all__ = ["Gateway", "Generation", "RequestRefused", "Sampler", "Stats"]
