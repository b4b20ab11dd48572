"""Every name of the two clouds' training configurations: read, translated, or refused with what to do."""

from pathlib import Path

import pytest

from strop.config.loading import load_job
from strop.errors import ConfigError

HEAD = """\
model: smollm2-135m
datasets:
  - {file_name: train.jsonl}
  - {type: validation, file_name: held_out.jsonl}
functions: [{type: reward, name: r, fcmodel: {classpath: reward.py:R}%s}]
training:
%s"""

# Bailian: the 15 that its page requires, with its values for a quick run of a 9B model.
READ = {
    "algorithm": "gspo",
    "kl_loss_coef": "0.002",
    "learning_rate": "2e-6",
    "lr_scheduler_type": "linear",
    "lr_warmup_steps": "-1",
    "n_epochs": "1",
    "batch_size": "64",
    "n_rollouts": "8",
    "ppo_mini_batch_size": "8",
    "max_length": "8192",
    "max_prompt_length": "1024",
    "eval_steps": "1",
    "save_steps": "100",
    "save_strategy": "epoch",
    "save_total_limit": "1",
}
CLUSTER = (
    *(f"{name}_{part}" for name in ("n_gpus", "nnodes") for part in ("rollout", "training")),
    "inference_tensor_parallel_size",
    "inference_gpu_memory_utilization",
    *(f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "sequence", "expert_model")),
)
TEACHER = (
    "nnodes",
    "n_gpus_per_node",
    "inference_tensor_parallel_size",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_replicas",
)
CONTAINER = (
    "enable_vpc_config",
    "layer_code",
    "vpc_id",
    "switch_ids",
    "security_group_id",
    "vpc_role",
    "enable_log",
)


@pytest.fixture
def load(tmp_path: Path):
    for name in ("train", "held_out"):
        (tmp_path / f"{name}.jsonl").write_text("{}\n" * 200)
    (tmp_path / "reward.py").write_text("class R: ...\n")

    def load(training: str, function: str = ""):
        path = tmp_path / "job.yaml"
        path.write_text(HEAD % (function, training))
        return load_job(path)

    return load


def fix_of(load, *given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*given)
    (problem,) = caught.value.problems
    assert "unknown key" in problem.message
    return problem.fix or ""


def test_the_fifteen_that_bailian_requires_are_read_as_they_are(load) -> None:
    hyper = load(
        "  hyper_parameters:\n" + "".join(f"    {name}: {value}\n" for name, value in READ.items())
    ).hyper_parameters
    for name, value in READ.items():
        assert str(getattr(hyper, name)) == str(type(getattr(hyper, name))(value)), name


@pytest.mark.parametrize("name", CLUSTER)
def test_what_lays_out_a_cluster_is_refused_with_the_reason(load, name: str) -> None:
    assert "uses what the machine has: remove it" in fix_of(load, f"  hyper_parameters: {{{name}: 2}}\n")


@pytest.mark.parametrize("name", TEACHER)
def test_what_sizes_the_servers_of_a_teacher_is_refused_with_the_reason(load, name: str) -> None:
    fix = fix_of(load, f"  hyper_parameters: {{opd_teacher_{name}: 2}}\n")
    assert "computed in the trainer here: remove it" in fix


@pytest.mark.parametrize("name", CONTAINER)
def test_what_sets_up_a_cloud_container_is_refused_with_the_reason(load, name: str) -> None:
    fix = fix_of(load, "  hyper_parameters: {}\n", f", runtime: {{{name}: 2}}")
    assert fix.endswith("remove it")
    assert "known here" not in fix


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("warmup_step_rate", "-1 for 3 % of the run"),
        ("beta", "'dpo_beta' in DPO, 'kl_loss_coef' in reinforcement"),
        ("top_k", "the whole distribution"),
    ],
)
def test_what_other_trainings_of_ark_call_it_is_refused_with_the_word_here(load, name, words) -> None:
    assert words in fix_of(load, f"  hyper_parameters: {{{name}: 2}}\n")
