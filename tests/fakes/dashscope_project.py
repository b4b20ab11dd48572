"""A project as DashScope's documents lay it out, and its unmodified client in an environment of its own."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fakes.server import ROWS, Server, json_lines

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "strop"

NOT_ITS_DEPENDENCIES = (
    "pydantic",
    "tenacity",
    "PyYAML",
    "fastapi",
    "uvicorn",
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
)
"""What 1.25.23 needs for `dashscope rl` and does not ask for."""

ROLLOUT = """
from dashscope.finetune.reinforcement import AbstractRolloutProcessor, RolloutInput, RolloutOutput
from dashscope.finetune.reinforcement.component.data.base_data_model import AgentOutput, TaskStatus


class RolloutProcessor(AbstractRolloutProcessor):
    def setup(self) -> None:
        self.greeting = "hello"

    async def process(self, input: RolloutInput) -> RolloutOutput:
        assert input.model_resource.api_key.get_secret_value()
        answer = {"role": "assistant", "content": self.greeting}
        print("rollout of", input.messages[-1]["content"])
        return RolloutOutput(
            agent_output=AgentOutput(messages=[*input.messages, answer], rollout_metrics={"turns": 1}),
            status=TaskStatus.SUCCESS,
        )
"""

REWARD = """
from dashscope.finetune.reinforcement import (
    AbstractGroupRewardProcessor, AbstractRewardProcessor, GroupReward, GroupRewardInput, GroupRewardOutput,
    Reward, RewardInput, RewardOutput, TaskStatus,
)


class RewardProcessor(AbstractRewardProcessor):
    def setup(self) -> None:
        pass

    async def process(self, input: RewardInput) -> RewardOutput:
        content = input.agent_output.messages[-1].get("content", "")
        score = 1.0 if input.ground_truth in content else 0.0
        return RewardOutput(
            reward=Reward(reward_score=score, reward_metrics={"hit": score}), status=TaskStatus.SUCCESS
        )


class GroupProcessor(AbstractGroupRewardProcessor):
    def process(self, input: GroupRewardInput) -> GroupRewardOutput:
        rewards = [Reward(reward_score=float(len(one.messages or []))) for one in input.agent_outputs]
        return GroupRewardOutput(reward=GroupReward(rewards=rewards), status=TaskStatus.SUCCESS)
"""

JOB = """
name: tiny-rl
model: {name: smollm2-135m}
functions:
  - type: rollout
    name: my-rollout
    timeout: 60
    fcmodel: {classpath: "functions/rollout/rollout.py:RolloutProcessor"}
    runtime:
      {cpu: 2, memory_size: 4096, concurrency: 10, env: {ENABLE_TRAJECTORY: true, MY_SECRET: value-to-hide}}
  - type: reward
    name: my-reward
    weight: 1.0
    fcmodel: {classpath: "functions/reward/reward.py:RewardProcessor"}
datasets:
  - {type: training, data_source_type: file_id, file_name: data/train.jsonl}
  - {type: validation, data_source_type: file_id, file_name: data/validation.jsonl}
training:
  type: reinforcement
  hyper_parameters: {algorithm: gspo, n_rollouts: 2, learning_rate: "1e-6", batch_size: 4}
  resources: {mtu_spec_code: mtu-1, mtu_count: 1}
"""


TRACING = (
    "loongsuite-util-genai",
    "openai",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-processor-baggage",
)
"""What 2.0.2 needs for spans and does not ask for, and the client whose calls it watches."""


def environment(version: str, *, tracing: bool = False) -> Path:
    """The `bin` folder of a virtual environment with that client, made at first use and kept."""
    folder = CACHE / f"dashscope-{version}{'-tracing' if tracing else ''}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "bin" / "dashscope").is_file():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            missing = NOT_ITS_DEPENDENCIES if version.startswith("1.") else ()
            wanted = [f"dashscope=={version}", *missing, *(TRACING if tracing else ())]
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *wanted], check=True)
    return folder / "bin"


class Project:
    """A folder with functions, rows and `job.yaml`, and the client's commands and scripts run in it."""

    def __init__(self, folder: Path, bin: Path, server: Server, *, model: str = "smollm2-135m") -> None:
        self.folder = folder
        self._bin = bin
        self._server = server
        files = {
            "functions/__init__.py": "",
            "functions/rollout/__init__.py": "",
            "functions/rollout/rollout.py": ROLLOUT,
            "functions/reward/__init__.py": "",
            "functions/reward/reward.py": REWARD,
            "requirements.txt": "requests\n",
            "job.yaml": JOB.replace("smollm2-135m", model),
            "data/train.jsonl": json_lines(ROWS).decode(),
            "data/validation.jsonl": json_lines(ROWS[:4]).decode(),
        }
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *command: str, key: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """A program of the client's environment."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STROP_"))
        }
        settings = {
            "DASHSCOPE_HTTP_BASE_URL": self._server.api,
            "DASHSCOPE_API_KEY": self._server.key if key is None else key,
            "HOME": str(self.folder),
            "NO_PROXY": "*",
            **env,
        }
        program, *arguments = command
        return subprocess.run(
            [str(self._bin / program), *arguments],
            cwd=self.folder,
            env={**inherited, **settings},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def cli(self, *arguments: str, **env: str) -> str:
        """`dashscope ...`, which must succeed. Returns its stdout."""
        done = self.run("dashscope", *arguments, **env)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.cli(*arguments))

    def script(self, text: str, **env: str) -> Any:
        """Python with the client. What it prints on its last line is JSON."""
        done = self.run("python", "-W", "ignore", "-c", text, **env)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.strip().splitlines()[-1])
