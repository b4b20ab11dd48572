"""`strop functions test` with many rows, `bench`, and `serve --reload`, as a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

FUNCTIONS = """
from strop import *
from openai import AsyncOpenAI

class Agent(AbstractRolloutProcessor):
    async def process(self, input):
        resource = input.model_resource
        client = AsyncOpenAI(base_url=resource.base_url, api_key=resource.api_key.get_secret_value())
        said = await client.chat.completions.create(model=resource.model_name, messages=input.messages)
        messages = [*input.messages, {"role": "assistant", "content": said.choices[0].message.content}]
        return RolloutOutput(agent_output=AgentOutput(messages=messages, rollout_metrics={"turns": 1}))

class Exact(AbstractRewardProcessor):
    def process(self, input):
        said = input.agent_output.messages[-1]["content"]
        if said == "broken":
            raise ValueError("no answer")
        return {"reward": {"reward_score": float(said == input.ground_truth), "reward_metrics": {"n": 2}}}
"""
CLI = "from strop.cli.functions import app; app(prog_name='strop functions')"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    rows = [
        {
            "messages": [{"role": "user", "content": f"{n} + 1?"}],
            "rollout_extra": {"ground_truth": str(n + 1)},
        }
        for n in (1, 2)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STROP_LANG": "en", "COLUMNS": "160", "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, "-c", CLI, *words], cwd=project, env=env, capture_output=True, text=True, timeout=120
    )


def test_rows_of_a_dataset_go_through_agent_and_reward_into_a_table(project: Path) -> None:
    (project / "answers.json").write_text('["2"]')
    words = ("--input", "train.jsonl", "--script", "answers.json", "--save", "outputs.jsonl")
    done = run(project, "test", "f.py:Agent", *words)
    assert done.returncode == 0, done.stderr
    assert "turns=1" in done.stdout
    assert "2 of 2 ok, p50 " in done.stdout
    saved = [json.loads(line) for line in (project / "outputs.jsonl").read_text().splitlines()]
    assert [(one["ground_truth"], one["agent_output"]["messages"][-1]["content"]) for one in saved] == [
        ("2", "2"),
        ("3", "2"),
    ]
    with (project / "outputs.jsonl").open("a") as file:
        broken = {"agent_output": {"messages": [{"role": "assistant", "content": "broken"}]}}
        file.write(json.dumps(broken) + "\n")
    scored = run(project, "test", "f.py:Exact", "--input", "outputs.jsonl")
    assert scored.returncode == 1
    assert "2 of 3 ok, mean reward 0.5" in scored.stdout
    assert "ValueError: no answer (f.py, line 17, in process)" in scored.stdout


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ('{"messages": []}\n{broken\n', "line 2: no valid JSON"),
        ("\n", "no rows"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "row 1 names no model_resource"),
    ],
)
def test_rows_that_are_no_inputs_are_told_by_their_number(project: Path, rows: str, told: str) -> None:
    (project / "bad.jsonl").write_text(rows)
    done = run(project, "test", "f.py:Agent", "--input", "bad.jsonl")
    assert done.returncode == 2
    assert told in done.stderr


def test_bench_counts_what_was_answered_and_what_failed(project: Path) -> None:
    rows = [
        {"agent_output": {"messages": [{"role": "assistant", "content": said}]}} for said in ("x", "broken")
    ]
    (project / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--input", "rows.jsonl", "--seconds", "0.3", "--concurrency", "2", "--json")
    done = run(project, "bench", "f.py:Exact", *words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["calls"] >= 2
    assert 0 < told["errors"]["exception"] < told["calls"]
    assert 0 < told["p50_ms"] <= told["p95_ms"] <= told["p99_ms"]


def test_serve_brings_changed_code_and_keeps_the_old_where_the_new_is_broken(project: Path) -> None:
    served = subprocess.Popen(
        [sys.executable, "-c", CLI, "serve", "f.py:Exact", "--reload"],
        cwd=project,
        env={**os.environ, "STROP_LANG": "en"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with served:
        assert served.stdout is not None
        lines = [served.stdout.readline() for _ in range(7)]
        url, token = lines[1].split()[1], lines[2].split()[1]
        body = {"agent_output": {"messages": [{"role": "assistant", "content": "4"}]}, "ground_truth": "4"}

        def score() -> float:
            headers = {"authorization": f"Bearer {token}"}
            answer = httpx.post(url, json=body, headers=headers, trust_env=False, timeout=60)
            return answer.json()["reward"]["reward_score"]

        assert score() == 1.0
        (project / "f.py").write_text(FUNCTIONS.replace("float(said", "3 * float(said"))
        assert served.stdout.readline() == "reloaded\n"
        assert score() == 3.0
        (project / "f.py").write_text("broken(")
        assert "the changed code does not start; the old code stays in use" in served.stdout.readline()
        assert score() == 3.0
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0
