"""A project as DashScope's documents lay it out, and its unmodified client in an environment of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Generator
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


LOADED = """
import contextlib, json, os, runpy, signal, sys, tempfile, traceback
import dashscope.cli

def work(arguments):
    try:
        if arguments[:3] == ["-W", "ignore", "-c"]:
            exec(compile(arguments[3], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            signal.alarm(180)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = work(json.loads(line))
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        told = [status]
        for one in (out, err):
            one.seek(0)
            told.append(one.read().decode(errors="replace"))
    print(json.dumps(told), flush=True)
"""
"""In the client's environment: the package loaded once, each command then in a process forked from that."""


class Project:
    """A folder with functions, rows and `job.yaml`, and the client's commands and scripts run in it."""

    def __init__(self, folder: Path, bin: Path, server: Server, *, model: str = "smollm2-135m") -> None:
        self.folder = folder
        self._bin = bin
        self._server = server
        self._loaded: subprocess.Popen[str] | None = None
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
        program, *arguments = command
        words = [str(self._bin / program), *arguments]
        if self._loaded is not None and key is None and not env:
            return self._forked(words)
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment(key, **env),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def _environment(self, key: str | None = None, **env: str) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STROP_"))
        }
        settings = {
            "DASHSCOPE_HTTP_BASE_URL": self._server.api,
            "DASHSCOPE_API_KEY": self._server.key if key is None else key,
            "HOME": str(self.folder),
            "NO_PROXY": "*",
        }
        return {**inherited, **settings, **env}

    @contextlib.contextmanager
    def loaded(self) -> Generator[None]:
        """Inside, commands share one start of the client, which takes seconds; not those with a key or
        environment of their own, which are read at the start."""
        starting = [str(self._bin / "python"), "-W", "ignore", "-c", LOADED]
        with subprocess.Popen(
            starting,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as self._loaded:
            try:
                yield
            finally:
                self._loaded.communicate()  # no more lines: its end
                self._loaded = None

    def _forked(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        assert self._loaded is not None
        assert self._loaded.stdin is not None
        assert self._loaded.stdout is not None
        sent = words[1:] if words[0].endswith("/python") else words
        self._loaded.stdin.write(json.dumps(sent) + "\n")
        self._loaded.stdin.flush()
        line = self._loaded.stdout.readline()
        assert line, "the client's process has ended"
        return subprocess.CompletedProcess(words, *json.loads(line))

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
