"""A good job file and the files it names, to be spoilt by tests."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
job_name: calculator
model: smollm2-135m
datasets:
  - type: training
    file_name: data/train.jsonl
  - type: validation
    file_name: data/validation.jsonl
functions:
  - type: rollout
    name: agent
    fcmodel:
      classpath: functions/agent.py:Agent
  - type: reward
    name: right
    weight: 0.9
    timeout: 10
    fcmodel:
      classpath: functions/reward.py:Right
    runtime:
      env:
        JUDGE_KEY: secret-value
training:
  hyper_parameters:
    algorithm: gspo
    learning_rate: 2e-6
    batch_size: 8
    n_rollouts: 4
    max_steps: 5
    eval_steps: 2
    save_strategy: no
    max_length: 256
    max_prompt_length: 128
"""

ROW = '{"messages": [{"role": "user", "content": "1 + 1"}]}\n'


def lay_out(folder: Path) -> Path:
    """Make all that the good file names, below `folder`."""
    (folder / "data").mkdir()
    (folder / "functions").mkdir()
    (folder / "data/train.jsonl").write_text(ROW * 20)
    (folder / "data/validation.jsonl").write_text(ROW)
    (folder / "functions/agent.py").write_text("class Agent: ...\n")
    (folder / "functions/reward.py").write_text("class Right: ...\n")
    return folder


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def edited(old: str, new: str) -> str:
    """The good file with one place changed."""
    assert GOOD.count(old) == 1, f"{old!r} must stand once in the good file"
    return GOOD.replace(old, new)
