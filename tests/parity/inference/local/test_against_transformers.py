"""What the engine samples is what a plain forward pass of transformers says."""

from __future__ import annotations

import pytest
import torch

from fakes.families import FUSED, GENERIC, engine_of, greedy, plain_logprobs, random_prompts, tiny_model
from fakes.tokenizer import tiny_tokenizer
from strop.inference.local import Engine, EngineConfig
from strop.schema.sampling import SamplingParams

LENGTHS = [5, 17, 1, 40, 9, 33, 21, 8]


def _engine(model, **settings) -> Engine:
    settings = {"dtype": "float32", "max_length": 128, "max_sequences": 5} | settings
    return engine_of(model, tiny_tokenizer(), EngineConfig(**settings))


@pytest.mark.parametrize("name", [*FUSED, *GENERIC])
def test_greedy_is_generate_token_for_token(name):
    model = tiny_model(name)
    prompts = random_prompts(LENGTHS)
    with _engine(model) as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=24, temperature=0))
    assert [list(one.token_ids) for one in found] == [greedy(model, prompt, 24) for prompt in prompts]


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt_neox"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_plain_forward_pass(name, temperature):
    model = tiny_model(name)
    prompts = random_prompts(LENGTHS, seed=1)
    with _engine(model) as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=20, temperature=temperature, seed=7))
    for prompt, one in zip(prompts, found, strict=True):
        answer = list(one.token_ids)
        expected_TV = plain_logprobs(model, prompt, answer, temperature)
        expected_T = expected_TV.gather(1, torch.tensor(answer)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(one.logprobs), expected_T, atol=1e-4, rtol=0)


def test_greedy_logprobs_are_of_the_untempered_distribution():
    model = tiny_model("llama")
    prompt = random_prompts([9])[0]
    with _engine(model) as engine:
        one = engine.generate([prompt], SamplingParams(max_tokens=10, temperature=0))[0]
    expected_T = plain_logprobs(model, prompt, list(one.token_ids)).max(dim=-1).values
    torch.testing.assert_close(torch.tensor(one.logprobs), expected_T, atol=1e-4, rtol=0)


def test_logprobs_after_top_p_and_top_k_are_renormalised():
    model = tiny_model("qwen2")
    prompt = random_prompts([12])[0]
    params = SamplingParams(max_tokens=15, temperature=0.8, top_k=20, top_p=0.7, seed=3)
    with _engine(model) as engine:
        one = engine.generate([prompt], params)[0]
    answer = list(one.token_ids)
    probs_TV = plain_logprobs(model, prompt, answer, 0.8).exp()
    for token_id, logprob, probs_V in zip(answer, one.logprobs, probs_TV, strict=True):
        top_K, ids_K = probs_V.topk(20)
        top_K = top_K / top_K.sum()
        kept = int((top_K.cumsum(0) < 0.7).sum()) + 1
        nucleus = dict(
            zip(ids_K[:kept].tolist(), (top_K[:kept] / top_K[:kept].sum()).log().tolist(), strict=True)
        )
        assert logprob == pytest.approx(nucleus[token_id], abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_sequence_is_the_same_alone_and_in_a_batch(name):
    model = tiny_model(name)
    prompts = random_prompts(LENGTHS, seed=2)
    params = [SamplingParams(max_tokens=6 + 3 * index, seed=index) for index in range(len(prompts))]
    with _engine(model) as engine:
        together = engine.generate(prompts, params)
    for prompt, own, expected in zip(prompts, params, together, strict=True):
        with _engine(model) as engine:
            alone = engine.generate([prompt], own)[0]
        assert alone.token_ids == expected.token_ids
        assert alone.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


def test_a_sequence_much_longer_than_the_rest_attends_apart_and_right(monkeypatch):
    monkeypatch.setattr("strop.inference.local.batch.ALONE_TOKENS", 8)
    model = tiny_model("llama")
    prompts = random_prompts([90, 6, 5, 7, 60])
    with _engine(model) as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=20, temperature=0))
    assert [list(one.token_ids) for one in found] == [greedy(model, prompt, 20) for prompt in prompts]


def test_a_prompt_longer_than_one_pass_is_computed_in_pieces(monkeypatch):
    monkeypatch.setattr("strop.inference.local.scheduler.MAX_STEP_TOKENS", 16)
    model = tiny_model("qwen3")
    prompts = random_prompts([70, 3, 45, 20, 30])
    with _engine(model) as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=12, temperature=0))
    assert [list(one.token_ids) for one in found] == [greedy(model, prompt, 12) for prompt in prompts]


def test_bfloat16_samples_near_the_float32_distribution():
    model = tiny_model("llama")
    prompts = random_prompts([20, 9])
    with _engine(model, dtype="bfloat16") as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=20, seed=1))
    for prompt, one in zip(prompts, found, strict=True):
        answer = list(one.token_ids)
        expected_T = plain_logprobs(model, prompt, answer).gather(1, torch.tensor(answer)[:, None])[:, 0]
        difference = (torch.tensor(one.logprobs) - expected_T).abs()
        assert 0 < difference.mean() < 0.1


def test_the_plain_multiplication_gives_the_same_tokens(monkeypatch):
    monkeypatch.setattr("strop.inference.local.fused.packing_works", lambda dtype, device: False)
    model = tiny_model("llama")
    prompts = random_prompts([11, 4])
    with _engine(model) as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=16, temperature=0))
    assert [list(one.token_ids) for one in found] == [greedy(model, prompt, 16) for prompt in prompts]


@pytest.mark.parametrize("group", [1, 3])
def test_both_ways_to_attend_together_agree(group):
    from strop.inference.local.attention import batched_products, fused_kernel

    generator = torch.Generator().manual_seed(0)
    q = torch.randn(6, group, 16, generator=generator)
    k, v = torch.randn(2, 6, 10, 16, generator=generator)
    mask = torch.zeros(6, 1, 10)
    mask[2, 0, 4:] = float("-inf")
    torch.testing.assert_close(batched_products(q, k, v, mask, 0.3), fused_kernel(q, k, v, mask, 0.3))


@pytest.mark.slow
def test_the_real_model_is_sampled_as_by_generate(smollm2):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in ("What is 7 plus 5?", "Name a colour.", "Say hello.")
    ]
    with engine_of(
        model, tokenizer, EngineConfig(dtype="float32", max_length=256, max_sequences=4)
    ) as engine:
        found = engine.generate(prompts, SamplingParams(max_tokens=24, temperature=0))
    assert [list(one.token_ids) for one in found] == [greedy(model, prompt, 24) for prompt in prompts]
