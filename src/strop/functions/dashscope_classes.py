"""A processor class of the real `dashscope` package -> one of ours that hosts it.

Recognised by its bases' names, so that nothing of that package is imported unless user code did.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, cast

from pydantic import BaseModel

from strop.functions.dashscope_door import ROOT
from strop.functions.processor import (
    AbstractGroupRewardProcessor,
    AbstractProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
)
from strop.functions.sub_rewards import collect, score_parts
from strop.schema.function import FunctionInput, RewardOutput, RolloutInput

_KINDS: dict[str, tuple[type[AbstractProcessor[Any, Any]], str]] = {
    "AbstractRolloutProcessor": (AbstractRolloutProcessor, "RolloutInput"),
    "AbstractRewardProcessor": (AbstractRewardProcessor, "RewardInput"),
    "AbstractGroupRewardProcessor": (AbstractGroupRewardProcessor, "GroupRewardInput"),
}


def is_theirs(found: object) -> bool:
    """Whether this is a processor class of the real package."""
    if not isinstance(found, type):
        return False
    found_class = cast("type[object]", found)
    return not issubclass(found_class, AbstractProcessor) and _base(found_class) is not None


def hosted(theirs: type) -> type[AbstractProcessor[Any, Any]]:
    """A class of ours that makes one of theirs and translates what goes in and out.

    The parts of a decorated class are run as ours are, so that one that fails fails the whole.
    """
    name = _base(theirs)
    assert name is not None
    ours, input_name = _KINDS[name]
    input_class: type[BaseModel] = getattr(sys.modules[ROOT], input_name)

    def create(self: Any) -> None:
        self.hosted = theirs()

    def setup(self: Any) -> Any:
        return self.hosted.setup() if hasattr(self.hosted, "setup") else None

    def process(self: Any, input: FunctionInput) -> Any:
        return _plain(self.hosted.process(input_class.model_validate(_values(input))))

    async def process_async(self: Any, input: FunctionInput) -> Any:
        return _plain(await self.hosted.process(input_class.model_validate(_values(input))))

    def create_decorated(self: Any) -> None:
        create(self)
        self._reward_meta = collect(self.hosted, self.hosted.reward_meta.processor_id)

    async def process_parts(self: Any, input: FunctionInput) -> RewardOutput:
        given = input_class.model_validate(_values(input))
        return await score_parts(self.hosted, given, self.reward_meta, self.threads)

    members: dict[str, Any] = {"__init__": create, "setup": setup}
    if hasattr(theirs, "reward_meta"):
        members |= {"__init__": create_decorated, "process": process_parts}
    else:
        is_async = inspect.iscoroutinefunction(cast("Any", theirs).process)
        called: Any = process_async if is_async else process
        called.__wrapped__ = cast("Any", theirs).process  # it may trace itself
        members["process"] = called
    return cast(
        "type[AbstractProcessor[Any, Any]]",
        type(theirs.__name__, (ours,), {**members, "__module__": theirs.__module__}),
    )


def _base(found: type) -> str | None:
    for base in found.__mro__[1:]:
        if base.__module__.startswith(ROOT) and base.__name__ in _KINDS:
            return base.__name__
    return None


def _values(payload: FunctionInput) -> dict[str, Any]:
    values = payload.model_dump(mode="json", exclude_none=True)
    if isinstance(payload, RolloutInput):  # dumped as asterisks
        values["model_resource"]["api_key"] = payload.model_resource.api_key.get_secret_value()
    return values


def _plain(result: object) -> object:
    return result.model_dump(mode="json") if isinstance(result, BaseModel) else result
