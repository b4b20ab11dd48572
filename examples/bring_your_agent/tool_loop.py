"""Question -> trajectory: a loop over the plain `openai` client with native tools, as people write it.

What the model gets wrong (arguments that are no JSON, a tool that is not there, a call that its token limit
cut) goes back to it as the tool's answer: the rollout lives, and the model can learn from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai import AsyncOpenAI

from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput

MAX_TURNS = 6


def add(a: float, b: float) -> float:
    return a + b


def multiply(a: float, b: float) -> float:
    return a * b


TOOLS: dict[str, Callable[[float, float], float]] = {"add": add, "multiply": multiply}
_PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
SCHEMAS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"{name} a and b", "parameters": _PARAMETERS},
    }
    for name in TOOLS
]


class ToolLoop(AbstractRolloutProcessor):
    """Calls the model until it answers without a tool."""

    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        messages: list[Any] = list(input.messages)
        num_errors = 0
        async with AsyncOpenAI(
            base_url=resource.base_url, api_key=resource.api_key.get_secret_value()
        ) as client:
            for _ in range(MAX_TURNS):
                completion = await client.chat.completions.create(
                    model=resource.model_name,
                    messages=messages,
                    tools=SCHEMAS,  # pyright: ignore[reportArgumentType]
                )
                answer = completion.choices[0].message
                messages.append(answer.model_dump(exclude_none=True))
                if not answer.tool_calls:
                    break
                for call in answer.tool_calls:
                    result = use(call.function.name, call.function.arguments)  # pyright: ignore[reportAttributeAccessIssue]
                    num_errors += result.startswith("error: ")
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return RolloutOutput(
            agent_output=AgentOutput(
                messages=messages,
                rollout_extra=input.rollout_extra,
                rollout_metrics={"tool_errors": num_errors},
            )
        )


def use(name: str, arguments: str) -> str:
    """Run a tool; whatever is wrong with the call is its answer.

    >>> use("add", '{"a": 1, "b": 2}')
    '3'
    >>> use("divide", "{}")
    "error: no tool 'divide'; there are add, multiply"
    >>> use("multiply", '{"a": "2", "b": 3}')
    "error: a: expected a number, found '2'"
    """
    tool = TOOLS.get(name)
    if tool is None:
        return f"error: no tool {name!r}; there are {', '.join(TOOLS)}"
    try:
        given = json.loads(arguments)
        for key, value in given.items() if isinstance(given, dict) else ():
            if isinstance(value, bool) or not isinstance(value, int | float):  # "2" * 3 would be "222"
                return f"error: {key}: expected a number, found {value!r}"
        return str(tool(**given))
    except json.JSONDecodeError as error:
        return f"error: the arguments are no JSON: {error}"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # numbers without end, for one
        return f"error: {error}"
