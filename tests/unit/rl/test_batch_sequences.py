"""Turns -> sequences by the exact-prefix rule: by hand, and random conversations."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.rl.sequences import sequences_of
from strop.schema.function import TaskStatus
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Trajectory, Turn


def turn(
    index: int, prompt: tuple[int, ...], completion: tuple[int, ...], *, temperature: float = 1.0
) -> Turn:
    return Turn(
        index=index,
        prompt_ids=prompt,
        completion_ids=completion,
        behaviour_logprobs=tuple(-(token + 1) / 100 - index for token in completion),
        policy_versions=(0,) * len(completion),
        temperature=temperature,
        finish_reason=FinishReason.STOP,
        messages=(),
        response={},
        latency_s=0.0,
    )


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory(
        rollout_id="r",
        attempt_id="1",
        group_id="g",
        sample_id="s",
        attempts=1,
        status=TaskStatus.SUCCESS,
        turns=turns,
        reward=1.0,
    )


def test_a_turn_whose_prompt_continues_the_sequence_extends_it() -> None:
    (sequence,) = sequences_of(
        trajectory(turn(0, (1, 2), (3, 4)), turn(1, (1, 2, 3, 4, 5), (6,), temperature=0.5)), group_id="g"
    )
    assert sequence.token_ids == (1, 2, 3, 4, 5, 6)
    assert sequence.loss_mask == (False, False, True, True, False, True)
    assert sequence.behaviour_logprobs == (0.0, 0.0, -0.04, -0.05, 0.0, -1.07)
    assert sequence.temperatures == (1.0, 1.0, 1.0, 1.0, 1.0, 0.5)
    assert sequence.weight == 1.0
    assert (sequence.rollout_id, sequence.group_id, sequence.advantage) == ("r", "g", 0.0)


def test_a_prompt_that_dropped_earlier_text_starts_a_sequence_of_its_own() -> None:
    sequences = sequences_of(trajectory(turn(0, (1, 2), (3, 4)), turn(1, (1, 2, 4, 5), (6,))), group_id="g")
    assert [item.token_ids for item in sequences] == [(1, 2, 3, 4), (1, 2, 4, 5, 6)]
    assert [item.loss_mask for item in sequences] == [(False, False, True, True), (False,) * 4 + (True,)]
    assert [item.weight for item in sequences] == [2 / 3, 1 / 3]  # by sampled tokens


def test_two_choices_of_one_call_are_siblings_and_the_continued_one_grows() -> None:
    sequences = sequences_of(
        trajectory(turn(0, (1,), (2, 3)), turn(1, (1,), (4, 5)), turn(2, (1, 4, 5, 6), (7,))), group_id="g"
    )
    assert [item.token_ids for item in sequences] == [(1, 2, 3), (1, 4, 5, 6, 7)]


def test_the_longest_sequence_that_fits_is_extended() -> None:
    # One choice happens to be the beginning of the other.
    sequences = sequences_of(
        trajectory(turn(0, (1,), (2,)), turn(1, (1,), (2, 3)), turn(2, (1, 2, 3, 4), (5,))), group_id="g"
    )
    assert [item.token_ids for item in sequences] == [(1, 2), (1, 2, 3, 4, 5)]


def test_two_branches_from_one_answer_train_that_answer_once() -> None:
    sequences = sequences_of(
        trajectory(turn(0, (1,), (2,)), turn(1, (1, 2, 3), (4,)), turn(2, (1, 2, 5), (6,))), group_id="g"
    )
    assert [item.token_ids for item in sequences] == [(1, 2, 3, 4), (1, 2, 5, 6)]
    assert [item.loss_mask for item in sequences] == [(False, True, False, True), (False, False, False, True)]


def test_subagents_that_interleave_give_the_same_sequences_however_they_raced() -> None:
    main = [((1,), (2,)), ((1, 2, 3), (4,)), ((1, 2, 3, 4, 5), (6,))]
    sub = [((8, 9), (3,)), ((8, 9, 3, 7), (4,))]
    expected = None
    for seed in range(30):
        order = [*main, *sub]
        random.Random(seed).shuffle(order)
        turns = [
            Turn(
                index=index,
                prompt_ids=prompt,
                completion_ids=completion,
                behaviour_logprobs=tuple(-float(token) for token in completion),
                policy_versions=(0,) * len(completion),
                temperature=1.0,
                finish_reason=FinishReason.STOP,
                messages=(),
                response={},
                latency_s=0.0,
            )
            for index, (prompt, completion) in enumerate(order)
        ]
        sequences = sequences_of(trajectory(*turns), group_id="g")
        expected = expected or sequences
        assert sequences == expected
    assert expected is not None
    assert [item.token_ids for item in expected] == [(1, 2, 3, 4, 5, 6), (8, 9, 3, 7, 4)]


def test_a_trajectory_without_sampled_tokens_gives_no_sequence() -> None:
    assert sequences_of(trajectory(), group_id="g") == ()
    assert sequences_of(trajectory(turn(0, (1,), ())), group_id="g") == ()


def test_a_turn_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="rollout 'r', turn 0: no prompt ids"):
        sequences_of(trajectory(turn(0, (), (1,))), group_id="g")


def test_a_greedy_turn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"turn 0: sampled at temperature 0\.0"):
        sequences_of(trajectory(turn(0, (1,), (2,), temperature=0.0)), group_id="g")


def test_ids_without_their_logprobs_are_refused() -> None:
    broken = Turn(
        index=0,
        prompt_ids=(1,),
        completion_ids=(2, 3),
        behaviour_logprobs=(-1.0,),
        policy_versions=(0, 0),
        temperature=1.0,
        finish_reason=FinishReason.STOP,
        messages=(),
        response={},
        latency_s=0.0,
    )
    with pytest.raises(ValueError, match="2 sampled ids, 1 behaviour logprobs"):
        sequences_of(trajectory(broken), group_id="g")


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Agents that go on, branch, start over, and whose history is sometimes dropped from or re-tokenised.

    A tiny vocabulary makes accidental prefixes common; logprobs name the turn and the place, so that each
    trained token can be traced to the one sampling it came from.
    """
    turns: list[Turn] = []
    for index in range(draw(st.integers(1, 7))):
        prompt = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
        if turns and draw(st.booleans()):
            earlier = draw(st.sampled_from(turns))
            history = [*earlier.prompt_ids, *earlier.completion_ids]
            if draw(st.integers(0, 3)) == 0:
                del history[draw(st.integers(0, len(history) - 1))]
            if history and draw(st.integers(0, 3)) == 0:
                history[draw(st.integers(0, len(history) - 1))] = draw(st.integers(0, 2))
            prompt = history + prompt
        completion = draw(st.lists(st.integers(0, 2), max_size=3))
        turns.append(
            Turn(
                index=index,
                prompt_ids=tuple(prompt),
                completion_ids=tuple(completion),
                behaviour_logprobs=tuple(-(1.0 + index * 100 + at) for at in range(len(completion))),
                policy_versions=(0,) * len(completion),
                temperature=draw(st.sampled_from([0.5, 1.0])),
                finish_reason=FinishReason.STOP,
                messages=(),
                response={},
                latency_s=0.0,
            )
        )
    return turns


@given(conversations())
def test_every_sampled_id_is_trained_once_in_the_context_it_was_sampled_in(turns: list[Turn]) -> None:
    sampled = {
        logprob: ((*item.prompt_ids, *item.completion_ids[: at + 1]), item.temperature)
        for item in turns
        for at, logprob in enumerate(item.behaviour_logprobs)
    }
    sequences = sequences_of(trajectory(*turns), group_id="g")
    trained: list[float] = []
    for sequence in sequences:
        for at, carries_loss in enumerate(sequence.loss_mask):
            if not carries_loss:
                assert (sequence.behaviour_logprobs[at], sequence.temperatures[at]) == (0.0, 1.0)
                continue
            trained.append(sequence.behaviour_logprobs[at])
            context, temperature = sampled[sequence.behaviour_logprobs[at]]
            assert sequence.token_ids[: at + 1] == context
            assert sequence.temperatures[at] == temperature
    assert sorted(trained) == sorted(sampled)
    assert sum(sequence.weight for sequence in sequences) == pytest.approx(1.0 if sampled else 0.0)


@given(conversations(), st.randoms(use_true_random=False))
def test_the_order_of_the_turns_changes_nothing(turns: list[Turn], rng: random.Random) -> None:
    shuffled = list(turns)
    rng.shuffle(shuffled)
    assert sequences_of(trajectory(*shuffled), group_id="g") == sequences_of(trajectory(*turns), group_id="g")
