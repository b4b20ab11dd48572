from typing import Any

import pytest
from pydantic import ValidationError

from strop.schema.config import HyperParameters, JobConfig
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
        ("gspo", {"clip_ratio_low": 1e-3, "clip_ratio_high": 2e-3}, (1e-3, 2e-3)),
    ],
)
def test_the_clip_range_follows_the_algorithm_unless_set(
    algorithm: str, given: dict[str, float], clip: tuple[float, float]
) -> None:
    assert HyperParameters.model_validate({"algorithm": algorithm, **given}).clip_range == clip


def test_a_mini_batch_is_the_whole_batch_unless_set() -> None:
    assert HyperParameters(batch_size=12).mini_batch_size == 12
    assert HyperParameters(batch_size=12, ppo_mini_batch_size=4).mini_batch_size == 4


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_rollouts": 1}, "greater than or equal to 2"),
        ({"temperature": 0}, "greater than 0"),
        ({"learning_rate": -1e-6}, "greater than or equal to 0"),
        ({"kl_loss_coef": 11}, "less than or equal to 10"),
        ({"algorithm": "gpo"}, "'gspo' or 'grpo'"),
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
        ({"functions": [rollout, {**rollout, "name": "b"}, reward]}, "at most one rollout"),
        ({"functions": [reward, reward]}, "stands twice"),
        ({"datasets": [{"type": "validation", "file_name": "v.jsonl"}]}, "exactly one of type training"),
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
