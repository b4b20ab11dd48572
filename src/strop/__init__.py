"""The SDK: what the author of a function imports, and what calls the server.

A name is loaded when it is first used: `import strop` alone costs nothing, so that a command can say what
Ctrl-C does before anything heavy loads, and a function worker needs nothing of `strop.client`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; `typing` itself would be the first heavy import

if TYPE_CHECKING:
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

    __version__: str

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

_HOMES = {
    "strop.errors": ("StropError",),
    "strop.functions.processor": (
        "AbstractGroupRewardProcessor",
        "AbstractRewardProcessor",
        "AbstractRolloutProcessor",
    ),
    "strop.functions.sub_rewards": ("aggregate_func", "reward_func", "sub_reward_func"),
    "strop.schema.function": (
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
    ),
}
"""Where the names are that are not `strop.client`'s."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("strop")
    else:
        from importlib import import_module

        home = next((home for home, names in _HOMES.items() if name in names), "strop.client")
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
