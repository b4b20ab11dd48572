"""Question -> trajectory: an agent with one tool, written against any OpenAI-compatible endpoint."""

from __future__ import annotations

from openai import AsyncOpenAI, DefaultAioHttpClient

from functions.calculator import calculate, find_call
from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput

MAX_TURNS = 3

SYSTEM = (
    "You solve problems with a calculator. First write one calculation between <calc> and </calc>. "
    "When you are given its result, write ANSWER: and the result."
)
# One solved example of the whole exchange. Without it the small model almost never finds the form, and a
# reward that is always 0 teaches nothing.
EXAMPLE = [
    {"role": "user", "content": "What is 35 + 48?"},
    {"role": "assistant", "content": "<calc>35 + 48</calc>"},
    {"role": "user", "content": "83"},
    {"role": "assistant", "content": "ANSWER: 83"},
]


class CalculatorAgent(AbstractRolloutProcessor):
    def setup(self) -> None:
        # One client for all rollouts; each only changes address and key. With many calls in flight aiohttp is
        # several times faster than the client's default transport.
        self.client = AsyncOpenAI(api_key="set for each rollout", http_client=DefaultAioHttpClient())

    async def process(self, input: RolloutInput) -> RolloutOutput:
        client = self.client.with_options(
            base_url=input.model_resource.base_url,
            api_key=input.model_resource.api_key.get_secret_value(),
        )
        messages = [{"role": "system", "content": SYSTEM}, *EXAMPLE, *input.messages]
        num_calls = 0
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
