from typing import Any

import pytest
from pydantic import ValidationError

from strop.config.job import HyperParameters, JobConfig
from strop.schema.job import ALLOWED_MOVES, JobStatus

JOB: dict[str, Any] = {
    "job_name": "j",
    "model": "smollm2-135m",
    "datasets": [{"type": "training", "file_name": "t.jsonl"}],
    "functions": [{"type": "reward", "name": "r", "fcmodel": {"classpath": "f.py:R"}}],
}


def test_a_model_is_named_by_a_string_or_by_its_name_key() -> None:
    assert JobConfig.model_validate(JOB).model.name == "smollm2-135m"
    assert JobConfig.model_validate({**JOB, "model": {"name": "m"}}).model.name == "m"


@pytest.mark.parametrize(
    ("algorithm", "given", "clip"),
    [
        ("gspo", {}, (3e-4, 4e-4)),
        ("grpo", {}, (0.2, 0.2)),
        ("dapo", {}, (0.2, 0.28)),
        ("cispo", {"clip_ratio_high": 0.5}, (1.0, 0.5)),
        ("gspo", {"clip_ratio_low": 1e-3, "clip_ratio_high": 2e-3}, (1e-3, 2e-3)),
    ],
)
def test_the_clip_range_follows_the_algorithm_unless_set(
    algorithm: str, given: dict[str, float], clip: tuple[float, float]
) -> None:
    assert HyperParameters.model_validate({"algorithm": algorithm, **given}).clip_range == clip


def test_what_the_algorithm_decides_can_be_set_instead() -> None:
    def made(**values: Any) -> HyperParameters:
        return HyperParameters.model_validate(values)

    assert made(algorithm="grpo").dual_clip_bound == 3.0
    assert made(algorithm="grpo", dual_clip=0).dual_clip_bound is None
    assert made(algorithm="dapo").dual_clip_bound is None
    assert made(algorithm="dapo", dual_clip=10).dual_clip_bound == 10.0
    assert made(algorithm="dr_grpo").aggregation == "seq-mean-token-sum-norm"
    assert made(algorithm="dr_grpo", loss_agg_mode="token-sum").aggregation == "token-sum"
    assert made(rollout_is="token").is_threshold == 2.0
    assert made(rollout_is="sequence").is_threshold == 5.0
    assert made(rollout_is="sequence", rollout_is_threshold=3).is_threshold == 3.0
    assert made(rollout_rs="geometric").rs_band == (0.99, 1.01)
    assert made(rollout_rs="token", rollout_rs_high=4).rs_band == (0.5, 4.0)


def test_a_mini_batch_is_the_whole_batch_unless_set() -> None:
    assert HyperParameters(batch_size=12).mini_batch_size == 12
    assert HyperParameters(batch_size=12, ppo_mini_batch_size=4).mini_batch_size == 4


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_rollouts": 0}, "greater than or equal to 1"),
        ({"algorithm": "ppo", "critic_learning_rate": 0}, "critic_learning_rate: 0 keeps every value at 0"),
        (
            {"algorithm": "ppo", "critic_warmup": 5, "max_steps": 5},
            "critic_warmup: 5 takes up all of max_steps 5",
        ),
        ({"algorithm": "grpo", "lam": 0.9}, "lam: has no effect with grpo; it belongs to ppo"),
        ({"algorithm": "ppo", "gamma": 1.5}, "less than or equal to 1"),
        ({"algorithm": "ppo", "cliprange_value": -1}, "greater than or equal to 0"),
        ({"temperature": 0}, "greater than or equal to 0.01"),
        ({"learning_rate": -1e-6}, "greater than 0"),
        ({"kl_loss_coef": 11}, "less than or equal to 10"),
        ({"algorithm": "gpo"}, "gspo, grpo, dr_grpo, .*; found 'gpo'; did you mean 'gspo'"),
        ({"algorithm": "gspo", "dual_clip": 3}, "dual_clip: has no effect with gspo; it belongs to grpo, "),
        ({"algorithm": "sapo", "clip_ratio_low": 0.2}, "clip_ratio_low: has no effect with sapo"),
        ({"algorithm": "grpo", "tau_pos": 2}, "tau_pos: has no effect with grpo; it belongs to sapo"),
        (
            {"algorithm": "grpo", "gamma": 0.9},
            "gamma: has no effect with grpo; it belongs to ppo, reinforce_pp",
        ),
        ({"algorithm": "grpo", "dual_clip": 0.5}, "dual_clip: must be above 1"),
        ({"kl_loss_type": "k3"}, "kl_loss_type: has no effect while kl_loss_coef is 0"),
        ({"kl_reward_type": "k3"}, "kl_reward_type: has no effect while kl_reward_coef is 0"),
        ({"kl_loss_type": "k4", "kl_loss_coef": 1}, "'k3\\+' or 'abs'"),
        ({"reference_kl": False, "kl_loss_coef": 0.1}, "reference_kl: cannot be off"),
        ({"reference_kl": False, "kl_reward_coef": 0.1}, "reference_kl: cannot be off"),
        ({"rollout_is_threshold": 2}, "rollout_is_threshold: has no effect while rollout_is is none"),
        ({"rollout_rs_low": 0.5}, "rollout_rs_low: has no effect while rollout_rs is none"),
        ({"rollout_rs_high": 1.5}, "rollout_rs_high: has no effect while rollout_rs is none"),
        ({"rollout_is": "token", "rollout_is_threshold": 0.5}, "greater than or equal to 1"),
        ({"rollout_rs": "token", "rollout_rs_low": 1.5}, "less than 1"),
        ({"entropy_coeff": -1}, "greater than or equal to 0"),
        ({"loss_agg_mode": "mean"}, "token-mean"),
        ({"learning_rat": 1e-6}, "Extra inputs"),
        ({"max_prompt_length": 1024, "max_length": 1024}, "must be below max_length"),
        ({"batch_size": 8, "ppo_mini_batch_size": 3}, "must divide batch_size"),
        ({"clip_ratio_low": 0.5, "clip_ratio_high": 0.1}, "must not exceed"),
    ],
)
def test_a_hyper_parameter_out_of_its_range_or_at_odds_with_another_is_refused(
    values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        HyperParameters.model_validate(values)


def test_a_second_rollout_function_a_name_used_twice_and_a_missing_training_set_are_refused() -> None:
    rollout = {"type": "rollout", "name": "a", "fcmodel": {"classpath": "f.py:A"}}
    reward = JOB["functions"][0]
    for change, words in [
        ({"functions": [rollout, {**rollout, "name": "b"}, reward]}, "at most one of type rollout"),
        ({"functions": [reward, reward]}, "is used twice"),
        ({"datasets": [{"type": "validation", "file_name": "v.jsonl"}]}, "no dataset of type training"),
        ({"functions": [{**rollout, "weight": 0.5}]}, "no effect on a rollout"),
    ]:
        with pytest.raises(ValidationError, match=words):
            JobConfig.model_validate({**JOB, **change})


def test_final_statuses_lead_nowhere_and_every_status_has_a_row() -> None:
    assert set(ALLOWED_MOVES) == set(JobStatus)
    assert {status for status in JobStatus if status.final} == {
        JobStatus.SUCCEEDED,
        JobStatus.FAILED,
        JobStatus.CANCELED,
    }
