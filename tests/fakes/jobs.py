"""A tiny job on disk whose agents call at once and in no fixed order: the hardest to repeat bit for bit.

`from fakes.jobs import write_job`.
"""

from __future__ import annotations

import json
from pathlib import Path

from fakes.model import save_tiny_model

FUNCTIONS = '''
import asyncio
import random

from openai import AsyncOpenAI, DefaultAioHttpClient

from strop import AbstractRewardProcessor, AbstractRolloutProcessor
from strop import AgentOutput, Reward, RewardInput, RewardOutput, RolloutInput, RolloutOutput


class TwoAtOnce(AbstractRolloutProcessor):
    """Two calls at once, then one: each after a pause of its own, so that no two runs call in one order."""

    def setup(self) -> None:
        self.client = AsyncOpenAI(api_key="set for each rollout", http_client=DefaultAioHttpClient())

    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        client = self.client.with_options(
            base_url=resource.base_url, api_key=resource.api_key.get_secret_value()
        )

        async def ask(messages):
            await asyncio.sleep(random.random() * 0.08)
            reply = await client.chat.completions.create(model=resource.model_name, messages=messages)
            return {"role": "assistant", "content": reply.choices[0].message.content}

        hints = [{"role": "system", "content": "hints"}, *input.messages]
        first, hint = await asyncio.gather(ask(input.messages), ask(hints))
        messages = [*input.messages, first, {"role": "user", "content": hint["content"] or "go on"}]
        messages.append(await ask(messages))
        return RolloutOutput(agent_output=AgentOutput(messages=messages, rollout_metrics={"turns": 3}))


class ManyA(AbstractRewardProcessor):
    def process(self, input: RewardInput) -> RewardOutput:
        text = "".join(m["content"] for m in input.agent_output.messages if m["role"] == "assistant")
        return RewardOutput(reward=Reward(reward_score=sum(c in "aAeE1" for c in text) / max(len(text), 8)))
'''

JOB = """
job_name: tiny
model: {model}
datasets:
  - {{type: training, file_name: train.jsonl}}
  - {{type: validation, file_name: validation.jsonl}}
functions:
  - {{type: rollout, name: agent, timeout: 60, fcmodel: {{classpath: functions.py:TwoAtOnce}}}}
  - {{type: reward, name: many_a, timeout: 10, fcmodel: {{classpath: functions.py:ManyA}}}}
training:
  hyper_parameters:
    algorithm: grpo
    learning_rate: 0.01
    batch_size: 4
    ppo_mini_batch_size: 2
    n_rollouts: 4
    n_epochs: 2
    kl_loss_coef: 0.01
    max_length: 160
    max_prompt_length: 48
    max_tokens: 16
    eval_steps: 2
    save_strategy: steps
    save_steps: {save_steps}
    save_total_limit: 9
    train_dtype: float32
    sampling_dtype: float32
"""


def write_job(folder: Path, *, rows: int, save_steps: int) -> Path:
    """`job.yaml` with model, functions and rows: mini-batches, a KL reference, two epochs, validation."""
    save_tiny_model(folder / "model")
    (folder / "functions.py").write_text(FUNCTIONS)
    for name, words, count in (("train", "hello", rows), ("validation", "agents", 4)):
        lines = [{"messages": [{"role": "user", "content": f"{words} {number}"}]} for number in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = folder / "job.yaml"
    job.write_text(JOB.format(model=folder / "model", save_steps=save_steps))
    return job
