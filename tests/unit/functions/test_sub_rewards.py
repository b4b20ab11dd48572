"""Decorated rewards: parts side by side, weights and metrics by hand, a part that fails fails the whole."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from strop import (
    AbstractRewardProcessor,
    AgentOutput,
    Reward,
    RewardInput,
    RewardOutput,
    TaskStatus,
    aggregate_func,
    reward_func,
    sub_reward_func,
)


def ask(text: str = "yes") -> RewardInput:
    return RewardInput(agent_output=AgentOutput(messages=[{"role": "assistant", "content": text}]))


def gives(score: float, **metrics: float) -> RewardOutput:
    return RewardOutput(reward=Reward(reward_score=score, reward_metrics=metrics or None))


@reward_func("both")
class Both(AbstractRewardProcessor):
    @sub_reward_func("right", sub_weight=0.75)
    def right(self, input: RewardInput) -> RewardOutput:
        return gives(0.5, digits=2.0)

    @sub_reward_func("brief", sub_weight=0.25)
    async def brief(self, input: RewardInput) -> RewardOutput:
        return gives(0.2)


async def test_without_an_aggregate_the_reward_is_the_weighted_sum_with_every_score_beside_it():
    output = await Both().process(ask())
    assert output.reward.reward_score == pytest.approx(0.75 * 0.5 + 0.25 * 0.2)
    assert output.reward.reward_metrics == {"right": 0.5, "brief": 0.2, "right.digits": 2.0}
    assert output.status is TaskStatus.SUCCESS


async def test_all_decorators_may_stand_with_and_without_parentheses():
    @reward_func
    class Bare(AbstractRewardProcessor):
        @sub_reward_func
        def one(self, input):
            return 1

        @sub_reward_func()
        def two(self, input):
            return 2.0

        @sub_reward_func(sub_weight=10)
        def three(self, input):
            return {"reward": {"reward_score": 3}}

        @aggregate_func()
        def add(self, sub_rewards):
            return self.get_total(sub_rewards)

    bare = Bare()
    assert bare.get_weights() == {"one": 1.0, "two": 1.0, "three": 10.0}
    assert (await bare.process(ask())).reward.reward_score == 33.0
    assert bare.reward_meta.processor_id == "Bare"


async def test_an_aggregate_sees_outputs_weights_scores_and_metrics():
    seen = {}

    @reward_func("both")
    class Added(Both):
        @aggregate_func
        def add(self, sub_rewards):
            seen.update(
                weights=self.get_weights(),
                scores=self.get_scores(sub_rewards),
                total=self.get_total(sub_rewards),
                metrics=self.get_reward_metrics(sub_rewards),
            )
            return gives(0.125, own=1.0)

    output = await Added().process(ask())
    assert output == gives(0.125, own=1.0)
    assert seen == {
        "weights": {"right": 0.75, "brief": 0.25},
        "scores": {"right": 0.5, "brief": 0.2},
        "total": pytest.approx(0.425),
        "metrics": {"right.digits": 2.0},
    }


async def test_parts_run_side_by_side_whether_they_are_async_or_not():
    meeting = threading.Barrier(2, timeout=5)
    here, there = asyncio.Event(), asyncio.Event()

    @reward_func
    class Waits(AbstractRewardProcessor):
        @sub_reward_func
        def plain(self, input):
            return float(meeting.wait() >= 0)

        @sub_reward_func
        def also_plain(self, input):
            return float(meeting.wait() >= 0)

        @sub_reward_func
        async def one(self, input):
            here.set()
            await there.wait()
            return 1

        @sub_reward_func
        async def other(self, input):
            there.set()
            await here.wait()
            return 1

    async with asyncio.timeout(10):
        assert (await Waits().process(ask())).reward.reward_score == 4.0


async def test_a_part_that_fails_fails_the_whole_with_its_name_and_place(capsys):
    asked_to_add = []

    @reward_func
    class Broken(AbstractRewardProcessor):
        @sub_reward_func("safe")
        def safe(self, input):
            return 1.0

        @sub_reward_func("judge")
        def judge(self, input):
            raise ValueError("no verdict")

        @sub_reward_func("away")
        async def away(self, input):
            return RewardOutput(reward=Reward(reward_score=0), status=TaskStatus.FAILED, error="HTTP 503")

        @sub_reward_func("text")
        def text(self, input):
            return "0.7"

        @sub_reward_func("yes")
        def yes(self, input):
            return True

        @aggregate_func
        def add(self, sub_rewards):
            asked_to_add.append(sub_rewards)
            return 1.0

    output = await Broken().process(ask())
    assert output.status is TaskStatus.FAILED
    assert output.error_code == "failed"  # of the first by name: away
    assert output.error is not None
    away, judge, text, yes = output.error.split("; sub-reward ")
    assert away == "sub-reward 'away' failed: HTTP 503"
    assert judge.startswith("'judge' raised ValueError: no verdict (")
    assert judge.endswith("in judge)")
    assert text == "'text' returned str; expected RewardOutput or a number"
    assert yes.endswith("expected a number, found bool True")
    assert asked_to_add == []
    assert "ValueError: no verdict" in capsys.readouterr().err


async def test_an_aggregate_that_fails_is_named():
    @reward_func
    class Broken(Both):
        @aggregate_func
        def add(self, sub_rewards):
            return self.get_total({"colour": sub_rewards["right"]})

    output = await Broken().process(ask())
    assert output.status is TaskStatus.FAILED
    assert output.error is not None
    assert output.error.startswith("aggregate 'add' raised ValueError: Sub-reward function 'colour' is not")
    assert "['brief', 'right']" in output.error


async def test_objects_of_one_class_have_their_own_state_and_weights():
    @reward_func
    class Counts(AbstractRewardProcessor):
        def __init__(self, start: float) -> None:  # calls no super().__init__()
            self.count = start

        @sub_reward_func
        def calls(self, input):
            self.count += 1
            return self.count

    ones, tens = Counts(0), Counts(10)
    tens.reward_meta.sub_functions["calls"].weight = 2.0
    assert [(await one.process(ask())).reward.reward_score for one in (ones, tens, ones)] == [1, 22, 2]
    assert (ones.get_weights(), tens.get_weights()) == ({"calls": 1.0}, {"calls": 2.0})


async def test_a_subclass_has_the_parts_of_its_base_and_may_change_them():
    class Stricter(Both):
        def right(self, input):  # not decorated again: name and weight stay
            return gives(0.0)

        @sub_reward_func("polite", sub_weight=2.0)
        def polite(self, input):
            return gives(1.0)

        brief = None  # dropped

    stricter = Stricter()
    assert stricter.get_weights() == {"polite": 2.0, "right": 0.75}
    assert (await stricter.process(ask())).reward.reward_score == 2.0
    assert Both().get_weights() == {"brief": 0.25, "right": 0.75}


async def test_given_threads_are_used_and_left_running():
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as threads:

        @reward_func
        class Where(AbstractRewardProcessor):
            @sub_reward_func
            def where(self, input):
                return float(threading.current_thread().name.startswith("mine"))

        where = Where(threads)
        assert (await where.process(ask())).reward.reward_score == 1.0
        where.shutdown()
        assert threads.submit(int, "3").result() == 3


async def test_a_part_that_cannot_be_stopped_keeps_a_cancelled_call_open():
    """So the worker sees that user code still runs, and is replaced."""
    begun, go_on = threading.Event(), threading.Event()

    @reward_func
    class Slow(AbstractRewardProcessor):
        @sub_reward_func
        def slow(self, input):
            begun.set()
            go_on.wait(10)
            return 1.0

    call = asyncio.create_task(Slow().process(ask()))
    await asyncio.to_thread(begun.wait, 10)
    call.cancel()
    done, _ = await asyncio.wait({call}, timeout=0.05)
    assert not done
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_what_cannot_be_meant_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match=r"class None_ has no method marked with @sub_reward_func"):

        @reward_func
        class None_(AbstractRewardProcessor):
            pass

    with pytest.raises(TypeError, match=r"two sub-rewards called 'a'"):

        @reward_func
        class Twice(AbstractRewardProcessor):
            @sub_reward_func("a")
            def one(self, input):
                return 1

            @sub_reward_func("a")
            def two(self, input):
                return 1

    with pytest.raises(TypeError, match="adds up in add and in sum_"):

        @reward_func
        class Adders(Both):
            @aggregate_func
            def add(self, sub_rewards):
                return 1

            @aggregate_func
            def sum_(self, sub_rewards):
                return 1

    for wrong in ("0.7", True, float("nan"), None):
        with pytest.raises(TypeError, match="sub_weight: expected a finite number"):
            sub_reward_func("a", sub_weight=wrong)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.warns(UserWarning, match=r"Own\.process is replaced"):

        @reward_func
        class Own(Both):
            def process(self, input):
                return gives(1)
