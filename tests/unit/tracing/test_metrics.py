import logging
import subprocess
import sys

import pytest

from strop.errors import StropError
from strop.schema.metric import Aggregation
from strop.tracing.metrics import (
    NameGate,
    UnknownMetricError,
    all_metrics,
    check_names,
    is_user_named,
    metric,
)

BAILIAN = [
    *(
        f"actor/{name}"
        for name in ("loss", "pg_loss", "entropy", "ppo_kl", "pg_clipfrac", "pg_clipfrac_lower")
    ),
    "actor/grad_norm",
    "actor/lr",
    *(
        f"critic/{name}/{how}"
        for name in ("score", "rewards", "advantages", "returns")
        for how in ("mean", "max", "min")
    ),
    *(
        f"trajectory/{name}/{how}"
        for name in ("response_length", "response_length_non_aborted", "prompt_length", "num_turns")
        for how in ("mean", "max", "min")
    ),
    "trajectory/response/aborted_ratio",
    "trajectory/response_length/clip_ratio",
    "trajectory/prompt_length/clip_ratio",
    "trace/training/epoch",
    *(
        f"trace/{name}/{how}"
        for name in ("num_llm_calls", "success_rate/agent", "success_rate/reward", "attempts/agent")
        for how in ("avg", "sum")
    ),
    "trace/reward/accuracy/avg",
    "trace/reward_metrics/accuracy/digits/sum",
    "trace/rollout_metrics/tool_errors/avg",
    "trace/tool_call_count",
    *(
        f"timing/s/{name}"
        for name in ("step", "trainer_fetch_batch", "old_log_prob", "adv", "update_actor", "param_sync")
    ),
    *(f"timing/s/rollout/{name}_latency/avg" for name in ("agent_loop", "model", "reward")),
    "timing/ms/gen_per_token",
    "timing/ms/update_actor_per_token",
    "perf/total_num_tokens",
    "perf/time_per_step",
    "perf/throughput",
    "validation/data/reward/mean@1",
]


@pytest.mark.parametrize("name", BAILIAN)
def test_every_name_of_the_service_we_are_compared_with_is_declared(name):
    assert metric(name).name.split("/")[0] == name.split("/")[0]


def test_a_placeholder_stands_for_what_users_call_it():
    assert metric("trace/reward/accuracy/avg").name == "trace/reward/<name>/avg"
    assert metric("trace/reward/accuracy/sum").aggregation is Aggregation.SUM
    assert metric("trace/reward_metrics/acc/digits/avg").name == "trace/reward_metrics/<name>/<metric>/avg"
    assert metric("function/error_rate/timeout").name == "function/error_rate/<code>"
    assert metric("validation/gsm8k/reward/mean@1").name == "validation/<source>/reward/mean@1"
    assert metric("validation/data/reward/reward/mean@1").name == "validation/<source>/reward/<name>/mean@1"


def test_users_names_may_hold_slashes_and_other_scripts():
    assert metric("trace/rollout_metrics/tools/错误/avg").name == "trace/rollout_metrics/<metric>/avg"


def test_an_undeclared_name_is_an_error_with_the_nearest_one():
    with pytest.raises(UnknownMetricError) as caught:
        metric("actor/pg_clip_frac")
    assert "'actor/pg_clip_frac' is not declared" in str(caught.value)
    assert "'actor/pg_clipfrac'" in str(caught.value)
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, StropError)


@pytest.mark.parametrize("name", ["", "actor", "actor/", "trace/reward//avg", "trace/rollout_metrics/x"])
def test_half_a_name_is_no_name(name):
    with pytest.raises(UnknownMetricError):
        check_names({"actor/loss": 1.0, name: 2.0})


def test_declared_names_pass_the_check():
    check_names({"actor/loss": 1.0, "trace/reward/x/avg": 2.0})


def test_only_names_with_a_users_part_are_user_named():
    assert is_user_named("trace/rollout_metrics/x/avg")
    assert not is_user_named("trace/num_llm_calls/avg")


def test_names_past_the_limit_are_left_out_and_logged_once(caplog):
    gate = NameGate(limit=2)
    assert gate.admit({"trace/reward/a/avg": 1.0, "actor/loss": 0.5}) == {
        "trace/reward/a/avg": 1.0,
        "actor/loss": 0.5,
    }
    kept = gate.admit({f"trace/reward/{name}/avg": 1.0 for name in "abcd"})
    assert list(kept) == ["trace/reward/a/avg", "trace/reward/b/avg"]
    assert gate.admit({"trace/reward/e/avg": 1.0, "actor/lr": 0.1}) == {"actor/lr": 0.1}
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "trace/reward/c/avg" in warnings[0].getMessage()


def test_the_gate_refuses_undeclared_names_too():
    with pytest.raises(UnknownMetricError):
        NameGate().admit({"actor/los": 1.0})


def test_declarations_are_complete_and_unique():
    names = [declared.name for declared in all_metrics()]
    assert len(set(names)) == len(names)
    for declared in all_metrics():
        assert declared.en.endswith(".")
        assert declared.zh.endswith("。")
        for low, high in declared.healthy.values():
            assert low is None or high is None or low <= high


def test_the_last_segment_says_how_values_are_taken_together():
    ways = {"mean": "mean", "avg": "mean", "max": "max", "min": "min", "sum": "sum"}
    for declared in all_metrics():
        last = declared.name.split("/")[-1]
        if last in ways:
            assert declared.aggregation.value == ways[last], declared.name


def test_the_registry_loads_nothing_heavy():
    code = (
        "import sys; import strop.tracing.metrics; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'sqlalchemy', 'fastapi')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
