"""The SDK: what the author of a function imports, and what calls the server. Loads pydantic and no more.

The names of `strop.client` are loaded when one of them is first used: a function worker needs none.
"""

from __future__ import annotations

from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING

from strop.errors import StropError
from strop.functions.processor import (
    AbstractGroupRewardProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
)
from strop.functions.sub_rewards import aggregate_func, reward_func, sub_reward_func
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

if _TYPE_CHECKING:
    from strop.client import (
        AgenticRL,
        AgenticRLFunctionComponent,
        AsyncAgenticRL,
        AsyncClient,
        BlockingAgenticRL,
        Client,
        Dataset,
        DataSourceType,
        FunctionComponentModel,
        FunctionComponentRuntime,
        GroupRewardFunctionComponent,
        RewardFunctionComponent,
        RolloutFunctionComponent,
        TrainingDataset,
        ValidationDataset,
    )

__version__ = _version("strop")

__all__ = [
    "AbstractGroupRewardProcessor",
    "AbstractRewardProcessor",
    "AbstractRolloutProcessor",
    "AgentOutput",
    "AgenticRL",
    "AgenticRLFunctionComponent",
    "AsyncAgenticRL",
    "AsyncClient",
    "BlockingAgenticRL",
    "Client",
    "DataSourceType",
    "Dataset",
    "FunctionComponentModel",
    "FunctionComponentRuntime",
    "FunctionType",
    "GroupReward",
    "GroupRewardFunctionComponent",
    "GroupRewardInput",
    "GroupRewardOutput",
    "ModelResource",
    "RequestMetadata",
    "Reward",
    "RewardFunctionComponent",
    "RewardInput",
    "RewardOutput",
    "RolloutFunctionComponent",
    "RolloutInput",
    "RolloutOutput",
    "StropError",
    "TaskStatus",
    "TrainingDataset",
    "ValidationDataset",
    "__version__",
    "aggregate_func",
    "reward_func",
    "sub_reward_func",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from strop import client

    return getattr(client, name)
