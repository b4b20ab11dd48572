"""Prompts that share a beginning: computed once, and with the same result as from nothing."""

from __future__ import annotations

import torch

from fakes.families import engine_of, greedy, plain_logprobs, random_prompts, tiny_model
from fakes.stepping import Steps
from fakes.tokenizer import tiny_tokenizer
from strop.inference.local import Engine, EngineConfig
from strop.schema.sampling import SamplingParams

MODEL = tiny_model("qwen3")
GREEDY = SamplingParams(max_tokens=10, temperature=0)


def _engine(**settings) -> Engine:
    settings = {"dtype": "float32", "max_length": 128, "max_sequences": 8} | settings
    return engine_of(MODEL, tiny_tokenizer(), EngineConfig(**settings))


def test_the_prompt_of_a_group_is_computed_once():
    prompt = random_prompts([50])[0]
    engine = _engine()
    steps = Steps.of(engine)
    with engine:
        generations = [engine.submit(prompt, SamplingParams(max_tokens=10, seed=s)) for s in range(8)]
        steps.allow()
        found = [generation.wait(20) for generation in generations]
        stats = engine.stats()
    # 50 tokens for the first, its last one again for each of the others.
    assert stats.num_prefilled == 50 + 7
    assert stats.num_prefix_hits == 7 * 49
    assert len({one.token_ids for one in found}) > 1
    for one in found:
        answer = list(one.token_ids)
        expected = plain_logprobs(MODEL, prompt, answer).gather(1, torch.tensor(answer)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-4, rtol=0)


def test_the_next_turn_of_a_conversation_computes_only_what_is_new():
    first, news = random_prompts([40, 12], seed=2)
    with _engine() as engine:
        turn = engine.generate([first], GREEDY)[0]
        before = engine.stats().num_prefilled
        second = [*first, *turn.token_ids, *news]
        answer = engine.generate([second], GREEDY)[0]
        after = engine.stats().num_prefilled
    # The last sampled token was never fed to the model, so it is new as well.
    assert after - before == len(news) + 1
    assert list(answer.token_ids) == greedy(MODEL, second, 10)


def test_a_prompt_seen_before_gives_the_same_answer():
    prompt = random_prompts([33], seed=3)[0]
    with _engine() as engine:
        cold = engine.generate([prompt], GREEDY)[0]
        warm = engine.generate([prompt], GREEDY)[0]
        assert engine.stats().num_prefix_hits == 32
    assert warm.token_ids == cold.token_ids == tuple(greedy(MODEL, prompt, 10))


def test_a_shorter_prompt_inside_a_longer_one_reuses_its_part_only():
    long = random_prompts([60], seed=5)[0]
    with _engine(max_sequences=2) as engine:
        engine.generate([long], GREEDY)
        found = engine.generate([long[:25], [*long[:30], 7, 8]], GREEDY)
        again = engine.generate([long], GREEDY)[0]
    assert list(found[0].token_ids) == greedy(MODEL, long[:25], 10)
    assert list(found[1].token_ids) == greedy(MODEL, [*long[:30], 7, 8], 10)
    assert list(again.token_ids) == greedy(MODEL, long, 10)


def test_the_slot_used_longest_ago_makes_room():
    prompts = random_prompts([30, 31, 32], seed=7)
    with _engine(max_sequences=2) as engine:
        for prompt in prompts:
            engine.generate([prompt], GREEDY)
        hits = engine.stats().num_prefix_hits
        engine.generate([prompts[1]], GREEDY)
        assert engine.stats().num_prefix_hits == hits + 30
        engine.generate([prompts[0]], GREEDY)
        # The first prompt had been displaced by the third.
        assert engine.stats().num_prefix_hits == hits + 30
