"""Function workers without processes: plain callables by name, their answers made replies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fakes.capture import FakeCapture
from strop.schema.function import (
    AgentOutput,
    FunctionInput,
    GroupReward,
    GroupRewardInput,
    GroupRewardOutput,
    Reward,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
)
from strop.schema.reply import FunctionReply

Function = Callable[[Any], Any]


class FakeFunctions:
    """A function returns its output, a whole reply, or raises; what it raises is the reply's error."""

    def __init__(self, **functions: Function) -> None:
        self.functions = functions
        self.calls: list[tuple[str, FunctionInput]] = []

    async def call(self, name: str, payload: FunctionInput) -> FunctionReply:
        self.calls.append((name, payload))
        try:
            output = self.functions[name](payload)
            if inspect.isawaitable(output):
                output = await output
        except Exception as error:  # noqa: BLE001  stands for the worker's own boundary
            return FunctionReply(error=f"{type(error).__name__}: {error}", error_code="exception")
        return output if isinstance(output, FunctionReply) else FunctionReply(output=output)

    def inputs(self, name: str) -> list[Any]:
        return [payload for called, payload in self.calls if called == name]


def one_call_agent(capture: FakeCapture, **output: Any) -> Function:
    """An agent that asks the policy once and returns `output` as its AgentOutput."""

    async def run(payload: RolloutInput) -> RolloutOutput:
        ids = payload.request_metadata
        assert ids is not None
        await capture.chat(ids.rollout_id, ids.attempt_id, payload.messages, payload.tools)
        return RolloutOutput(agent_output=AgentOutput(**output))

    return run


def last_digit(payload: RewardInput) -> RewardOutput:
    """The number that the last message says."""
    messages = payload.agent_output.messages
    assert messages
    return RewardOutput(reward=Reward(reward_score=float(messages[-1]["content"])))


def equal_shares(payload: GroupRewardInput) -> GroupRewardOutput:
    """1 / (members) for each member."""
    count = len(payload.agent_outputs)
    return GroupRewardOutput(reward=GroupReward(rewards=[Reward(reward_score=1 / count)] * count))
