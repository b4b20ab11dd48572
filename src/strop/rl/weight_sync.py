"""Updated weights -> the policy version that the engine now samples from.

Called by `rl.loop` before the first rollout and around every update; nothing else moves weights.
"""

from __future__ import annotations

import asyncio

from strop.errors import TrainingError
from strop.rl.interfaces import WeightSync


async def publish(publisher: WeightSync, *, replaces: int | None = None) -> int:
    """Hand the learner's weights to the engine and learn which version is live.

    Raises:
        TrainingError: the live version is older than `replaces`, so that rollouts would come from weights
            that the learner has left.
    """
    version = await asyncio.to_thread(publisher.publish)
    if replaces is not None and version < replaces:
        raise TrainingError(
            f"the engine went back from policy version {replaces} to {version}: new weights did not arrive",
            fix="restart from the last checkpoint",
        )
    return version


async def withdraw(publisher: WeightSync) -> None:
    """Let the engine go without weights while they change: every rollout of the step is there."""
    await asyncio.to_thread(publisher.withdraw)
