"""The service whole: a job submitted over HTTP, trained by a real trainer, with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fakes.model import save_tiny_model
from fakes.server import json_lines, serving, zipped
from strop.cli.commands import app
from strop.service.server_file import written_down
from strop.service.supervisor.trainers import TRAINER_COMMAND
from strop.store.home import home
from strop.store.models import register_model

FUNCTIONS = """
from openai import AsyncOpenAI, DefaultAioHttpClient

from dashscope.finetune.reinforcement import (
    AbstractRewardProcessor, AbstractRolloutProcessor, Reward, RewardInput, RewardOutput, RolloutInput,
    RolloutOutput,
)
from dashscope.finetune.reinforcement.component.data.base_data_model import AgentOutput, TaskStatus


class Agent(AbstractRolloutProcessor):
    def setup(self) -> None:
        self.client = AsyncOpenAI(api_key="set for each rollout", http_client=DefaultAioHttpClient())

    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        client = self.client.with_options(
            base_url=resource.base_url, api_key=resource.api_key.get_secret_value()
        )
        reply = await client.chat.completions.create(model=resource.model_name, messages=input.messages)
        said = {"role": "assistant", "content": reply.choices[0].message.content}
        print("rollout done")
        output = AgentOutput(messages=[*input.messages, said])
        return RolloutOutput(agent_output=output, status=TaskStatus.SUCCESS)


class ManyA(AbstractRewardProcessor):
    def process(self, input: RewardInput) -> RewardOutput:
        text = input.agent_output.messages[-1]["content"]
        score = sum(letter in "aA" for letter in text) / max(len(text), 8)
        return RewardOutput(reward=Reward(reward_score=score, reward_metrics={"letters": len(text)}))
"""

HYPER = {
    "algorithm": "gspo", "learning_rate": "0.02", "lr_scheduler_type": "constant", "lr_warmup_steps": 0,
    "batch_size": 4, "n_rollouts": 4, "n_epochs": 2, "max_length": 128, "max_prompt_length": 48,
    "max_tokens": 8, "eval_steps": 2, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 9,
}  # fmt: skip

ROWS = [{"messages": [{"role": "user", "content": f"hello {n}"}]} for n in range(8)]


@pytest.fixture
def model(tmp_path):
    return save_tiny_model(tmp_path / "model")


def submit(server, model, *, functions=FUNCTIONS, **changes):
    """Name the model, register both functions, upload rows of both kinds, submit."""
    with server.database.write() as session:
        register_model(session, "tiny", str(model))
    key = server.upload_bundle(zipped({"code/functions.py": functions, "requirements.txt": ""}))
    made = {
        kind: server.post(
            f"/fine-tunes/create/{kind}", {"name": "code/functions.py", "unique_key": key, "func": func}
        )
        for kind, func in (("rollout", "Agent"), ("reward", "ManyA"))
    }
    rows = server.upload_rows(ROWS)
    body = {
        "model": "tiny",
        "training_datasets": [{"file_id": rows}],
        "validation_datasets": [
            {"file_id": server.upload_rows(json_lines(ROWS[:4]), name="validation.jsonl")}
        ],
        "rollout": {**made["rollout"], "name": "agent", "timeout": 60},
        "rewards": [{**made["reward"], "name": "many_a", "weight": 1.0}],
        "hyper_parameters": HYPER,
        "job_name": "tiny",
        **changes,
    }
    return server.post("/fine-tunes", body)["job_id"]


JOB = f"""
job_name: tiny
model: tiny
tuned_model_name: tiny-tuned
datasets:
  - {{type: training, file_name: train.jsonl}}
  - {{type: validation, file_name: validation.jsonl}}
functions:
  - {{type: rollout, name: agent, timeout: 60, fcmodel: {{classpath: "code/functions.py:Agent"}}}}
  - {{type: reward, name: many_a, fcmodel: {{classpath: "code/functions.py:ManyA"}}}}
training: {{hyper_parameters: {json.dumps({**HYPER, "learning_rate": 0.02})}}}
"""


def test_a_job_that_strop_run_takes_to_the_server_here_trains_to_the_end_and_is_published(model, tmp_path):
    project = tmp_path / "project"
    (project / "code").mkdir(parents=True)
    (project / "code" / "functions.py").write_text(FUNCTIONS)
    (project / "job.yaml").write_text(JOB)
    for name, rows in (("train", ROWS), ("validation", ROWS[:4])):
        (project / f"{name}.jsonl").write_bytes(json_lines(rows))
    with (
        serving(home(), trainer=tuple(TRAINER_COMMAND)) as server,
        written_down(server.home, server.url),
    ):
        with server.database.write() as session:
            register_model(session, "tiny", str(model))
        done = CliRunner().invoke(app, ["run", str(project / "job.yaml"), "--json"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        job_id = told["job_id"]
        assert (told["status"], told["steps"], told["published_as"]) == ("SUCCEEDED", 4, "tiny-tuned")
        assert told["tokens_sampled"] > told["tokens_trained"] > 0
        assert [point["step"] for point in told["validation"]] == [0, 2, 4]
        assert Path(told["checkpoint"]) == server.home / "jobs" / job_id / "checkpoints" / "step-000004"
        job = server.job(job_id)
        assert (job["finetuned_output"], job["creator"]) == ("tiny-tuned", "first")
        assert (server.home / "models" / "tiny-tuned" / "model.safetensors").is_file()
        steps = [one["step"] for one in server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]]
        assert steps == [1, 2, 3, 4]
        curve = server.get(f"/fine-tunes/{job_id}/metrics")["metrics"]["critic/rewards/mean"]
        assert [one["step"] for one in curve] == [1, 2, 3, 4]
        page = server.get(f"/fine-tunes/{job_id}/trajectories", step=1, split="train")
        assert len(page["trajectories"]) == 16
        one = server.get(f"/fine-tunes/{job_id}/trajectories/{page['trajectories'][0]['rollout_id']}")
        assert one["turns"][0]["num_completion_tokens"] >= 1
        assert any("rollout done" in line for line in server.get(f"/fine-tunes/{job_id}/logs")["logs"])


def test_a_killed_trainer_goes_on_from_its_checkpoint_and_a_paused_one_where_it_was(model):
    import os
    import signal

    from fakes.server import eventually
    from strop.store.jobs import get_job, process_of

    with serving(home(), trainer=tuple(TRAINER_COMMAND)) as server:
        job_id = submit(server, model, hyper_parameters={**HYPER, "n_epochs": 6})

        def newest():
            saved = server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]
            return saved[-1]["step"] if saved else 0

        eventually(lambda: newest() >= 2, within_s=240)
        with server.database.read() as session:
            mark = process_of(get_job(session, job_id))
        os.kill(mark.pid, signal.SIGKILL)
        eventually(lambda: newest() >= 5, within_s=240)
        server.post(f"/fine-tunes/{job_id}/pause")
        server.becomes(job_id, "SUSPENDED", within_s=120)
        rested_at = newest()
        server.post(f"/fine-tunes/{job_id}/resume")
        job = server.becomes(job_id, "SUCCEEDED", "FAILED", within_s=240)
        assert job["status"] == "SUCCEEDED", job
        events = server.get(f"/fine-tunes/{job_id}/events")["events"]
        resumed = [one["step"] for one in events if one["kind"] == "resumed"]
        assert len(resumed) == 2
        assert resumed[0] >= 2
        assert resumed[1] == rested_at
        curve = server.get(f"/fine-tunes/{job_id}/metrics")["metrics"]["critic/rewards/mean"]
        assert [one["step"] for one in curve] == list(range(1, 13))


def test_a_model_is_measured_on_two_files_and_every_rollout_is_kept(model):
    with serving(home(), trainer=tuple(TRAINER_COMMAND)) as server:
        with server.database.write() as session:
            register_model(session, "tiny", str(model))
        key = server.upload_bundle(zipped({"code/functions.py": FUNCTIONS, "requirements.txt": ""}))
        made = {
            kind: server.post(
                f"/fine-tunes/create/{kind}", {"name": "code/functions.py", "unique_key": key, "func": func}
            )
            for kind, func in (("rollout", "Agent"), ("reward", "ManyA"))
        }
        names = ("first", "second")
        rows = [server.upload_rows(json_lines(ROWS[:4]), name=f"{name}.jsonl") for name in names]
        asked = {
            "model": "tiny",
            "datasets": [{"file_id": one} for one in rows],
            "rollout": {**made["rollout"], "name": "agent", "timeout": 60},
            "rewards": [{**made["reward"], "name": "many_a", "weight": 1.0}],
            "n_rollouts": 3,
            "temperature": 1.0,
            "hyper_parameters": {"max_tokens": 8, "max_length": 128, "max_prompt_length": 48},
        }
        ident = server.post("/evaluations", asked)["evaluation_id"]
        job = server.becomes(ident, "SUCCEEDED", "FAILED", within_s=240)
        assert job["status"] == "SUCCEEDED", job
        seen = server.get(f"/evaluations/{ident}")
        assert [one["dataset"] for one in seen["results"]] == ["1-first", "2-second"]
        for result in seen["results"]:
            page = server.get(f"/fine-tunes/{ident}/trajectories", split=result["dataset"], limit=100)
            rewards = [one["reward"] for one in page["trajectories"]]
            assert len(rewards) == 4 * 3
            assert result["mean"] == pytest.approx(sum(rewards) / len(rewards))
            assert (result["num_samples"], result["num_failed"], result["n_rollouts"]) == (4, 0, 3)
        assert seen["mean"] == pytest.approx(sum(one["mean"] for one in seen["results"]) / 2)
        assert server.get(f"/fine-tunes/{ident}/checkpoints")["total"] == 0
