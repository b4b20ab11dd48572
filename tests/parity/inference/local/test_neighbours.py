"""On a CPU in float32, no bit of what is sampled for a request depends on the other requests.

In bfloat16 an engine says whether that holds; where it does not, roundings are all that may differ.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from fakes.families import engine_of, plain_logprobs, random_prompts, tiny_model
from fakes.rounding import bfloat16_gap, spread_of
from fakes.tokenizer import tiny_tokenizer
from strop.inference.local import Engine, EngineConfig
from strop.schema.sampling import Completion, SamplingParams

TOKENIZER = tiny_tokenizer()


def make_engine(family: str, **settings) -> Engine:
    settings = {"dtype": "float32", "max_length": 250, "max_sequences": 16} | settings
    return engine_of(tiny_model(family), TOKENIZER, EngineConfig(**settings))


def requests(count: int) -> list[tuple[list[int], SamplingParams]]:
    """Prompts of very different lengths, some of them beginning alike, each with a seed of its own."""
    chance = random.Random(7)
    prompts = random_prompts([chance.choice([5, 17, 40, 90, 140]) for _ in range(count)], seed=11)
    for index in range(3, count, 4):
        prompts[index] = [*prompts[index - 1][: chance.randrange(1, 40)], *prompts[index]][:150]
    return [
        (prompt, SamplingParams(max_tokens=chance.choice([1, 12, 30]), seed=number))
        for number, prompt in enumerate(prompts)
    ]


def bits(completion: Completion) -> tuple[tuple[int, ...], bytes]:
    return completion.token_ids, np.array(completion.logprobs, dtype=np.float64).tobytes()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_alone_together_and_in_any_order_the_bits_are_the_same(family: str):
    asked = requests(16)
    with make_engine(family) as engine:
        assert engine.repeatable
        together = [engine.submit(ids, params) for ids, params in asked]
        expected = [bits(one.wait(60)) for one in together]
    shuffled = list(enumerate(asked))
    random.Random(3).shuffle(shuffled)
    with make_engine(family, max_sequences=5) as engine:
        running = [(index, engine.submit(ids, params)) for index, (ids, params) in shuffled]
        for index, one in running:
            assert bits(one.wait(60)) == expected[index], index
    with make_engine(family, max_sequences=1) as engine:
        for (ids, params), wanted in list(zip(asked, expected, strict=True))[:6]:
            assert bits(engine.submit(ids, params).wait(60)) == wanted


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_in_bfloat16_neighbours_change_no_more_than_roundings_do(family: str):
    asked = requests(8)
    model = tiny_model(family)
    with make_engine(family, dtype="bfloat16") as engine:
        promised = engine.repeatable
        together = [one.wait(60) for one in [engine.submit(ids, params) for ids, params in asked]]
    with make_engine(family, dtype="bfloat16", max_sequences=1) as engine:
        alone = [engine.submit(ids, params).wait(60) for ids, params in asked]
    assert not promised or [bits(one) for one in together] == [bits(one) for one in alone]
    ids = [*asked[0][0], *together[0].token_ids]
    with torch.no_grad():
        spread = spread_of(model(torch.tensor([ids])).logits)
    count = sum(len(one.token_ids) for one in together)
    bound = bfloat16_gap(num_layers=2, spread=spread, count=count)
    for left, right, (prompt, _) in zip(together, alone, asked, strict=True):
        same = next(
            (n for n, (a, b) in enumerate(zip(left.token_ids, right.token_ids, strict=False)) if a != b),
            len(left.token_ids),
        )
        assert np.allclose(left.logprobs[:same], right.logprobs[:same], rtol=0, atol=bound)
        exact = plain_logprobs(model, prompt, list(left.token_ids))
        taken = exact.gather(1, torch.tensor(left.token_ids)[:, None])[:, 0].numpy()
        plain = bfloat16_gap(num_layers=2, spread=spread, count=count, to_float32=True)
        assert np.allclose(left.logprobs, taken, rtol=0, atol=plain)


def test_a_turn_has_the_same_bits_whether_the_one_before_is_still_cached_or_not():
    (prompt,) = random_prompts([30], seed=2)
    first = SamplingParams(max_tokens=40, seed=1)
    second = SamplingParams(max_tokens=20, seed=2)
    with make_engine("llama") as engine:
        answer = engine.submit(prompt, first).wait(60)
        longer = [*prompt, *answer.token_ids, 5, 6, 7]
        kept = engine.submit(longer, second).wait(60)
        assert engine.stats().num_prefix_hits >= len(prompt)
    with make_engine("llama") as engine:
        anew = engine.submit(longer, second).wait(60)
        assert engine.stats().num_prefix_hits == 0
    assert bits(kept) == bits(anew)


def test_an_engine_whose_bits_depend_on_the_neighbours_says_so(monkeypatch: pytest.MonkeyPatch):
    from strop.inference.local import fused
    from strop.inference.local.attention import Attention

    assert not make_engine("gpt2").repeatable  # computed by code that is not ours
    monkeypatch.setattr(Attention, "_attend_one_by_one", Attention._attend_alone)
    assert not make_engine("llama").repeatable
    monkeypatch.undo()
    monkeypatch.setattr(fused, "packing_works", lambda dtype, device: False)
    assert not make_engine("llama").repeatable
