"""On-policy distillation: what a job may say, and how it goes through the flow without a reward."""

from pathlib import Path

import pytest

from fakes.capture import FakeCapture
from fakes.critic import sequences_in
from fakes.functions import FakeFunctions, last_digit, one_call_agent
from fakes.learner import FakeCheckpoints, FakeLearner
from fakes.recorder import FakeRecorder
from fakes.weight_sync import FakeWeightSync
from strop.config.describing import describe
from strop.config.job import JobConfig
from strop.config.loading import load_job
from strop.data.dataset import Dataset
from strop.errors import ConfigError
from strop.rl.interfaces import Backends
from strop.rl.loop import train
from strop.rl.stop import StopFlag
from strop.schema.function import TaskStatus
from strop.schema.job import JobStatus
from strop.schema.sample import Sample

JOB = """\
model: smollm2-135m
datasets: [{file_name: train.jsonl}]
training:
  type: pg_opd
  teacher_model: teacher
  hyper_parameters:
    learning_rate: 1e-6
    batch_size: 2
"""
HYPER = "training.hyper_parameters"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 8)
    (tmp_path / "teacher").mkdir()
    (tmp_path / "reward.py").write_text("class Right: ...\n")
    return tmp_path


def loaded(folder: Path, text: str) -> JobConfig:
    (folder / "job.yaml").write_text(text)
    return load_job(folder / "job.yaml")


def complaints(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def edited(old: str, new: str) -> str:
    assert JOB.count(old) == 1
    return JOB.replace(old, new)


def test_pure_distillation_needs_no_function(folder):
    config = loaded(folder, JOB)
    assert config.distils
    assert config.functions == ()
    assert config.training.teacher_model == str(folder / "teacher")
    assert describe(config)["training"]["teacher_model"] == str(folder / "teacher")


def test_without_a_teacher_it_is_refused(folder):
    assert complaints(folder, edited("  teacher_model: teacher\n", "")) == [
        "job.yaml:3: training.teacher_model: missing: in training type pg_opd a teacher judges the student's "
        "tokens (add teacher_model: a larger model of the student's family)"
    ]


@pytest.mark.parametrize("kind", ["  type: reinforcement\n", ""])
def test_a_teacher_without_distillation_is_refused(folder, kind: str):
    text = (
        edited("  type: pg_opd\n", kind)
        + "functions: [{type: reward, fcmodel: {classpath: reward.py:Right}}]\n"
    )
    line = 5 if kind else 4
    assert complaints(folder, text) == [
        f"job.yaml:{line}: training.teacher_model: has no effect in training type reinforcement "
        "(set training.type: pg_opd, or remove it)"
    ]


def test_reinforcement_needs_a_function(folder):
    text = edited("  type: pg_opd\n  teacher_model: teacher\n", "")
    assert any("functions: missing" in line for line in complaints(folder, text))


def test_a_teacher_that_is_no_folder_is_refused(folder):
    [line] = complaints(folder, edited("teacher_model: teacher", "teacher_model: ./nobody"))
    assert line.startswith("job.yaml:5: training.teacher_model: no such folder: nobody")


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        ("kl_loss_coef: 0.001", "kl_loss_coef", "has no effect in training type pg_opd"),
        ("filter_groups: true", "filter_groups", "has no effect in training type pg_opd"),
        ("overlong_buffer_len: 64", "overlong_buffer_len", "has no effect in training type pg_opd"),
        ("algorithm: ppo", "algorithm", "ppo works on rewards, but here a teacher judges"),
        ("algorithm: dapo", "algorithm", "dapo works on rewards, but here a teacher judges"),
        ("truncation_policy: penalise", "truncation_policy", "penalise lowers a reward"),
    ],
)
def test_what_works_on_rewards_is_refused(folder, line: str, key: str, message: str):
    [found] = complaints(folder, JOB + f"    {line}\n")
    assert found.startswith(f"job.yaml:9: {HYPER}.{key}: {message}")


def test_validation_without_a_function_is_refused(folder):
    (folder / "held_out.jsonl").write_text('{"messages": []}\n' * 8)
    text = edited(
        "[{file_name: train.jsonl}]",
        "[{file_name: train.jsonl}, {type: validation, file_name: held_out.jsonl}]",
    )
    [line] = complaints(folder, text)
    assert "there is no function to validate with" in line


class Bench:
    def __init__(self, folder: Path, policy=None) -> None:
        self.folder = folder
        self.capture = FakeCapture(*([policy] if policy else []))
        self.functions = FakeFunctions(agent=one_call_agent(self.capture), right=last_digit)
        self.learner, self.recorder = FakeLearner(), FakeRecorder()

    async def train(self, *functions: str):
        kinds = {"agent": "rollout", "right": "reward"}
        config = JobConfig.model_validate(
            {
                "model": "m",
                "datasets": [{"file_name": "train.jsonl"}],
                "functions": [
                    {"type": kinds[name], "name": name, "fcmodel": {"classpath": "a.B"}} for name in functions
                ],
                "training": {
                    "type": "pg_opd",
                    "teacher_model": "t",
                    "hyper_parameters": {
                        "batch_size": 2,
                        "n_rollouts": 4,
                        "max_steps": 1,
                        "max_length": 64,
                        "max_prompt_length": 32,
                    },
                },
            }
        )
        samples = tuple(
            Sample(sample_id=str(row), row=row, messages=[{"role": "user", "content": f"task {row}"}])
            for row in range(2)
        )
        backends = Backends(
            gateway=self.capture,
            functions=self.functions,
            learner=self.learner,
            checkpoints=FakeCheckpoints(self.learner),
            weight_sync=FakeWeightSync(),
            recorder=self.recorder,
        )
        data = Dataset(path=Path("train.jsonl"), samples=samples)
        return await train(config, backends, data, None, job_id="job", folder=self.folder, stop=StopFlag())


async def test_rollouts_without_a_reward_are_trained_on(tmp_path):
    bench = Bench(tmp_path)
    result = await bench.train()
    assert result.status is JobStatus.SUCCEEDED
    (batch,) = bench.learner.batches
    assert len(sequences_in(batch)) == 8
    (group, _) = bench.recorder.groups["train", 1]
    assert {one.reward for one in group.trajectories} == {None}
    assert {one.status for one in group.trajectories} == {TaskStatus.SUCCESS}


async def test_rewards_are_measured_and_equal_ones_do_not_stop_the_learning(tmp_path):
    bench = Bench(tmp_path, policy=lambda sampling, messages: "1")
    await bench.train("agent", "right")
    assert len(bench.learner.batches) == 1
    values = bench.recorder.values[1]
    assert values["critic/rewards/mean"] == 1.0
    assert values["trace/distillation/empty_response_rate"] == 0.0
    assert "critic/advantages/mean" not in values
    assert "step_without_gradient" not in bench.recorder.kinds()


async def test_answers_without_a_token_are_counted_and_left_out(tmp_path):
    bench = Bench(tmp_path, policy=lambda sampling, messages: "" if (sampling.seed or 0) % 2 else "0")
    await bench.train()
    members = [one for group in bench.recorder.groups["train", 1] for one in group.trajectories]
    empty = sum(not one.num_sampled_tokens for one in members)
    assert 0 < empty < 8
    assert len(sequences_in(bench.learner.batches[0])) == 8 - empty
    assert bench.recorder.values[1]["trace/distillation/empty_response_rate"] == empty / 8
