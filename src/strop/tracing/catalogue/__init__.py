"""The declarations of all metrics, one file a group of names. `tracing.metrics` reads them."""

from strop.tracing.catalogue.actor import ACTOR
from strop.tracing.catalogue.critic import CRITIC
from strop.tracing.catalogue.fully_async import ABSENT, FULLY_ASYNC
from strop.tracing.catalogue.group import GROUP
from strop.tracing.catalogue.offline import OFFLINE
from strop.tracing.catalogue.perf import PERF
from strop.tracing.catalogue.timing import TIMING
from strop.tracing.catalogue.trace import TRACE
from strop.tracing.catalogue.trajectory import TRAJECTORY
from strop.tracing.catalogue.validation import VALIDATION

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
