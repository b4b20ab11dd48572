"""Question -> trajectory: an agent with one tool, written against any OpenAI-compatible endpoint."""

from __future__ import annotations

from openai import AsyncOpenAI

from functions.calculator import calculate, find_call
from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput

MAX_TURNS = 3

# One solved example of the whole exchange. Without it the small model almost never finds the form, and a
# reward that is always 0 teaches nothing.
SYSTEM = """You solve problems with a calculator. First write the calculation between <calc> and </calc>. \
When you are given the result, write ANSWER: and the result.

Example:
user: Compute 35 + 48.
assistant: <calc>35 + 48</calc>
user: 83
assistant: ANSWER: 83"""


class CalculatorAgent(AbstractRolloutProcessor):
    async def process(self, input: RolloutInput) -> RolloutOutput:
        client = AsyncOpenAI(
            base_url=input.model_resource.base_url,
            api_key=input.model_resource.api_key.get_secret_value(),
        )
        messages = [{"role": "system", "content": SYSTEM}, *input.messages]
        num_calls = 0
        async with client:
            for _ in range(MAX_TURNS):
                completion = await client.chat.completions.create(
                    model=input.model_resource.model_name,
                    messages=messages,  # pyright: ignore[reportArgumentType]
                )
                text = completion.choices[0].message.content or ""
                messages.append({"role": "assistant", "content": text})
                expression = find_call(text)
                if expression is None:
                    break
                num_calls += 1
                messages.append({"role": "user", "content": calculate(expression)})
        return RolloutOutput(
            agent_output=AgentOutput(
                messages=messages,
                rollout_extra=input.rollout_extra,
                rollout_metrics={"calculator_calls": num_calls},
            )
        )
