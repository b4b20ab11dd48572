"""Models that share one base in one engine: each answers as its merged weights would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fakes.families import engine_of as engine_with
from fakes.families import random_prompts, tiny_model
from fakes.lora import save_lora, save_lora_model
from fakes.model import save_tiny_model
from fakes.stepping import Steps
from fakes.tokenizer import tiny_tokenizer
from strop.errors import EngineError
from strop.inference.local import Engine, EngineConfig, check_base, read_adapter
from strop.schema.sampling import Completion, SamplingParams

GREEDY = SamplingParams(max_tokens=16, temperature=0)


def engine_of(model, **settings) -> Engine:
    settings = {"dtype": "float32", "max_length": 128, "max_sequences": 12} | settings
    return engine_with(model, tiny_tokenizer(), EngineConfig(**settings))


def same(found: Completion, expected: Completion) -> None:
    assert found.token_ids == expected.token_ids
    torch.testing.assert_close(
        torch.tensor(found.logprobs), torch.tensor(expected.logprobs), atol=2e-5, rtol=0
    )


@pytest.mark.parametrize(
    ("family", "targets"),
    [
        ("llama", None),
        ("qwen2", ["k_proj", "up_proj", "o_proj"]),
        ("qwen3", ["q_proj", "v_proj", "down_proj"]),
    ],
)
def test_adapters_in_one_batch_answer_as_their_merged_models_do_alone(
    family: str, targets: list[str] | None, tmp_path: Path
):
    base = tiny_model(family)
    merged = [save_lora(base, tmp_path / str(n), seed=n, targets=targets) for n in range(3)]
    prompts = random_prompts([40, 3, 17], seed=5)
    expected = []
    for model in (base, *merged):
        with engine_of(model) as alone:
            expected.append(alone.generate(prompts, GREEDY))
    assert len({tuple(one.token_ids for one in answers) for answers in expected}) == 4
    engine = engine_of(base)
    steps = Steps.of(engine)
    with engine:
        samplers = [engine, *(engine.adapted(read_adapter(tmp_path / str(n) / "adapter")) for n in range(3))]
        under_way = [[one.submit(ids, GREEDY) for ids in prompts] for one in samplers]
        steps.allow()
        for generations, answers in zip(under_way, expected, strict=True):
            for generation, answer in zip(generations, answers, strict=True):
                same(generation.wait(20), answer)
        assert engine.stats().peak_sequences == 12


def test_keys_and_values_of_one_adapter_are_read_by_no_other(tmp_path: Path):
    base = tiny_model("llama")
    merged = save_lora(base, tmp_path, seed=1)
    (prompt,) = random_prompts([50], seed=3)
    with engine_of(merged) as alone:
        (expected,) = alone.generate([prompt], GREEDY)
    with engine_of(base) as engine:
        first, second = (engine.adapted(read_adapter(tmp_path / "adapter")) for _ in range(2))
        engine.generate([prompt], GREEDY)
        same(first.submit(prompt, GREEDY).wait(20), expected)
        assert engine.stats().num_prefix_hits == 0
        same(first.submit(prompt, GREEDY).wait(20), expected)
        assert engine.stats().num_prefix_hits == 49  # its own, and all but the last token
        same(second.submit(prompt, GREEDY).wait(20), expected)
        assert engine.stats().num_prefix_hits == 49


def test_requests_of_two_models_that_begin_alike_do_not_wait_for_each_other(tmp_path: Path):
    base = tiny_model("llama")
    save_lora(base, tmp_path, seed=1)
    (prompt,) = random_prompts([50], seed=3)
    engine = engine_of(base)
    steps = Steps.of(engine)
    with engine:
        adapted = engine.adapted(read_adapter(tmp_path / "adapter"))
        both = [engine.submit(prompt, GREEDY), adapted.submit(prompt, GREEDY)]
        steps.allow()
        for one in both:
            one.wait(20)
        assert engine.stats().num_prefilled == 100


def test_an_adapter_that_does_not_fit_is_refused_and_the_engine_goes_on(tmp_path: Path):
    save_lora(tiny_model("qwen3"), tmp_path / "other", seed=1)
    with engine_of(tiny_model("llama")) as engine:
        with pytest.raises(EngineError, match=r"do not fit|no layer of this model"):
            engine.adapted(read_adapter(tmp_path / "other" / "adapter"))
        assert engine.generate(random_prompts([5]), GREEDY)[0].token_ids
    with (
        engine_of(tiny_model("gpt2")) as engine,
        pytest.raises(EngineError, match="serve the merged model"),
    ):
        engine.adapted(read_adapter(tmp_path / "other" / "adapter"))


def test_what_is_no_plain_adapter_is_refused(tmp_path: Path):
    with pytest.raises(EngineError, match="cannot be read"):
        read_adapter(tmp_path)
    save_lora(tiny_model("llama"), tmp_path, seed=1)
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(config.read_text().replace('"use_dora": false', '"use_dora": true'))
    with pytest.raises(EngineError, match="has use_dora"):
        read_adapter(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": -4}, "r is -4"),
        ({"lora_alpha": float("inf")}, "lora_alpha is inf"),
        ({"r": 8}, r"says r 8, but A and B of model\.layers\.0\.mlp\.down_proj"),
    ],
)
def test_a_rank_or_scale_that_no_adapter_can_have_is_refused(tmp_path: Path, changed: dict, words: str):
    save_lora(tiny_model("llama"), tmp_path, seed=1)
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changed))
    with pytest.raises(EngineError, match=words):
        read_adapter(tmp_path / "adapter")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_base_that_was_trained_on_by_one_small_step_is_found_out(tmp_path: Path, dtype: torch.dtype):
    """One step of AdamW at a learning rate of 1e-4 moves every weight by that; theirs are about 0.02."""
    base = save_tiny_model(tmp_path / "base")
    mine = save_lora_model(base, tmp_path / "mine", seed=1)
    was = {name: value.to(dtype) for name, value in load_file(base / "model.safetensors").items()}
    save_file(was, base / "model.safetensors")
    change = read_adapter(mine / "adapter")
    merged = {
        name: (value.float() + change.product(name.removesuffix(".weight"))).to(dtype)
        if name.removesuffix(".weight") in change.sites
        else value
        for name, value in was.items()
    }
    save_file(merged, mine / "model.safetensors")
    check_base(change, base=base, merged=mine)
    torch.manual_seed(0)
    moved = {
        name: (value.float() + 1e-4 * torch.randn_like(value.float()).sign()).to(dtype)
        for name, value in was.items()
    }
    save_file(moved, base / "model.safetensors")
    with pytest.raises(EngineError, match="is not the base of"):
        check_base(change, base=base, merged=mine)


def test_a_base_that_is_not_the_one_it_was_trained_on_is_found_out(tmp_path: Path):
    base = save_tiny_model(tmp_path / "base")
    mine = save_lora_model(base, tmp_path / "mine", seed=1)
    change = read_adapter(mine / "adapter")
    check_base(change, base=base, merged=mine)
    other = save_tiny_model(tmp_path / "other", seed=1)
    with pytest.raises(EngineError, match="is not the base of"):
        check_base(change, base=other, merged=mine)
    with pytest.raises(EngineError, match="is not the base of"):
        check_base(change, base=mine, merged=mine)
    (base / "model.safetensors").write_bytes(b"x")
    with pytest.raises(EngineError, match="cannot be read"):
        check_base(change, base=base, merged=mine)
