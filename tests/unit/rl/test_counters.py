"""What machines counted since they were made -> what belongs to one step."""

import math

from strop.rl.metrics import COUNTED, counted_since
from strop.tracing.metrics import check_names


def test_the_growth_of_counters_is_the_steps_value():
    before = {"trace/rerendered_prompts": 2.0, "prefix_hits": 100.0, "prefilled": 50.0}
    after = {
        "trace/rerendered_prompts": 5.0,
        "trace/refused_calls": 1.0,
        "prefix_hits": 400.0,
        "prefilled": 150.0,
    }
    assert counted_since(before, after) == {
        "trace/rerendered_prompts": 3.0,
        "trace/refused_calls": 1.0,
        "perf/prefix_hit_rate": 0.75,
    }


def test_a_step_without_prompts_has_no_hit_rate_and_machines_without_counters_no_metric():
    same = {"prefix_hits": 1.0, "prefilled": 1.0}
    assert math.isnan(counted_since(same, same)["perf/prefix_hit_rate"])
    assert counted_since({}, {}) == {}


def test_every_counter_is_a_declared_metric():
    check_names([*COUNTED, "perf/prefix_hit_rate"])
