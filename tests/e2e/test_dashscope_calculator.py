"""The calculator example through the unmodified package: trained, published, deployed, answering.

Its classes import `dashscope.finetune.reinforcement`; that package is not installed where they run.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

import openai
import pytest

from fakes.calculator import WORDING
from fakes.dashscope_project import Project, environment
from fakes.server import eventually, serving
from strop.service.supervisor.trainers import TRAINER_COMMAND

EXAMPLE = Path(__file__).parents[2] / "examples" / "calculator"

SCRIPT = """
import asyncio, json
from dashscope.finetune.reinforcement import (
    DataSourceType, FunctionComponentModel, GroupRewardFunctionComponent, RewardFunctionComponent,
    RolloutFunctionComponent, TrainingDataset,
)
from dashscope.finetune.agentic_rl import AgenticRL

def component(kind, name, classpath, **more):
    return kind(name=name, fcmodel=FunctionComponentModel(classpath=classpath), **more)

made = asyncio.run(AgenticRL().run(
    model="smollm2-135m",
    training_datasets=[
        TrainingDataset(data_source_type=DataSourceType.FILE_ID, file_name="data/train.jsonl")
    ],
    functions=[
        component(RolloutFunctionComponent, "agent", "functions/agent.py:CalculatorAgent", timeout=120),
        component(RewardFunctionComponent, "correct", "functions/reward.py:Correct", weight=0.9),
        component(RewardFunctionComponent, "wording", "functions/reward.py:Wording", weight=1.0),
        component(GroupRewardFunctionComponent, "brief", "functions/reward.py:Brief", weight=0.1),
    ],
    hyper_parameters=HYPER,
    job_name="calculator",
))
print(json.dumps([made.status_code, made.message, made.output.job_id if made.output else None]))
"""

HYPER = {
    "algorithm": "gspo", "learning_rate": "3e-5", "lr_scheduler_type": "constant", "lr_warmup_steps": 0,
    "max_steps": 2, "batch_size": 1, "n_rollouts": 2, "max_length": 320, "max_prompt_length": 128,
    "max_tokens": 20, "save_strategy": "no", "freeze_embeddings": True,
}  # fmt: skip


def written_for_dashscope(folder: Path) -> None:
    """The example's code and rows, with the imports that its authors would have written for DashScope."""
    shutil.copytree(EXAMPLE / "functions", folder / "functions", dirs_exist_ok=True)
    shutil.copytree(EXAMPLE / "data", folder / "data", dirs_exist_ok=True)
    for name in ("agent.py", "reward.py"):
        path = folder / "functions" / name
        source = path.read_text().replace("from strop import", "from dashscope.finetune.reinforcement import")
        assert "dashscope.finetune.reinforcement" in source
        path.write_text(source + (WORDING if name == "reward.py" else ""))
    (folder / "requirements.txt").write_text("openai[aiohttp]\n")


@pytest.mark.slow
@pytest.mark.timeout(1200)  # what is waited for has limits of its own
def test_the_calculator_is_trained_deployed_and_answers_by_the_clients_calls(
    own_home: Path, tmp_path: Path
) -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):  # the worker must not find the real one
        importlib.metadata.distribution("dashscope")
    with serving(own_home, trainer=tuple(TRAINER_COMMAND)) as server:
        project = Project(tmp_path / "project", environment("2.0.2"), server)
        written_for_dashscope(project.folder)
        status, message, job_id = project.script(f"HYPER = {HYPER!r}\n{SCRIPT}")
        assert (status, message) == (200, "")
        job = server.becomes(job_id, "SUCCEEDED", "FAILED", within_s=400)
        assert job["status"] == "SUCCEEDED", job
        curves = server.get(f"/fine-tunes/{job_id}/metrics")["metrics"]
        assert [one["step"] for one in curves["critic/rewards/mean"]] == [1, 2]
        rollouts = server.get(f"/fine-tunes/{job_id}/trajectories", split="train")["trajectories"]
        assert len(rollouts) == 2 * 1 * 2
        assert {one["status"] for one in rollouts} == {"success"}
        assert all(set(one["reward_parts"]) == {"correct", "wording", "brief"} for one in rollouts)

        deployed = project.script(
            "import dashscope, json\n"
            f"made = dashscope.Deployments.call(model={job['finetuned_output']!r}, capacity=1, suffix='a')\n"
            "print(json.dumps([made.status_code, made.output.deployed_model]))"
        )
        assert deployed[0] == 200
        name = deployed[1]
        server.deployed(name)
        assert "status: RUNNING" in project.cli("deployments", "get", name)  # its start takes seconds: once
        with openai.OpenAI(base_url=f"{server.url}/compatible-mode/v1", api_key=server.key) as client:
            answer = client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "What is 35 + 48?"}], max_tokens=8
            )
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert 1 <= answer.usage.completion_tokens <= 8
        shown = json.loads(server.http.get(f"/models/{job['finetuned_output']}").text)["output"]
        assert (shown["lineage"]["job_id"], shown["lineage"]["step"]) == (job_id, 2)
        project.cli("deployments", "delete", name)
        eventually(lambda: server.http.get(f"/deployments/{name}").status_code == 404)
