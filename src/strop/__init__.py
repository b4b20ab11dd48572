"""The SDK: what the author of a function imports, and nothing else. Loads pydantic and nothing heavier."""

from importlib.metadata import version as _version

from strop.functions.processor import (
    AbstractGroupRewardProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
)
from strop.schema.function import (
    AgentOutput,
    FunctionType,
    GroupReward,
    GroupRewardInput,
    GroupRewardOutput,
    ModelResource,
    RequestMetadata,
    Reward,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
    TaskStatus,
)

__version__ = _version("strop")

__all__ = [
    "AbstractGroupRewardProcessor",
    "AbstractRewardProcessor",
    "AbstractRolloutProcessor",
    "AgentOutput",
    "FunctionType",
    "GroupReward",
    "GroupRewardInput",
    "GroupRewardOutput",
    "ModelResource",
    "RequestMetadata",
    "Reward",
    "RewardInput",
    "RewardOutput",
    "RolloutInput",
    "RolloutOutput",
    "TaskStatus",
    "__version__",
]
