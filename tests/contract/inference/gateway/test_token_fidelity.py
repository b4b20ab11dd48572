"""From the agent's messages to the trained ids: what was sampled is trained, id for id, whatever its text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from fakes.house import House
from fakes.sampler import FakeSampler
from fakes.tokenizer import CHATML_DROPS_THINKING, tiny_tokenizer
from strop.inference.gateway import Gateway
from strop.rl.sequences import sequences_of
from strop.schema.function import TaskStatus
from strop.schema.sampling import SamplingParams
from strop.schema.trajectory import Trajectory, Turn


def trajectory(turns: tuple[Turn, ...]) -> Trajectory:
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


def trained_ids(turns: tuple[Turn, ...]) -> list[tuple[int, ...]]:
    """The ids that carry loss, sequence by sequence."""
    return [
        tuple(token for token, sampled in zip(one.token_ids, one.loss_mask, strict=True) if sampled)
        for one in sequences_of(trajectory(turns), group_id="g")
    ]


async def test_a_conversation_of_random_ids_is_one_sequence_that_trains_exactly_them(house: House) -> None:
    """Non-canonical splits, halves of characters, answers cut short: an agent sees and sends only text."""
    rng = random.Random(0)
    for number in range(40):
        name = f"r{number}"
        house.open(name, sampling=SamplingParams(max_tokens=12))
        sampled: list[int] = []

        def scripted(prompt_ids: tuple[int, ...], params: SamplingParams) -> list[int]:
            ids = [rng.randrange(3, len(house.tokenizer)) for _ in range(rng.randrange(1, 10))]
            return ids + rng.choice([[], [2]])

        house.sampler.answer = scripted
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Having"}]
        for _ in range(3):
            messages.append(await house.gateway.chat(name, "1", messages, None))
            messages.append({"role": "user", "content": rng.choice(["hello", "数学", "", " "])})
        turns = house.close(name)
        for turn in turns:
            sampled += turn.completion_ids
        assert trained_ids(turns) == [tuple(sampled)]
    assert house.gateway.stats.rerendered_prompts == 0


async def test_a_template_that_drops_thinking_gives_one_sequence_a_turn() -> None:
    tokenizer = tiny_tokenizer(CHATML_DROPS_THINKING)
    sampler = FakeSampler(tokenizer, lambda prompt_ids, params: "<think>Having</think>\nhello")
    gateway = Gateway(sampler, tokenizer, model_name="policy", max_length=300, seed=0)
    await gateway.start()
    try:
        gateway.open("r", "1", sampling=SamplingParams(max_tokens=32), training=True)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
        for _ in range(2):
            messages.append(await gateway.chat("r", "1", messages, None))
            messages.append({"role": "user", "content": "hello"})
        turns = gateway.close("r", "1")
    finally:
        await gateway.stop()
    assert trained_ids(turns) == [turns[0].completion_ids, turns[1].completion_ids]
    assert gateway.stats.rerendered_prompts == 1
    assert "<think>" not in str(tokenizer.decode(list(turns[1].prompt_ids)))


async def test_the_continued_one_of_several_choices_grows_and_the_others_stay(
    house: House, hello: Callable[..., dict[str, Any]]
) -> None:
    answers = iter(["hello", "Having", "rollout"])
    house.sampler.answer = lambda prompt_ids, params: next(answers)
    client = house.client(house.open())
    first = await client.chat.completions.create(**hello(n=2))
    messages = [
        *hello()["messages"],
        first.choices[1].message.to_dict(),
        {"role": "user", "content": "hello"},
    ]
    await client.chat.completions.create(model="m", messages=messages)
    one, two, three = house.close()
    assert trained_ids((one, two, three)) == sorted(
        [one.completion_ids, (*two.completion_ids, *three.completion_ids)], key=lambda ids: ids[0]
    )
