"""The same curves under Ark's names."""

import re
from pathlib import Path

from strop.tracing.ark_view import UNMEASURED, ark_name, by_ark_name, table
from strop.tracing.metrics import all_metrics, metric

ARKS = (
    *(f"train/{name}" for name in ("batch_size", "epoch", "global_step", "num_sampling", "num_samples")),
    "train/num_replicated_samples",
    *(
        f"train/generation/{which}_length.{what}"
        for which in ("prompt", "response")
        for what in ("mean", "max", "clipfrac")
    ),
    "train/reward/final_rewards",
    "test/reward/final_rewards",
    *(f"train/reward/functions/<name>/rewards({what})" for what in ("mean", "bon", "won")),
    "train/advantage/advantages",
    "train/advantage/returns",
    *(f"train/actor/{name}" for name in ("lr", "grad_norm", "loss", "pg_loss", "logprobs", "entropy")),
    *(f"train/actor/{name}" for name in ("kl_loss", "pg_clipfrac", "pg_clipfrac_high", "pg_clipfrac_low")),
    *(f"train/actor/{name}" for name in ("pg_clipfrac2", "vf_clipfrac_high", "vf_clipfrac_low")),
    *(f"train/critic/{name}" for name in ("lr", "grad_norm", "vf_loss", "vf_clipfrac")),
)


def test_every_metric_of_arks_list_has_a_curve_here_or_a_reason_why_it_has_none():
    mapped = {theirs for theirs, _ in table()}
    assert set(ARKS) <= mapped | set(UNMEASURED)
    assert not mapped & set(UNMEASURED)


def test_no_two_metrics_share_a_name_and_every_one_named_is_declared():
    own = [one.name.replace("<source>", "data") for one in all_metrics()]
    names = [name for name in map(ark_name, own) if name is not None]
    assert len(names) == len(set(names)) == len(table())
    for theirs, ours in table():
        assert metric(ours).name == ours.replace("validation/data", "validation/<source>")
        assert ark_name(ours) == theirs


def test_names_that_users_chose_are_kept():
    own = [
        "trace/reward/格式/won",
        "trace/reward_metrics/judge/cost/max",
        "timing/s/step",
        "critic/score/mean",
    ]
    assert by_ark_name(own) == {
        "train/reward/functions/格式/rewards(won)": "trace/reward/格式/won",
        "train/custom/judge/cost.max": "trace/reward_metrics/judge/cost/max",
        "train/reward/final_rewards": "critic/score/mean",
    }


def test_a_reward_of_any_name_has_other_names_than_the_rollout():
    own = [
        "trace/rollout_metrics/score/avg",
        "trace/reward_metrics/rollout/score/avg",
        "trace/reward/rollout/avg",
    ]
    assert list(by_ark_name(own)) == [
        "train/rollout/score.mean",
        "train/custom/rollout/score.mean",
        "train/reward/functions/rollout/rewards(mean)",
    ]


def test_the_page_of_metrics_has_all_of_it():
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))
    assert {theirs for theirs, _ in table()} | set(UNMEASURED) <= told
