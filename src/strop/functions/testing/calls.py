"""A processor class and plain values -> what it answers, checked as a worker checks it.

In the test's own process, so that a debugger stops in the function; `strop functions test` runs the same in a
worker.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from strop.functions.ark import input_of_body, reply_of_output
from strop.functions.processor import AbstractProcessor
from strop.functions.testing.endpoint import Endpoint
from strop.schema.function import (
    AgentOutput,
    FunctionInput,
    GroupRewardInput,
    GroupRewardOutput,
    ModelResource,
    RequestMetadata,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
)

Output = TypeVar("Output", bound=BaseModel)
Processor = AbstractProcessor[Any, Any] | type[AbstractProcessor[Any, Any]]
Row = Mapping[str, Any] | str


def run_rollout(
    processor: Processor,
    row: Row,
    *,
    model: Endpoint | ModelResource,
    sampling_params: Mapping[str, Any] | None = None,
) -> RolloutOutput:
    """One rollout on a dataset row, or on a question as text, with `model` as the policy.

    Raises:
        What the function raises. pydantic.ValidationError: its answer is no RolloutOutput.
    """
    asked = row if isinstance(row, Mapping) else {"messages": [{"role": "user", "content": row}]}
    values: dict[str, Any] = dict(asked)
    extra: dict[str, Any] = values.get("rollout_extra") or values.get("extra") or {}
    truth = values.get("ground_truth")
    payload = RolloutInput(
        messages=values["messages"],
        tools=values.get("tools"),
        ground_truth=extra.get("ground_truth") if truth is None else truth,
        rollout_extra=extra,
        sampling_params=dict(sampling_params) if sampling_params is not None else None,
        model_resource=model.resource if isinstance(model, Endpoint) else model,
        request_metadata=_METADATA,
    )
    return _checked(RolloutOutput, _answer(processor, payload))


def run_reward(
    processor: Processor, output: AgentOutput | RolloutOutput | str, *, ground_truth: Any = None
) -> RewardOutput:
    """Score one agent output; a text stands for an assistant that said it.

    Raises:
        What the function raises. pydantic.ValidationError: its answer is no RewardOutput.
    """
    payload = RewardInput(
        agent_output=agent_output(output), ground_truth=ground_truth, request_metadata=_METADATA
    )
    return _checked(RewardOutput, _answer(processor, payload))


def run_group_reward(
    processor: Processor, outputs: Sequence[AgentOutput | RolloutOutput | str], *, ground_truth: Any = None
) -> GroupRewardOutput:
    """Score all agent outputs of one sample together.

    Raises:
        What the function raises. pydantic.ValidationError: its answer is no GroupRewardOutput. ValueError: it
        has another number of rewards than there are outputs.
    """
    payload = GroupRewardInput(
        agent_outputs=[agent_output(output) for output in outputs],
        ground_truth=ground_truth,
        request_metadata=_METADATA,
    )
    scored = _checked(GroupRewardOutput, _answer(processor, payload))
    if len(scored.reward.rewards) != len(outputs):
        raise ValueError(f"{len(scored.reward.rewards)} rewards for {len(outputs)} agent outputs")
    return scored


def run_ark(processor: Processor, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a `reward_fn` answers to the body of Ark's test page, in its envelope or bare.

    `load_processor("reward.py:reward_fn", folder)` gives the processor, with `rl_types` at hand.

    Raises:
        What the function raises. ValueError: the body has no completions or no sample, or the answer has
        another number of rewards. pydantic.ValidationError: its answer cannot be read.
    """
    payload = GroupRewardInput.model_validate(input_of_body(request))
    return reply_of_output(_checked(GroupRewardOutput, _answer(processor, payload)).model_dump())


def agent_output(output: AgentOutput | RolloutOutput | str) -> AgentOutput:
    """What a reward gets to see of it.

    >>> agent_output("ANSWER: 4").messages
    [{'role': 'assistant', 'content': 'ANSWER: 4'}]
    """
    if isinstance(output, str):
        return AgentOutput(messages=[{"role": "assistant", "content": output}])
    if isinstance(output, RolloutOutput):
        if output.agent_output is None:
            raise ValueError(f"the rollout gave no agent output: {output.error or output.status}")
        return output.agent_output
    return output


def _answer(processor: Processor, payload: FunctionInput) -> object:
    async def answer() -> object:
        one = processor() if isinstance(processor, type) else processor
        ready = one.setup()
        if inspect.isawaitable(ready):
            await ready
        done = one.process(payload)
        return await done if inspect.isawaitable(done) else done

    return asyncio.run(answer())


def _checked(output_class: type[Output], answer: object) -> Output:
    values = answer.model_dump() if isinstance(answer, BaseModel) else cast("dict[str, Any]", answer)
    return output_class.model_validate(values)


_METADATA = RequestMetadata(job_id="test", sample_id="sample", rollout_id="rollout", attempt_id="attempt")
