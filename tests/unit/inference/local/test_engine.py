"""Requests through the engine's thread: order, bounds, ends, aborts, failures."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch

from fakes.families import EOS, engine_of, greedy, plain_logprobs, random_prompts, tiny_model
from fakes.stepping import Steps
from fakes.tokenizer import tiny_tokenizer
from strop.errors import EngineError
from strop.inference.local import Engine, EngineConfig
from strop.schema.sampling import FinishReason, SamplingParams

MODEL = tiny_model("llama")
TOKENIZER = tiny_tokenizer()
GREEDY = SamplingParams(max_tokens=12, temperature=0)


def make_engine(model=MODEL, **settings) -> Engine:
    settings = {"dtype": "float32", "max_length": 96, "max_sequences": 4} | settings
    return engine_of(model, TOKENIZER, EngineConfig(**settings))


@pytest.fixture
def engine():
    with make_engine() as engine:
        yield engine


def _slots_are_free(engine: Engine) -> bool:
    stats = engine.stats()
    return stats.num_running == 0 and stats.num_waiting == 0 and stats.num_finished == stats.num_requests


async def test_result_and_chunks_tell_the_same(engine):
    prompt = random_prompts([7])[0]
    params = SamplingParams(max_tokens=30, seed=5)
    whole = await engine.submit(prompt, params).result()
    chunks = [chunk async for chunk in engine.submit(prompt, params).chunks()]
    assert tuple(i for chunk in chunks for i in chunk.token_ids) == whole.token_ids
    assert [p for chunk in chunks for p in chunk.logprobs] == pytest.approx(list(whole.logprobs), abs=1e-5)
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == whole.finish_reason
    assert whole.policy_versions == (0,) * len(whole.token_ids)


@pytest.mark.parametrize("streams", [False, True])
async def test_the_likeliest_tokens_are_those_of_a_plain_forward(engine, streams):
    prompt = random_prompts([7])[0]
    params = SamplingParams(max_tokens=5, seed=5, temperature=0.5, top_logprobs=3)
    others = [engine.submit(random_prompts([9])[0], GREEDY)]  # rows that ask for nothing
    generation = engine.submit(prompt, params)
    chunks = [chunk async for chunk in generation.chunks()] if streams else []
    whole = await generation.result()
    told = [best for chunk in chunks for best in chunk.top_logprobs] if streams else list(whole.top_logprobs)
    assert len(told) == len(whole.token_ids)
    ids = list(prompt)
    for token, best in zip(whole.token_ids, told, strict=True):
        with torch.no_grad():
            plain = torch.log_softmax(MODEL(torch.tensor([ids])).logits[0, -1].float() / 0.5, dim=-1)
        expected = torch.topk(plain, 3)
        assert [one for one, _ in best] == expected.indices.tolist()
        assert [logprob for _, logprob in best] == pytest.approx(expected.values.tolist(), abs=1e-4)
        ids.append(token)
    assert (await others[0].result()).top_logprobs == ()


async def test_chunks_arrive_while_the_sequence_runs():
    engine = make_engine()
    steps = Steps.of(engine)
    with engine:
        chunks = engine.submit(random_prompts([5])[0], GREEDY).chunks()
        first = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        steps.allow(1)
        assert len((await first).token_ids) == 1
        assert engine.stats().num_running == 1
        steps.allow()
        rest = [chunk async for chunk in chunks]
        assert sum(len(chunk.token_ids) for chunk in rest) == 11


async def test_chunks_asked_for_late_hold_everything(engine):
    generation = engine.submit(random_prompts([5])[0], GREEDY)
    whole = await generation.result()
    chunks = [chunk async for chunk in generation.chunks()]
    assert len(chunks) == 1
    assert chunks[0].token_ids == whole.token_ids
    assert chunks[0].text == whole.text


def test_loops_of_several_threads_share_an_engine(engine):
    prompts = random_prompts([4, 9, 14, 5, 8, 11], seed=3)
    found: dict[int, tuple[int, ...]] = {}

    def ask(index: int) -> None:
        async def run() -> None:
            found[index] = (await engine.submit(prompts[index], GREEDY).result()).token_ids

        asyncio.run(run())

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert [list(found[i]) for i in range(6)] == [greedy(MODEL, prompt, 12) for prompt in prompts]


def test_one_seed_gives_one_answer_and_another_seed_another(engine):
    prompt = random_prompts([6])[0]
    first, again, other = (
        engine.generate([prompt], SamplingParams(max_tokens=20, seed=seed))[0].token_ids for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_without_a_seed_each_request_draws_one_and_the_engine_repeats():
    prompts = [random_prompts([6])[0]] * 3
    answers = []
    for _ in range(2):
        with make_engine(seed=9) as engine:
            answers.append([one.token_ids for one in engine.generate(prompts, SamplingParams(max_tokens=20))])
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 3


def test_every_end_token_ends_a_sequence():
    prompt = random_prompts([6])[0]
    with make_engine() as engine:
        free = engine.generate([prompt], SamplingParams(max_tokens=30, seed=4))[0].token_ids
    model = tiny_model("llama")
    assert model.generation_config is not None
    model.generation_config.eos_token_id = [EOS, free[5]]
    with make_engine(model) as engine:
        one = engine.generate([prompt], SamplingParams(max_tokens=30, seed=4))[0]
    assert one.token_ids == free[: free.index(free[5]) + 1]
    assert one.finish_reason is FinishReason.STOP
    assert one.text == TOKENIZER.decode(one.token_ids[:-1], skip_special_tokens=True)


def test_a_stop_string_ends_a_sequence_and_is_not_in_its_text(engine):
    prompt = random_prompts([6])[0]
    params = SamplingParams(max_tokens=30, seed=4)
    free = engine.generate([prompt], params)[0]
    assert free.finish_reason is FinishReason.LENGTH
    stop = free.text[6:9]
    found = engine.generate([prompt], SamplingParams(max_tokens=30, seed=4, stop=(stop,)))[0]
    assert found.finish_reason is FinishReason.STOP
    assert found.text == free.text[: free.text.index(stop)]
    assert found.token_ids == free.token_ids[: len(found.token_ids)]
    assert len(found.token_ids) < 30


def test_a_stop_string_that_is_a_special_token_stops_at_the_token(engine):
    prompt = random_prompts([6])[0]
    for seed in range(100):
        free = engine.generate([prompt], SamplingParams(max_tokens=60, seed=seed))[0]
        if 1 in free.token_ids:
            break
    params = SamplingParams(max_tokens=60, seed=seed, stop=("<|im_start|>",))
    found = engine.generate([prompt], params)[0]
    assert found.token_ids == free.token_ids[: free.token_ids.index(1) + 1]
    assert found.finish_reason is FinishReason.STOP


def test_a_sequence_that_fills_max_length_ends_by_length(engine):
    prompt = random_prompts([90])[0]
    one = engine.generate([prompt], SamplingParams(max_tokens=50, temperature=0))[0]
    assert len(one.token_ids) <= 6
    assert one.token_ids == tuple(greedy(MODEL, prompt, 6))
    assert one.finish_reason is FinishReason.LENGTH


def test_ids_beyond_the_tokenizer_are_never_sampled():
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=len(TOKENIZER) + 100,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    with make_engine(model) as engine:
        many = engine.generate([[5, 6, 7]] * 8, SamplingParams(max_tokens=60, temperature=5.0))
    ids = {token_id for one in many for token_id in one.token_ids}
    assert len(ids) > 150
    assert max(ids) < len(TOKENIZER)


@pytest.mark.parametrize(
    ("prompt", "stop", "says"),
    [
        ([], (), "empty"),
        (list(range(3, 99)), (), "leaves no room"),
        ([5, 100_000], (), "token id 100000"),
        ([5, -1], (), "token id -1"),
        ([5], ("x", ""), "stop string is empty"),
    ],
)
def test_a_request_that_cannot_run_is_refused_at_once(engine, prompt, stop, says):
    with pytest.raises(EngineError, match=says):
        engine.submit(prompt, SamplingParams(max_tokens=4, stop=stop))


def test_memory_for_less_than_one_sequence_is_refused():
    with pytest.raises(EngineError, match="one sequence of 96 tokens needs"):
        make_engine(kv_memory_bytes=1000)


def test_sequences_wait_in_order_for_bounded_memory():
    # One token of the tiny Llama needs 2 layers x 2 x 2 heads x 16 x 4 bytes.
    slot_bytes = 96 * 2 * 2 * 2 * 16 * 4
    engine = make_engine(kv_memory_bytes=2 * slot_bytes + 1, max_sequences=8)
    steps = Steps.of(engine)
    prompts = random_prompts([8, 9, 7, 6, 5], seed=4)
    with engine:
        # While this one's only pass waits, all the others arrive.
        first = engine.submit([5, 6, 7], SamplingParams(max_tokens=1, temperature=0))
        steps.entered(1)
        generations = [
            engine.submit(prompt, SamplingParams(max_tokens=4, temperature=0)) for prompt in prompts
        ]
        steps.allow()
        first.wait(20)
        found = [generation.wait(20) for generation in generations]
        stats = engine.stats()
    assert [list(one.token_ids) for one in found] == [greedy(MODEL, prompt, 4) for prompt in prompts]
    assert stats.peak_sequences == 2
    assert stats.peak_kv_bytes <= stats.kv_bytes == 2 * slot_bytes
    # First come, first served: pairs in order of arrival.
    assert [batch.num_slots for batch in steps.batches] == [1] + [2] * 8 + [1] * 4


def test_a_sequence_joins_and_another_leaves_without_disturbing_the_rest():
    engine = make_engine()
    steps = Steps.of(engine)
    prompts = random_prompts([8, 20, 5], seed=6)
    lengths = [4, 12, 9]
    with engine:
        steps.allow(2)
        first = engine.submit(prompts[0], SamplingParams(max_tokens=lengths[0], temperature=0))
        second = engine.submit(prompts[1], SamplingParams(max_tokens=lengths[1], temperature=0))
        steps.entered(3)
        third = engine.submit(prompts[2], SamplingParams(max_tokens=lengths[2], temperature=0))
        steps.allow()
        found = [list(one.wait(20).token_ids) for one in (first, second, third)]
    assert found == [greedy(MODEL, p, n) for p, n in zip(prompts, lengths, strict=True)]


async def test_an_aborted_sequence_gives_what_it_has_and_frees_its_slot():
    engine = make_engine(max_sequences=1)
    steps = Steps.of(engine)
    prompt, other = random_prompts([6, 5])
    with engine:
        running = engine.submit(prompt, GREEDY)
        waiting = engine.submit(other, GREEDY)
        steps.allow(3)
        steps.entered(4)
        running.abort()
        waiting.abort()
        steps.allow(1)
        found, nothing = await running.result(), await waiting.result()
        steps.allow()
        assert found.finish_reason is nothing.finish_reason is FinishReason.ABORT
        assert list(found.token_ids) == greedy(MODEL, prompt, 12)[: len(found.token_ids)]
        assert 3 <= len(found.token_ids) < 12
        assert nothing.token_ids == ()
        assert list((await engine.submit(other, GREEDY).result()).token_ids) == greedy(MODEL, other, 12)
        running.abort()
        assert (await running.result()) is found
        assert _slots_are_free(engine)


async def test_a_failing_thread_tells_everyone_and_takes_no_more():
    engine = make_engine(max_sequences=1)
    steps = Steps.of(engine)
    steps.error = MemoryError("no memory left")
    with engine:
        prompt = random_prompts([6])[0]
        running, waiting = engine.submit(prompt, GREEDY), engine.submit(prompt, GREEDY)
        stream = engine.submit(prompt, GREEDY).chunks()
        tasks = [asyncio.ensure_future(one) for one in (running.result(), waiting.result(), anext(stream))]
        await asyncio.sleep(0)
        steps.allow()
        errors = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout=20)
        assert [str(error) for error in errors] == [
            "the engine's thread failed: MemoryError: no memory left"
        ] * 3
        with pytest.raises(EngineError, match="no memory left"):
            engine.submit(prompt, GREEDY)
        with pytest.raises(EngineError, match="no memory left"):
            engine.load_weights(MODEL, version=1)
        with pytest.raises(EngineError, match="no memory left"):
            running.wait(1)


def test_closing_ends_what_runs_with_an_error():
    engine = make_engine(max_sequences=1)
    steps = Steps.of(engine)
    engine.start()
    generations = [engine.submit(random_prompts([6])[0], GREEDY) for _ in range(2)]
    steps.entered(1)
    closing = threading.Thread(target=engine.close)
    closing.start()
    steps.allow()
    closing.join(timeout=20)
    errors = []
    for generation in generations:
        try:
            generation.wait(20)
        except EngineError as error:
            errors.append(str(error))
    assert errors
    assert set(errors) == {"the engine was closed before this request finished"}
    with pytest.raises(EngineError, match="closed"):
        engine.submit([5], GREEDY)


def test_an_engine_that_was_not_started_says_so():
    engine = make_engine()
    with pytest.raises(EngineError, match="not started"):
        engine.submit([5], GREEDY)
    engine.start()
    with pytest.raises(EngineError, match="started already"):
        engine.start()
    engine.close()
    engine.close()


def test_weights_that_are_not_finite_fail_their_requests_and_spare_later_ones():
    broken = tiny_model("llama")
    with torch.no_grad():
        broken.model.layers[0].self_attn.k_proj.weight[0, 0] = float("nan")
    prompt = random_prompts([9])[0]
    with make_engine() as engine:
        engine.load_weights(broken, version=1)
        for generation in [engine.submit(prompt, GREEDY) for _ in range(3)]:
            with pytest.raises(EngineError, match="not finite at policy version 1"):
                generation.wait(20)
        engine.load_weights(MODEL, version=2)
        found = engine.generate([prompt, prompt[:4]], GREEDY)
        assert [list(one.token_ids) for one in found] == [
            greedy(MODEL, prompt, 12),
            greedy(MODEL, prompt[:4], 12),
        ]


def test_five_hundred_random_requests_leave_nothing_behind():
    random = np.random.default_rng(0)
    engine = make_engine(max_sequences=6, kv_memory_bytes=None)
    roots = random_prompts([20, 30, 12], seed=8)
    with engine:
        generations, expected_lengths = [], []
        for _ in range(500):
            root = roots[random.integers(3)]
            prompt = (
                root[: random.integers(1, len(root) + 1)]
                + random_prompts([int(random.integers(1, 9))], seed=int(random.integers(1000)))[0]
            )
            max_tokens = int(random.integers(1, 12))
            stop = ("a",) if random.random() < 0.3 else ()
            temperature = float(random.choice([0.0, 0.7, 1.0]))
            params = SamplingParams(
                max_tokens=max_tokens,
                temperature=temperature,
                top_p=float(random.choice([1.0, 0.8])),
                top_k=int(random.choice([0, 5])),
                stop=stop,
            )
            generations.append(engine.submit(prompt, params))
            expected_lengths.append(max_tokens)
            if random.random() < 0.1:
                generations[int(random.integers(len(generations)))].abort()
        found = [generation.wait(30) for generation in generations]
        assert _slots_are_free(engine)
        # The engine still samples right, from slots that were moved and reused many times.
        for prompt in roots:
            one = engine.generate([prompt], GREEDY)[0]
            assert list(one.token_ids) == greedy(MODEL, prompt, 12)
        stats = engine.stats()
    for one, most in zip(found, expected_lengths, strict=True):
        assert len(one.token_ids) == len(one.logprobs) == len(one.policy_versions) <= most
        if one.finish_reason is FinishReason.LENGTH:
            assert len(one.token_ids) == most
    assert stats.peak_sequences == 6
    assert stats.num_prefix_hits > 0
    assert stats.num_sampled >= sum(len(one.token_ids) for one in found)


def test_reported_logprobs_survive_slots_that_move():
    prompts = random_prompts([5, 12, 7, 9, 30, 4, 6], seed=12)
    params = [SamplingParams(max_tokens=3 + 4 * (i % 4), seed=i) for i in range(len(prompts))]
    with make_engine(max_sequences=3) as engine:
        found = engine.generate(prompts, params)
    for prompt, one in zip(prompts, found, strict=True):
        answer = list(one.token_ids)
        expected = plain_logprobs(MODEL, prompt, answer).gather(1, torch.tensor(answer)[:, None])[:, 0]
        assert list(one.logprobs) == pytest.approx(expected.tolist(), abs=1e-4)
