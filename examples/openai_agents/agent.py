"""Question -> trajectory: an agent of the OpenAI Agents SDK with two tools, as people write it.

What the model gets wrong in a call goes back to it as the tool's answer, also the name of a tool that is not
there, which by default would end the run.
"""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    MaxTurnsExceeded,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResult,
    ToolCallOutputItem,
    ToolErrorFormatterArgs,
    function_tool,
)
from openai import AsyncOpenAI

from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput

MAX_TURNS = 6
INSTRUCTIONS = "Use the tools. End with ### ANSWER: and the result and ###."


def told(context: RunContextWrapper[Any], error: Exception) -> str:
    return f"error: {error}"


@function_tool(failure_error_function=told)
def add(a: float, b: float) -> str:
    """Add two numbers."""
    return f"{a + b:g}"


@function_tool(failure_error_function=told)
def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return f"{a * b:g}"


TOOLS = [add, multiply]


def unknown(error: ToolErrorFormatterArgs[Any]) -> str | None:
    """What the model is told of a tool that is not there."""
    if error.kind != "tool_not_found":
        return None
    return f"error: no tool {error.tool_name!r}; there are {', '.join(tool.name for tool in TOOLS)}"


RUN = RunConfig(
    tool_not_found_behavior="return_error_to_model",
    tool_error_formatter=unknown,
    tracing_disabled=True,  # it would send every run to OpenAI
)


class AgentsSdk(AbstractRolloutProcessor):
    """Runs until there is no call. The trajectory's messages are those that were captured."""

    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        key = resource.api_key.get_secret_value()
        outputs: list[str] = []
        async with AsyncOpenAI(base_url=resource.base_url, api_key=key) as client:
            agent = Agent(
                name="calculator",
                instructions=INSTRUCTIONS,
                tools=[*TOOLS],
                model=OpenAIChatCompletionsModel(model=resource.model_name, openai_client=client),
            )
            try:
                result = await Runner.run(
                    agent, list[Any](input.messages), max_turns=MAX_TURNS, run_config=RUN
                )
                outputs = tool_outputs(result)
            except MaxTurnsExceeded:
                pass  # what was said is captured, and the reward sees that there is no answer
        return RolloutOutput(
            agent_output=AgentOutput(
                messages=None,
                rollout_extra=input.rollout_extra,
                rollout_metrics={
                    "tool_calls": len(outputs),
                    "tool_errors": sum(text.startswith("error: ") for text in outputs),
                },
            )
        )


def tool_outputs(result: RunResult) -> list[str]:
    return [str(item.output) for item in result.new_items if isinstance(item, ToolCallOutputItem)]
