"""A small job with everything real: worker processes, gateway, engine, learner, store, command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.command import Strop
from fakes.model import save_tiny_model

AGENT = """
from openai import AsyncOpenAI, DefaultAioHttpClient

from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput


class TwoTurns(AbstractRolloutProcessor):
    def setup(self) -> None:
        self.client = AsyncOpenAI(api_key="set for each rollout", http_client=DefaultAioHttpClient())

    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        messages = list(input.messages)
        key = resource.api_key.get_secret_value()
        client = self.client.with_options(base_url=resource.base_url, api_key=key)
        for _ in range(2):
            reply = await client.chat.completions.create(model=resource.model_name, messages=messages)
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
            messages.append({"role": "user", "content": "go on"})
        print("rollout done")
        return RolloutOutput(agent_output=AgentOutput(messages=messages[:-1], rollout_metrics={"turns": 2}))
"""

REWARD = """
from strop import AbstractRewardProcessor, Reward, RewardInput, RewardOutput


class ManyA(AbstractRewardProcessor):
    def process(self, input: RewardInput) -> RewardOutput:
        text = "".join(m["content"] for m in input.agent_output.messages if m["role"] == "assistant")
        return RewardOutput(reward=Reward(reward_score=sum(c in "aA" for c in text) / max(len(text), 8)))


class FailsOnOdd(AbstractRewardProcessor):
    def process(self, input: RewardInput) -> RewardOutput:
        if input.ground_truth == "odd":
            raise RuntimeError("no score for odd rows")
        return RewardOutput(reward=Reward(reward_score=0.5))
"""

JOB = """
job_name: tiny
model: {model}
datasets:
  - {{type: training, file_name: train.jsonl}}
  - {{type: validation, file_name: validation.jsonl}}
functions:
  - {{type: rollout, name: agent, timeout: 60, fcmodel: {{classpath: functions.py:TwoTurns}}}}
  - {{type: reward, name: many_a, timeout: 10, fcmodel: {{classpath: functions.py:ManyA}}}}
training:
  hyper_parameters:
    algorithm: gspo
    learning_rate: 0.02
    lr_scheduler_type: constant
    lr_warmup_steps: 0
    batch_size: 4
    n_rollouts: 8
    n_epochs: 3
    max_length: 128
    max_prompt_length: 48
    max_tokens: 12
    eval_steps: 6
    save_strategy: "no"
    train_dtype: float32
    sampling_dtype: float32
"""


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """`job.yaml` with its model, functions and rows."""
    folder = tmp_path / "job"
    save_tiny_model(folder / "model")
    (folder / "functions.py").write_text(AGENT + REWARD)
    for name, words, count in (("train", "hello", 16), ("validation", "agents", 8)):
        rows = [
            {
                "messages": [{"role": "user", "content": f"{words} {n}"}],
                "rollout_extra": {"ground_truth": "odd" if n % 2 else "even"},
            }
            for n in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "job.yaml").write_text(JOB.format(model=folder / "model"))
    return folder


@pytest.fixture
def own_home(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own that has the real model already."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / smollm2.name).symlink_to(smollm2)
    monkeypatch.setenv("STROP_HOME", str(home))
    return home


@pytest.fixture
def strop(tmp_path: Path) -> Strop:
    """Run the command line as a user would, in a home of its own."""

    def call(
        *arguments: object, timeout: float = 240, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "STROP_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "STROP_LANG": "en"}
        return subprocess.run(
            [sys.executable, "-m", "strop.cli", *map(str, arguments)],
            cwd=tmp_path,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call
