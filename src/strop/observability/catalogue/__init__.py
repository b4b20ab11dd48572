"""The declarations of all metrics, one file a group of names. `observability.metrics` reads them."""

from strop.observability.catalogue.actor import ACTOR
from strop.observability.catalogue.critic import CRITIC
from strop.observability.catalogue.fully_async import ABSENT, FULLY_ASYNC
from strop.observability.catalogue.group import GROUP
from strop.observability.catalogue.offline import OFFLINE
from strop.observability.catalogue.perf import PERF
from strop.observability.catalogue.timing import TIMING
from strop.observability.catalogue.trace import TRACE
from strop.observability.catalogue.trajectory import TRAJECTORY
from strop.observability.catalogue.validation import VALIDATION

CATALOGUE = (
    *CRITIC,
    *VALIDATION,
    *ACTOR,
    *OFFLINE,
    *TRAJECTORY,
    *FULLY_ASYNC,
    *GROUP,
    *TRACE,
    *TIMING,
    *PERF,
)
"""In the order a reader wants them: does it learn, then why, then how fast."""

__all__ = ["ABSENT", "CATALOGUE"]
