"""`import dashscope.finetune.reinforcement`, `import rl_types` -> our own classes, where these are missing.

Function classes written for DashScope then run here unchanged. Where the real package is installed it is
used, and `dashscope_classes` hosts its classes. Opened in the worker, before user code is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from strop import tracing as observability
from strop.functions import processor, rl_types, sub_rewards
from strop.schema import function as data

ROOT = "dashscope.finetune.reinforcement"
ARK = "rl_types"
_PARENTS = ("dashscope", "dashscope.finetune")
_MODULES = re.compile(
    re.escape(ROOT)
    + r"(\.component(\.data(\.(base_data_model|(group_reward|reward|rollout)_(input|output)))?"
    + r"|\.processor(\.abstract_(group_reward_|reward_|rollout_)?processor)?"
    + r"|\.func_decorator|\.observability)?)?"
)
"""The modules that functions import from. No others: a name that is missing would be taken for a module."""

_CLASSES: dict[str, object] = {
    **{
        name: getattr(processor, name)
        for name in (
            "AbstractProcessor",
            "AbstractRolloutProcessor",
            "AbstractRewardProcessor",
            "AbstractGroupRewardProcessor",
        )
    },
    **{
        name: getattr(sub_rewards, name)
        for name in ("RewardProcessorMeta", "aggregate_func", "reward_func", "sub_reward_func")
    },
    **{
        name: getattr(data, name)
        for name in (
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
        )
    },
}


def open_door() -> None:
    """Answer imports below `ROOT` that nothing else answers. Harmless when done twice.

    Side effects:
        Adds a finder at the end of `sys.meta_path`: whatever is installed goes first.
    """
    if not any(isinstance(finder, _Door) for finder in sys.meta_path):
        sys.meta_path.append(_Door())


class _Door(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in (*_PARENTS, ARK) or _MODULES.fullmatch(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, origin="strop", is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == ARK:
            vars(module).update(
                RewardFunctionResult=rl_types.RewardFunctionResult, RewardStatus=rl_types.RewardStatus
            )
        if module.__name__.startswith(ROOT):
            vars(module).update(_CLASSES)
            vars(module).update({name: getattr(observability, name) for name in observability.__all__})


class _Module(ModuleType):
    """Says what is missing, and that it is missing here and not in the user's code."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.__name__} is Strop's stand-in and has no {name!r}; put dashscope into requirements.txt "
            "to have the real package"
        )
