"""One schema: a mistake is explained in the same words in a job file, in a request and in the client."""

from pathlib import Path

import pytest

from strop.client.tuning import FunctionComponentRuntime, Tuning, checked
from strop.config.function import (
    FunctionConfig,
    FunctionRuntime,
    FunctionSettings,
    RuntimeRequest,
    RuntimeSizes,
)
from strop.config.loading import load_job
from strop.doors.dashscope.job_request import JobFunctionRequest, read_job
from strop.errors import ConfigError

JOB = """\
model: smollm2-135m
datasets: [{{file_name: train.jsonl}}]
functions:
  - type: reward
    fcmodel: {{classpath: reward.py:Score}}
    {line}
"""

MISTAKES = {
    "timeout: 0": ("timeout", "must lie in [0.001, 86400], found 0"),
    "timeout: [1]": ("timeout", "expected a number, found a list"),
    "weight: -1": ("weight", "must lie in [0, 1000000], found -1"),
    "weigth: 2": ("weigth", "unknown key"),
    "runtime: {concurrency: 0}": ("concurrency", "must lie in [1, 10000], found 0"),
    "runtime: {memory_size: 1}": ("memory_size", "must lie in [64, 16777216], found 1"),
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_alike_by_file_client_and_door(tmp_path: Path, line: str):
    import yaml

    key, message = MISTAKES[line]
    (tmp_path / "train.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n' * 8)
    (tmp_path / "reward.py").write_text("class Score: pass\n")
    (tmp_path / "job.yaml").write_text(JOB.format(line=line))
    with pytest.raises(ConfigError) as of_file:
        load_job(tmp_path / "job.yaml")
    with pytest.raises(ConfigError) as of_client:
        checked(Tuning, yaml.safe_load(JOB.format(line=line)), subject="job")
    function = yaml.safe_load(line)
    flat = {"reward_id": "re-1", **function.pop("runtime", {}), **function}
    with pytest.raises(ConfigError) as of_door:
        read_job({"model": "smollm2-135m", "rewards": [flat]})
    [in_file], [in_client], [in_door] = (one.value.problems for one in (of_file, of_client, of_door))
    assert in_file.place == f"{tmp_path / 'job.yaml'}:6"
    assert in_file.message == in_client.message
    assert in_file.message.startswith("functions[0].")
    assert in_file.message.endswith(f"{key}: {message}")
    assert in_door.place == f"rewards[0].{key}"
    assert in_door.message == message
    assert in_file.fix
    assert in_client.fix
    if "unknown" in message:
        assert in_door.fix == "did you mean 'weight'?"


def test_what_a_client_may_say_of_a_function_is_what_a_job_has():
    assert set(FunctionSettings.model_fields) <= set(FunctionConfig.model_fields)
    assert set(RuntimeSizes.model_fields) <= set(FunctionRuntime.model_fields)
    assert set(FunctionRuntime.model_fields) <= set(RuntimeRequest.model_fields)
    assert issubclass(FunctionComponentRuntime, RuntimeRequest)
    assert issubclass(JobFunctionRequest, RuntimeRequest)
    assert issubclass(JobFunctionRequest, FunctionSettings)


def test_a_secret_is_not_repeated():
    with pytest.raises(ConfigError) as error:
        read_job({"model": "m", "rollout": {"rollout_id": "ro-1", "env": "KEY=s3cret"}})
    assert "s3cret" not in str(error.value)
    [problem] = error.value.problems
    assert (problem.place, problem.message) == ("rollout.env", "expected keys and values, found text")
