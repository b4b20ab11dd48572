"""`AgenticRL().run(...)` of the unmodified packages: whole trainings, functions written for DashScope."""

from __future__ import annotations

import json

import pytest

from fakes.dashscope_project import Project, environment
from fakes.model import save_tiny_model
from fakes.server import Server, eventually, serving
from strop.service.server_file import written_down
from strop.service.supervisor.trainers import TRAINER_COMMAND
from strop.store.home import home
from strop.store.models import register_model

pytestmark = pytest.mark.slow

FUNCTIONS = """
from openai import AsyncOpenAI

from dashscope.finetune.reinforcement import (
    AbstractRewardProcessor, AbstractRolloutProcessor, Reward, RewardInput, RewardOutput, RolloutInput,
    RolloutOutput,
)
from dashscope.finetune.reinforcement.component.data.base_data_model import AgentOutput, TaskStatus
from dashscope.finetune.reinforcement.component.observability import observe_processor, trace_client


class Agent(AbstractRolloutProcessor):
    @observe_processor
    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        key = resource.api_key.get_secret_value()
        async with AsyncOpenAI(base_url=resource.base_url, api_key=key) as client:
            trace_client(client)
            reply = await client.chat.completions.create(model=resource.model_name, messages=input.messages)
        said = {"role": "assistant", "content": reply.choices[0].message.content}
        output = AgentOutput(messages=[*input.messages, said])
        return RolloutOutput(agent_output=output, status=TaskStatus.SUCCESS)


class ManyA(AbstractRewardProcessor):
    @observe_processor
    async def process(self, input: RewardInput) -> RewardOutput:
        text = input.agent_output.messages[-1]["content"]
        score = sum(letter in "aA" for letter in text) / max(len(text), 8)
        return RewardOutput(reward=Reward(reward_score=score), status=TaskStatus.SUCCESS)
"""

SCRIPT = """
import asyncio, json
from dashscope.finetune.reinforcement import (
    DataSourceType, FunctionComponentModel, FunctionComponentRuntime, RewardFunctionComponent,
    RolloutFunctionComponent, TrainingDataset, ValidationDataset,
)
from dashscope.finetune.agentic_rl import AgenticRL

def component(kind, name, classpath, **more):
    return kind(name=name, fcmodel=FunctionComponentModel(classpath=classpath),
                runtime=FunctionComponentRuntime(concurrency=8, cpu=2, memory_size=4096), **more)

def rows(kind, path):
    return kind(data_source_type=DataSourceType.FILE_ID, file_name=path)

made = asyncio.run(AgenticRL().run(
    model="tiny",
    training_datasets=[rows(TrainingDataset, "data/train.jsonl")],
    validation_datasets=[rows(ValidationDataset, "data/validation.jsonl")],
    functions=[
        component(RolloutFunctionComponent, "agent", "functions/all.py:Agent", timeout=60),
        component(RewardFunctionComponent, "many_a", "functions.all.ManyA", weight=1.0),
    ],
    hyper_parameters=HYPER,
    resources={"charge_type": "mtu_postpaid", "mtu_spec_code": "MTU4", "mtu_capacity": 24},
    job_name="whole",
))
print(json.dumps([made.status_code, made.message, made.output.job_id if made.output else None]))
"""

HYPER = {
    "algorithm": "gspo", "learning_rate": "0.02", "lr_scheduler_type": "constant", "lr_warmup_steps": 0,
    "batch_size": 4, "n_rollouts": 2, "n_epochs": 1, "max_length": 128, "max_prompt_length": 48,
    "max_tokens": 6, "eval_steps": 9, "save_strategy": "epoch", "n_gpus_rollout": 8,
}  # fmt: skip


WITH_THE_PACKAGE = "openai\ndashscope==2.0.2\nloongsuite-util-genai\nopentelemetry-processor-baggage\n"
"""Its spans of model calls need the last two."""


@pytest.mark.parametrize(
    ("version", "requirements"),
    [("2.0.2", "openai\n"), ("1.25.23", "openai\n"), ("2.0.2", WITH_THE_PACKAGE)],
    ids=["2.0.2", "1.25.23", "2.0.2 with its own classes in the worker"],
)
def test_a_whole_training_started_by_the_client(tmp_path, version, requirements):
    with (
        serving(home(), trainer=tuple(TRAINER_COMMAND)) as server,
        written_down(home(), server.url),
    ):
        with server.database.write() as session:
            register_model(session, "tiny", str(save_tiny_model(tmp_path / "model")))
        project = Project(tmp_path / "project", environment(version), server)
        (project.folder / "functions" / "all.py").write_text(FUNCTIONS)
        (project.folder / "requirements.txt").write_text(requirements)
        status, message, job_id = project.script(f"HYPER = {HYPER!r}\n{SCRIPT}")
        assert (status, message) == (200, "")
        job = server.becomes(job_id, "SUCCEEDED", "FAILED", within_s=400)
        assert job["status"] == "SUCCEEDED", job
        assert project.json("rl", "get", job_id, "-o", "json")["status"] == "SUCCEEDED"
        curve = server.get(f"/fine-tunes/{job_id}/metrics", names="critic/rewards/mean")["metrics"]
        assert [one["step"] for one in curve["critic/rewards/mean"]] == [1, 2, 3, 4]
        failed = server.get(f"/fine-tunes/{job_id}/trajectories", status="failed", limit=5)["trajectories"]
        assert failed == []
        check_spans(server, job_id)
        notes = json.dumps(server.get(f"/fine-tunes/{job_id}/events"))
        assert "n_gpus_rollout" in notes
        assert "resources.* have no effect on a single machine" in notes


def check_spans(server: Server, job_id: str) -> None:
    """One rollout's decorated calls, from two workers and the trainer, make one trace."""
    listed = server.get(f"/fine-tunes/{job_id}/trajectories", split="train", limit=1)["trajectories"]
    ids = {"rollout_id": listed[0]["rollout_id"]}

    def spans() -> list[dict[str, object]]:
        return server.get(f"/fine-tunes/{job_id}/spans", **ids)["spans"]

    eventually(lambda: {"invoke_rollout Agent", "invoke_reward ManyA"} <= {one["name"] for one in spans()})
    found = spans()
    assert len({one["trace_id"] for one in found}) == 1
    by_name = {one["name"]: one for one in found if one["scope"] != "strop.inference.gateway"}
    rollout, reward = by_name["invoke_rollout Agent"], by_name["invoke_reward ManyA"]
    calls = [one for name, one in by_name.items() if name.startswith("chat ")]
    assert [one["parent_span_id"] for one in calls] == [rollout["span_id"]]
    assert rollout["parent_span_id"] == reward["parent_span_id"]
    assert (rollout["kind"], reward["kind"]) == ("ROLLOUT", "REWARD")
