"""A training with a second model: PPO's critic, and a teacher to distil from."""

from __future__ import annotations

import math
from pathlib import Path

from fakes.model import save_tiny_model
from fakes.training import train_job
from strop.store.database import open_database
from strop.store.home import home
from strop.store.metrics import step_metrics


def curves(job_id: str, *names: str) -> list[list[float]]:
    """The values of each metric by step."""
    database = open_database(f"sqlite:///{home()}/strop.db")
    with database.read() as session:
        found = step_metrics(session, job_id, list(names))
    database.close()
    return [[value for _, value in found[name]] for name in names]


def test_ppo_raises_the_reward_and_its_checkpoint_holds_the_critic_to_go_on_with(
    job_folder: Path, tmp_path: Path
) -> None:
    job, out = job_folder / "job.yaml", tmp_path / "out"
    ppo = {"algorithm": "ppo", "critic_learning_rate": 0.01, "critic_warmup": 1}
    told = train_job(job, out=out, max_steps=10, **ppo)
    assert told["status"] == "SUCCEEDED"
    before, *_, after = [point["mean_at_1"] for point in told["validation"]]
    assert after - before > 0.25
    checkpoint = Path(told["checkpoint"])
    assert (checkpoint / "trainer" / "critic.safetensors").is_file()

    losses, explained, updates = curves(
        told["job_id"], "critic/vf_loss", "critic/vf_explained_var", "actor/num_updates"
    )
    assert len(losses) == len(explained) == 10
    assert len(updates) == 9  # none in the step that warms the critic up
    assert all(math.isfinite(value) for value in (*losses, *explained))

    resumed = train_job(job, out=out, resume=checkpoint, max_steps=11, **ppo)
    assert (resumed["steps"], resumed["status"]) == (11, "SUCCEEDED")


def test_a_student_is_distilled_from_a_teacher_without_any_function(job_folder: Path) -> None:
    save_tiny_model(job_folder / "teacher", seed=1)
    job = f"""
model: {job_folder / "model"}
datasets: [{{file_name: train.jsonl}}]
training:
  type: pg_opd
  teacher_model: teacher
  hyper_parameters: {{algorithm: grpo, learning_rate: 0.001, batch_size: 4, n_rollouts: 4, max_steps: 2,
    max_length: 128, max_prompt_length: 48, max_tokens: 12, save_strategy: "no"}}
"""
    (job_folder / "distil.yaml").write_text(job)
    told = train_job(job_folder / "distil.yaml")
    assert (told["steps"], told["status"]) == (2, "SUCCEEDED")
    losses, valid, empty = curves(
        told["job_id"],
        "actor/distillation/loss",
        "trace/distillation/valid_token_rate",
        "trace/distillation/empty_response_rate",
    )
    assert len(losses) == 2
    assert all(math.isfinite(value) for value in losses)
    assert valid == [1.0, 1.0]
    assert len(empty) == 2
