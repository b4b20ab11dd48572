"""`strop functions test` and `serve`, as a person runs them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from strop.cli.functions import app

FUNCTIONS = """
from strop import *

class DemoRolloutProcessor(AbstractRolloutProcessor):
    def setup(self) -> None:
        print("set up")

    async def process(self, input: RolloutInput) -> RolloutOutput:
        answer = f"{input.model_resource.model_name}: {input.additional_field}"
        messages = [*input.messages, {"role": "assistant", "content": answer}]
        return RolloutOutput(
            agent_output=AgentOutput(messages=messages, rollout_metrics={"latency": 1.2}),
            status=TaskStatus.SUCCESS,
        )

class DemoRewardProcessor(AbstractRewardProcessor):
    async def process(self, input: RewardInput) -> RewardOutput:
        content = input.agent_output.rollout_extra["content"]
        score = 1.0 if input.ground_truth in content else 0.0
        metrics = {"test1": 0.5, "test2": 0.3}
        return RewardOutput(reward=Reward(reward_score=score, reward_metrics=metrics), error=None)

class DemoGroupRewardProcessor(AbstractGroupRewardProcessor):
    def process(self, input: GroupRewardInput) -> GroupRewardOutput:
        rewards = [Reward(reward_score=0.5) for _ in input.agent_outputs]
        return GroupRewardOutput(reward=GroupReward(rewards=rewards), status=TaskStatus.SUCCESS)

class Refuses(AbstractRewardProcessor):
    def process(self, input):
        return RewardOutput(reward=Reward(reward_score=0), status="failed", error="[judge] is away")

class Fails(AbstractRewardProcessor):
    def process(self, input):
        return RewardOutput(reward=Reward(reward_score=input.agent_output.messages[-1]["content"].of_no_text))
"""

ROLLOUT_INPUT = """
{
  "func_type": "rollout",
  "messages": [
    {"role": "user", "content": "Hello, please introduce yourself"}
  ],
  "tools": null,
  "ground_truth": "",
  "rollout_extra": {
    "rollout_id": "ro-ins-e8e92e94-b5c3-4546-b7b1-9832b8b948f2",
    "training_state": {"task_id": "task-001"}
  },
  "sampling_params": {
    "temperature": 0.7,
    "max_tokens": 1024,
    "max_turns": 25,
    "timeout": 60.0
  },
  "model_resource": {
    "model_name": "qwen3.5-9b",
    "base_url": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "api_key": "your-api-key-here"
  },
  "request_metadata": {
    "protocol": "openai",
    "system_prompt": "",
    "job_id": "dummy-job-id",
    "sample_id": "dummy-sample-id",
    "rollout_id": "dummy-rollout-id",
    "attempt_id": "dummy-attempt-id"
  },
  "additional_field": "any extra data you want"
}
"""
_AGENT_OUTPUT = """{
    "messages": [{"role": "user", "content": "Test question"}],
    "rollout_extra": {
      "content": "This is a test content that should receive a reward score of 0.5"
    },
    "rollout_metrics": {"accuracy": 0.95},
    "reward_score": null
  }"""
REWARD_INPUT = f"""
{{
  "func_type": "reward",
  "ground_truth": "0.5",
  "request_metadata": null,
  "agent_output": {_AGENT_OUTPUT}
}}
"""
GROUP_REWARD_INPUT = f"""
{{
  "func_type": "group_reward",
  "ground_truth": "0.5",
  "request_metadata": null,
  "agent_outputs": [{_AGENT_OUTPUT}]
}}
"""
Invoke = Callable[..., Result]
_CLI = "from strop.cli.functions import app; app(prog_name='strop functions')"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "demo.py").write_text(FUNCTIONS)
    (tmp_path / "rollout.json").write_text(ROLLOUT_INPUT)
    (tmp_path / "reward.json").write_text(REWARD_INPUT)
    (tmp_path / "group.json").write_text(GROUP_REWARD_INPUT)
    return tmp_path


def environment(language: str) -> dict[str, str]:
    return {**os.environ, "STROP_LANG": language, "COLUMNS": "200", "TERM": "dumb"}


def run(
    project: Path, *words: str, stdin: str = "", language: str = "en"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CLI, *words],
        cwd=project,
        env=environment(language),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def invoke(project: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run the command in this process, which starts sooner."""
    monkeypatch.chdir(project)
    for name, value in environment("en").items():
        monkeypatch.setenv(name, value)

    def call(*words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, words, input=stdin)

    return call


def test_a_rollout_answers_the_guides_input_and_logs_to_stderr(project: Path) -> None:
    done = run(project, "test", "functions/demo.py:DemoRolloutProcessor", "--input", "rollout.json")
    assert done.returncode == 0
    first, *rest = done.stdout.splitlines()
    assert re.fullmatch(r"success \(\d+ ms\)", first)
    assert rest == [
        "  user       Hello, please introduce yourself",
        "  assistant  qwen3.5-9b: any extra data you want",
        '  rollout_metrics: {"latency": 1.2}',
    ]
    assert done.stderr == "stdout | set up\n"


def test_a_reward_prints_raw_json_for_scripts(project: Path) -> None:
    words = ("test", "functions.demo.DemoRewardProcessor", "--input", "-", "--json", "--type", "reward")
    done = run(project, *words, stdin=REWARD_INPUT)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "reward": {"reward_score": 1.0, "reward_metrics": {"test1": 0.5, "test2": 0.3}},
        "status": "success",
        "error": None,
        "error_code": None,
    }
    assert done.stderr == ""


def test_a_group_reward_prints_every_reward(project: Path) -> None:
    done = run(project, "test", "functions.demo.DemoGroupRewardProcessor", "--input", "group.json")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["[0]", "  reward_score         0.5"]


def test_a_failure_exits_1_with_code_and_text(invoke: Invoke) -> None:
    done = invoke("test", "functions.demo.Refuses", "--input", "reward.json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "failed: [judge] is away\n"
    done = invoke("test", "functions.demo.Refuse", "--input", "reward.json", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error_code"] == "not_started"
    assert "did you mean 'Refuses'?" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("functions.demo.Refuses", "--input", "missing.json"), "No such file"),
        (("functions.demo.Refuses", "--input", "functions/demo.py"), "no valid JSON"),
        (("functions.demo.Refuses", "--input", "rollout.json"), "its func_type is rollout"),
        (("functions.demo.Refuses", "--input", "reward.json", "--type", "rollout"), "is a reward function"),
        (("functions.demo.Refuses",), "Missing option"),
    ],
)
def test_wrong_usage_exits_2(invoke: Invoke, words: tuple[str, ...], told: str) -> None:
    done = invoke("test", *words)
    assert done.exit_code == 2
    assert told in done.stderr


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b"[" * 200_000])
def test_an_input_beyond_reading_is_wrong_usage(project: Path, invoke: Invoke, content: bytes) -> None:
    (project / "odd.json").write_bytes(content)
    done = invoke("test", "functions.demo.Refuses", "--input", "odd.json")
    assert done.exit_code == 2
    assert "no valid JSON" in done.stderr


def test_an_input_that_lacks_a_field_names_it(invoke: Invoke) -> None:
    done = invoke("test", "functions.demo.Refuses", "--input", "-", stdin='{"ground_truth": "1"}')
    assert done.exit_code == 2
    assert "agent_output: Field required" in done.stderr


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("one.json", '{"agent_output": {}}', "the input has no agent_output.messages"),
        ("one.json", '{"agent_output": {"messages": [{"role": "assistant", "content": "x"}]}}', None),
        ("many.jsonl", '{"agent_output": {}}', "row 1: the input has no agent_output.messages"),
    ],
)
def test_a_failure_for_want_of_input_says_that_the_input_is_what_is_missing(
    project: Path, invoke: Invoke, name: str, given: str, missing: str | None
) -> None:
    """`Fails` reads the last message, then what is not there: with a message, the function is to blame."""
    (project / name).write_text(given)
    done = invoke("test", "functions.demo.Fails", "--input", name)
    assert done.exit_code == 1
    assert ("the input has no" in done.stderr) == (missing is not None)
    assert (missing or "") in done.stderr


@pytest.mark.parametrize(
    ("language", "told"), [("en", "Print the raw output."), ("zh_CN.UTF-8", "打印原始输出。")]
)
def test_help_speaks_the_users_language(project: Path, language: str, told: str) -> None:
    done = run(project, "test", "--help", language=language)
    assert done.returncode == 0
    assert told in done.stdout


def test_serve_answers_with_its_token_until_ctrl_c(project: Path) -> None:
    served = subprocess.Popen(
        [sys.executable, "-c", _CLI, "serve", "functions.demo.DemoRewardProcessor"],
        cwd=project,
        env=environment("en"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with served:
        assert served.stdout is not None
        lines = [served.stdout.readline() for _ in range(7)]
        text = "".join(lines)
        url = lines[1].split()[1]
        token = lines[2].split()[1]
        assert lines[0] == "reward function DemoRewardProcessor\n"
        assert f"curl -s {url} -H 'Authorization: Bearer {token}'" in text
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        answer = httpx.post(url, content=REWARD_INPUT, headers=headers, trust_env=False)
        assert answer.json()["reward"]["reward_score"] == 1.0
        assert httpx.post(url, content=REWARD_INPUT, trust_env=False).status_code == 401
        served.send_signal(signal.SIGINT)
        assert served.wait(10) == 0
        assert served.stderr is not None
        assert served.stderr.read() == ""


def test_serve_refuses_a_contradicting_type_and_a_taken_port(project: Path) -> None:
    done = run(project, "serve", "functions.demo.Refuses", "--type", "rollout")
    assert done.returncode == 2
    assert "Refuses is a reward function, not a rollout one" in done.stderr
    done = run(project, "serve", "functions.demo.Nothing")
    assert done.returncode == 1
    assert "no class 'Nothing' in functions/demo.py" in done.stderr


def test_a_function_that_does_not_start_is_told_in_the_users_language(project: Path) -> None:
    for language, fix in (("en", "\n  fix: "), ("zh", "\n  修正：")):
        done = run(project, "serve", "functions.demo.Nothing", language=language)
        assert done.returncode == 1
        assert fix in done.stderr
