"""The three layers of weights, worked by hand."""

import pytest

from strop import AbstractRewardProcessor, reward_func, sub_reward_func
from strop.errors import FunctionError
from strop.functions.metric_weights import add_up, reweigh, shares, take_weights


@reward_func
class Safety(AbstractRewardProcessor):
    @sub_reward_func("toxicity", sub_weight=0.7)
    def toxicity(self, input):
        return 1.0

    @sub_reward_func("refusal", sub_weight=0.3)
    def refusal(self, input):
        return 0.5

    def helper(self):
        return None


class Plain(AbstractRewardProcessor):
    def process(self, input):
        return {"reward": {"reward_score": 0, "reward_metrics": {"exact": 1, "brief": 0}}}


def test_sub_weight_times_metric_weight_keeps_the_sum_of_the_sub_weights():
    # 0.7 * 1 and 0.3 * 4 are 0.7 and 1.2; together they must be 1 again
    assert reweigh({"toxicity": 0.7, "refusal": 0.3}, {"toxicity": 1, "refusal": 4}) == {
        "toxicity": pytest.approx(0.7 / 1.9),
        "refusal": pytest.approx(1.2 / 1.9),
    }
    assert reweigh({"a": 2.0, "b": 2.0}, {"a": 3.0}) == {"a": 3.0, "b": 1.0}
    assert reweigh({"a": 1.0, "b": -1.0}, {"a": 2.0}) == {"a": 2.0, "b": -1.0}  # no scale in a sum of 0


def test_what_the_sdk_sends_when_nothing_was_set_changes_nothing():
    safety = Safety()
    # it takes every decorated method for a part
    assert take_weights(safety, {"toxicity": 0.7, "refusal": 0.3, "helper": 1.0}) == {}
    assert safety.get_weights() == {"refusal": 0.3, "toxicity": 0.7}
    assert take_weights(Plain(), {"process": 1.0}) == {}


async def test_a_decorated_class_adds_up_by_the_weights_of_the_job():
    safety = Safety()
    assert take_weights(safety, {"refusal": 7 / 3}) == {}
    assert safety.get_weights() == {"refusal": pytest.approx(0.5), "toxicity": pytest.approx(0.5)}
    assert (await safety.process(None)).reward.reward_score == pytest.approx(0.75)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]


def test_a_name_that_no_part_has_is_refused_with_the_nearest():
    with pytest.raises(FunctionError, match=r"Safety has no part 'refusals'\n  fix: did you mean 'refusal'"):
        take_weights(Safety(), {"refusals": 1.0})


def test_the_metrics_of_an_undecorated_function_are_its_parts():
    by_metric = take_weights(Plain(), {"exact": 3, "brief": 1})
    assert by_metric == shares({"exact": 3, "brief": 1}) == {"exact": 0.75, "brief": 0.25}
    output = {"reward": {"reward_score": 9.0, "reward_metrics": {"exact": 1.0, "brief": 0.4, "other": 5.0}}}
    assert add_up(output, by_metric) is None
    assert output["reward"]["reward_score"] == pytest.approx(0.75 + 0.1)
    group = {"reward": {"rewards": [{"reward_score": 0.0, "reward_metrics": {"exact": 0.0, "brief": 1.0}}]}}
    assert add_up(group, by_metric) is None
    assert group["reward"]["rewards"][0]["reward_score"] == 0.25


def test_a_metric_that_is_missing_is_named():
    output = {"reward": {"reward_score": 1.0, "reward_metrics": {"exact": 1.0}}}
    assert add_up(output, {"exact": 0.5, "brief": 0.5}) == (
        "has no reward metric 'brief', which reward_metric_weight counts; it has: exact"
    )
