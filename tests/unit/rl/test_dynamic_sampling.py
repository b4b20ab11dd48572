"""Groups that teach nothing are replaced: judged on raw scores, bounded, resumable to the draw."""

from dataclasses import replace

import pytest

from fakes.bench import Bench, job, rows, run_facts
from strop.rl.filtering import GroupFilter, NothingToTrain, shortage, teaches
from strop.schema.function import TaskStatus
from strop.schema.job import JobStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn

TURN = Turn(
    index=0,
    prompt_ids=(1,),
    completion_ids=(2,),
    behaviour_logprobs=(-1.0,),
    policy_versions=(0,),
    temperature=1.0,
    finish_reason=FinishReason.STOP,
    messages=(),
    response={},
    latency_s=0.0,
)


def group(name: str, *rewards: float | None, penalty: float = 0.0) -> Group:
    members = tuple(
        Trajectory(
            rollout_id=f"{name}-r{number}",
            attempt_id="a1",
            group_id=name,
            sample_id=name,
            attempts=1,
            status=TaskStatus.FAILED if reward is None else TaskStatus.SUCCESS,
            turns=(TURN,),
            reward=reward,
        )
        for number, reward in enumerate(rewards)
    )
    if penalty:
        last = replace(members[-1], reward=(rewards[-1] or 0.0) + penalty, overlong_penalty=penalty)
        members = (*members[:-1], last)
    return Group(group_id=name, sample=Sample(sample_id=name, row=1, messages=[]), trajectories=members)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (group("g", 1.0, 0.0), True),
        (group("g", 1.0, 1.0), False),
        (group("g", 0.1 + 0.2, 0.3), False),
        (group("g", 1.0, None), False),
        (group("g", 1.0, None, 0.5), True),
        (group("g", None, None), False),
        (group("g", 1.0, 1.0, penalty=-0.5), False),  # the reward differs, what the functions said does not
    ],
)
def test_a_group_teaches_when_two_survivors_got_different_scores(one, expected):
    assert teaches(one) is expected


def test_each_round_asks_for_what_is_missing_until_the_batch_is_full_or_the_rounds_are_spent():
    found = GroupFilter(batch_size=3, filters=True, max_rounds=3)
    found.add([group("a", 1.0, 0.0), group("b", 1.0, 1.0), group("c", 1.0, None)])
    assert (found.missing, found.num_equal) == (2, 1)
    found.add([group("d", 0.0, 0.0), group("e", 1.0, 0.0)])
    assert found.missing == 1
    found.add([group("f", 0.0, 0.0)])
    assert (found.missing, [one.group_id for one in found.kept]) == (0, ["a", "e"])
    assert len(found.sampled) == 6
    assert found.metrics() == {"group/refill_rounds": 2.0, "group/filtered": 3.0, "group/trained": 2.0}


def test_a_step_that_does_not_filter_keeps_everything_and_measures_nothing():
    found = GroupFilter(batch_size=2, filters=False, max_rounds=10)
    found.add([group("a", 1.0, 1.0), group("b", None, None)])
    assert (found.missing, len(found.kept), found.metrics()) == (0, 2, {})
    assert shortage(found, step=1, data_is_through=False) is None


def test_nothing_left_is_told_with_counts_and_ways_out():
    found = GroupFilter(batch_size=2, filters=True, max_rounds=1)
    found.add([group("a", 1.0, 1.0), group("b", 0.0, 0.0)])
    with pytest.raises(NothingToTrain) as caught:
        shortage(found, step=7, data_is_through=False)
    assert "step 7: nothing to learn from: 2 of 2 groups had equal rewards in 1 rounds" in str(caught.value)
    assert "filter_groups: false" in str(caught.value)
    told = shortage(found, step=7, data_is_through=True)
    assert told is not None
    assert told.endswith("and the data are through")


def scores(by_row):
    """A reward by the sample's number: 0 or 1 for all of a group, None for a mixed one."""

    def right(payload):
        number = int(payload.request_metadata.sample_id.removeprefix("train").removeprefix("held"))
        fixed = by_row(number)
        member = int(payload.request_metadata.rollout_id[-1])
        value = member % 2 if fixed is None else fixed
        payload.agent_output.messages[-1]["content"] = str(value)
        from fakes.functions import last_digit

        return last_digit(payload)

    return right


def half(number: int) -> int | None:
    return None if number % 2 else 1


DAPO = {"algorithm": "dapo", "overlong_buffer_len": 0, "validation": False, "n_epochs": 4, "max_steps": 3}


async def test_a_step_refills_until_it_has_a_batch_of_groups_that_differ(tmp_path):
    bench = Bench(tmp_path, right=scores(half))
    await bench.train(job(**DAPO, batch_size=4), rows(40))
    for step, batch in enumerate(bench.learner.batches, start=1):
        (mini,) = batch.mini_batches
        assert len(mini.packs) == 4
        values, groups = bench.recorder.values[step], bench.recorder.groups["train", step]
        assert values["group/trained"] == 4.0
        assert values["group/filtered"] == len(groups) - 4
        assert values["group/filtered"] == sum(not teaches(one) for one in groups)
        assert values["group/refill_rounds"] == len({one.group_id.split("-")[0] for one in groups}) - 1
        trained = {sequence.group_id for pack in mini.packs for sequence in pack.sequences}
        assert trained == {one.group_id for one in groups if teaches(one)}
    # 24 rows are mixed in two passes of 40, so three steps of four need some refilling.
    assert sum(bench.recorder.values[step]["group/refill_rounds"] for step in (1, 2, 3)) > 0


async def test_the_mean_reward_is_of_everything_that_was_sampled(tmp_path):
    bench = Bench(tmp_path, right=scores(half))
    await bench.train(job(**DAPO | {"max_steps": 1}, batch_size=4), rows(40))
    groups = bench.recorder.groups["train", 1]
    rewards = [one.reward for group in groups for one in group.trajectories]
    values = bench.recorder.values[1]
    assert values["critic/rewards/mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert values["group/frac_zero_std"] == pytest.approx(values["group/filtered"] / len(groups))


async def test_no_row_is_drawn_twice_within_an_epoch(tmp_path):
    bench = Bench(tmp_path, right=scores(half))
    await bench.train(job(**DAPO | {"n_epochs": 1, "max_steps": None}, batch_size=4), rows(40))
    drawn = [one.sample.sample_id for found in bench.recorder.groups.values() for one in found]
    assert len(drawn) == len(set(drawn)) > 30


async def test_a_run_ends_when_its_epochs_are_used_up_though_steps_are_left(tmp_path):
    bench = Bench(tmp_path, right=scores(half))
    hyper = DAPO | {"n_epochs": 1, "max_steps": None}
    result = await bench.train(job(**hyper, batch_size=4), rows(40))
    assert result.status is JobStatus.SUCCEEDED
    assert result.steps < 10
    assert bench.recorder.checkpoints[-1]["published"] is True
    assert bench.recorder.checkpoints[-1]["step"] == result.steps


async def test_what_is_found_is_trained_on_with_its_own_normalisers_when_the_rounds_are_spent(tmp_path):
    bench = Bench(tmp_path, right=scores(lambda number: None if number == 3 else 0))
    hyper = DAPO | {"max_steps": 1, "max_num_gen_batches": 2}
    await bench.train(job(**hyper, batch_size=4, seed=first_seed_with_row(3)), rows(9))
    (mini,) = bench.learner.batches[0].mini_batches
    assert (len(mini.packs), mini.num_rollouts, mini.num_loss_tokens) == (1, 4, 4)
    told = [text for kind, text, _ in bench.recorder.events if kind == "batch_not_full"]
    assert told == [
        "trains on 1 of 4 groups: 6 of 7 groups had equal rewards in 2 rounds, "
        "and max_num_gen_batches is reached"
    ]


def first_seed_with_row(number: int) -> int:
    """A seed whose first four rows of nine hold that one."""
    for seed in range(100):
        draw = rows(9).draw(4, batch_size=4, seed=seed, epoch=0, index=0)
        if f"train{number}" in [sample.sample_id for sample in draw.samples]:
            return seed
    raise AssertionError("no such seed")


async def test_a_run_stops_with_the_reason_when_nothing_is_left_and_keeps_its_weights(tmp_path):
    bench = Bench(tmp_path, right=scores(lambda number: 0))
    with pytest.raises(NothingToTrain, match="step 1: nothing to learn from: 6 of 6 groups"):
        await bench.train(job(**DAPO | {"max_num_gen_batches": 3}), rows(20))
    assert bench.recorder.statuses[-1] is JobStatus.FAILED
    assert bench.learner.batches == []
    assert len(bench.recorder.groups["train", 1]) == 6


async def test_failures_of_one_round_stop_the_run_before_the_next(tmp_path):
    def right(payload):
        raise ValueError("judge is gone")

    bench = Bench(tmp_path, right=right)
    with pytest.raises(Exception, match="step 1: 8 of 8 rollouts failed"):
        await bench.train(job(**DAPO), rows(20))
    assert len(bench.capture.opened) == 8


@pytest.mark.parametrize("num_rows", [11, 12, 40])
@pytest.mark.parametrize("stop_after", [1, 2, 3, 4])
async def test_a_resumed_run_draws_refills_and_learns_what_the_uninterrupted_one_did(
    tmp_path, num_rows, stop_after
):
    hyper = DAPO | {"n_epochs": 9, "max_steps": 5, "save_strategy": "epoch"}
    right = scores(half)
    straight = Bench(tmp_path / "straight", right=right)
    whole = await straight.train(job(**hyper, batch_size=4), rows(num_rows))
    first = Bench(tmp_path / "halves", stop_at=("metrics", stop_after), right=right)
    part = await first.train(job(**hyper, batch_size=4), rows(num_rows))
    assert part.steps == stop_after
    second = Bench(tmp_path / "halves", right=right)
    rest = await second.train(job(**hyper, batch_size=4), rows(num_rows), resume_from=part.checkpoint)
    one, two = run_facts(straight), run_facts(first, second)
    assert two.opened == one.opened
    assert two.batches == one.batches
    assert two.values == pytest.approx(one.values, nan_ok=True)
    assert two.weights == one.weights
    assert (rest.steps, rest.sampled_tokens) == (whole.steps, whole.sampled_tokens)


async def test_an_epoch_that_ends_inside_a_refill_is_saved(tmp_path):
    bench = Bench(tmp_path, right=scores(half))
    hyper = DAPO | {"n_epochs": 9, "max_steps": 6, "save_strategy": "epoch", "save_total_limit": 9}
    await bench.train(job(**hyper, batch_size=4), rows(11))
    epochs = [
        max(int(bench.recorder.values[step]["trace/training/epoch"]) for step in (number,))
        for number in range(1, 7)
    ]
    begun_anew = [step for step in range(1, 6) if epochs[step] > epochs[step - 1]]
    saved = [one["step"] for one in bench.recorder.checkpoints]
    assert set(begun_anew) <= set(saved)
    assert len(begun_anew) >= 3
