"""New weights: copied whole or not at all, and never mixed with KV of old ones."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch

from fakes.families import FUSED, GENERIC, engine_of, greedy, plain_logprobs, random_prompts, tiny_model
from fakes.stepping import Steps
from fakes.tokenizer import tiny_tokenizer
from strop.errors import EngineError, ModelError
from strop.inference.local import Engine, EngineConfig, SharedMemorySync
from strop.inference.local.forward import HubForward
from strop.inference.local.fused import FusedLlama
from strop.inference.local.kv_cache import KVCache, KVShape
from strop.schema.sampling import SamplingParams
from strop.schema.weights import WeightsRef

GREEDY = SamplingParams(max_tokens=12, temperature=0)


def _engine(model, **settings) -> Engine:
    settings = {"dtype": "float32", "max_length": 96, "max_sequences": 4} | settings
    return engine_of(model, tiny_tokenizer(), EngineConfig(**settings))


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_a_prompt_before_and_after_an_update_meets_no_old_kv(name):
    old, new = tiny_model(name, seed=0), tiny_model(name, seed=1)
    prompt = random_prompts([30])[0]
    with _engine(old) as engine:
        before = engine.generate([prompt], GREEDY)[0]
        hits = engine.stats().num_prefix_hits
        engine.load_weights(new, version=3)
        after = engine.generate([prompt], GREEDY)[0]
        assert engine.policy_version == 3
        assert engine.stats().num_prefix_hits == hits
    assert list(before.token_ids) == greedy(old, prompt, 12)
    assert list(after.token_ids) == greedy(new, prompt, 12)
    assert set(before.policy_versions) == {0}
    assert set(after.policy_versions) == {3}


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_a_running_sequence_goes_on_under_the_new_weights(name):
    old, new = tiny_model(name, seed=0), tiny_model(name, seed=1)
    prompts = random_prompts([9, 14, 3])
    engine = _engine(old)
    steps = Steps.of(engine)
    with engine:
        generations = [
            engine.submit(prompt, SamplingParams(max_tokens=20, seed=2, top_k=50)) for prompt in prompts
        ]
        steps.allow(5)
        steps.entered(6)
        loading = threading.Thread(target=engine.load_weights, args=(new,), kwargs={"version": 1})
        loading.start()
        while not engine._commands:
            assert loading.is_alive()
        steps.allow(1)
        loading.join(timeout=20)
        steps.allow()
        found = [generation.wait(20) for generation in generations]
    for prompt, one in zip(prompts, found, strict=True):
        answer, versions = list(one.token_ids), list(one.policy_versions)
        assert versions == sorted(versions)
        switch = versions.index(1)
        assert 1 <= switch <= 6
        probs = [plain_logprobs(model, prompt, answer).exp() for model in (old, new)]
        for place, (token_id, version) in enumerate(zip(answer, versions, strict=True)):
            probs_V = probs[version][place]
            expected = (probs_V[token_id] / probs_V.topk(50).values.sum()).log().item()
            assert one.logprobs[place] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("name", [*FUSED, *GENERIC])
def test_training_the_model_does_not_move_the_engine_until_it_is_told(name):
    model = tiny_model(name)
    prompt = random_prompts([11])[0]
    expected = greedy(model, prompt, 12)
    with _engine(model) as engine:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        assert list(engine.generate([prompt], GREEDY)[0].token_ids) == expected
        engine.load_weights(dict(model.state_dict()), version=1)
        assert list(engine.generate([prompt], GREEDY)[0].token_ids) == greedy(model, prompt, 12)


def test_tied_weights_may_be_named_once():
    old, new = tiny_model("qwen2", seed=0), tiny_model("qwen2", seed=1)
    prompt = random_prompts([8])[0]
    for left_out in ("lm_head.weight", "model.embed_tokens.weight"):
        named = {name: tensor for name, tensor in new.state_dict().items() if name != left_out}
        with _engine(old) as engine:
            engine.load_weights(named, version=1)
            assert list(engine.generate([prompt], GREEDY)[0].token_ids) == greedy(new, prompt, 12)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w.pop("model.norm.weight"), "model.norm.weight: missing"),
        (lambda w: w.update(lora_A=torch.zeros(2)), "lora_A: not a weight of this model"),
        (lambda w: w.update({"model.norm.weight": torch.zeros(3)}), r"shape \(3,\), expected \(64,\)"),
    ],
)
def test_weights_of_another_model_change_nothing(change, says):
    model = tiny_model("llama")
    weights = dict(tiny_model("llama", seed=1).state_dict())
    change(weights)
    prompt = random_prompts([8])[0]
    with _engine(model) as engine:
        with pytest.raises(EngineError, match=says):
            engine.load_weights(weights, version=1)
        assert engine.policy_version == 0
        assert list(engine.generate([prompt], GREEDY)[0].token_ids) == greedy(model, prompt, 12)


def test_weights_may_come_before_the_start():
    new = tiny_model("llama", seed=1)
    prompt = random_prompts([8])[0]
    engine = _engine(tiny_model("llama"))
    engine.load_weights(new, version=2)
    with engine:
        assert list(engine.generate([prompt], GREEDY)[0].token_ids) == greedy(new, prompt, 12)


def test_weights_in_another_precision_are_cast():
    new = tiny_model("llama", seed=1)
    rounded = tiny_model("llama", seed=1).bfloat16()
    prompt = random_prompts([8])[0]
    with _engine(tiny_model("llama")) as engine:
        engine.load_weights(rounded, version=1)
        found = engine.generate([prompt], GREEDY)[0]
    assert list(found.token_ids) == greedy(rounded.float(), prompt, 12)
    assert new.dtype == torch.float32


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "gpt_neox"])
def test_an_engine_without_weights_samples_the_same_once_it_has_them_again(name):
    model = tiny_model(name)
    prompts = random_prompts([11, 30])
    with _engine(model) as engine:
        before = engine.generate(prompts, GREEDY)
        engine.drop_weights()
        engine.drop_weights()
        waiting = [engine.submit(prompt, GREEDY) for prompt in prompts]
        engine.load_weights(model, version=1)
        after = [one.wait(20) for one in waiting]
    assert [one.token_ids for one in after] == [one.token_ids for one in before]
    assert [one.logprobs for one in after] == [one.logprobs for one in before]
    assert {version for one in after for version in one.policy_versions} == {1}


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_sequence_that_runs_while_the_weights_are_gone_waits_for_others(name):
    old, new = tiny_model(name, seed=0), tiny_model(name, seed=1)
    prompt = random_prompts([9])[0]
    engine = _engine(old)
    steps = Steps.of(engine)
    with engine:
        running = engine.submit(prompt, GREEDY)
        steps.allow(4)
        steps.entered(5)
        dropping = threading.Thread(target=engine.drop_weights)
        dropping.start()
        while not engine._commands:
            assert dropping.is_alive()
        steps.allow()
        dropping.join(timeout=20)
        taken = engine.stats().num_steps
        engine.load_weights(new, version=1)
        found = running.wait(20)
    assert taken == 5
    assert list(found.policy_versions) == [0] * 5 + [1] * 7
    answer = list(found.token_ids)
    assert answer[:5] == greedy(old, prompt, 5)
    assert answer[5:] == greedy(new, prompt + answer[:5], 7)


def test_a_fused_model_that_dropped_its_weights_holds_none_of_them():
    engine = _engine(tiny_model("llama"))
    fused = engine._forward
    assert isinstance(fused, FusedLlama)
    assert fused._head is not None
    layers = [one for layer in fused._layers for one in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    held = [weakref.ref(one) for one in (fused._head, *layers, fused._embedding_VE)]
    del layers
    engine.drop_weights()
    assert [one for one in held if one() is not None] == []
    with engine:
        waiting = engine.submit([5], GREEDY)
    with pytest.raises(EngineError, match="closed before this request"):
        waiting.wait(20)


def test_a_model_run_by_its_own_code_holds_no_weights_once_they_are_dropped():
    engine = _engine(tiny_model("gpt2"))
    hub = engine._forward
    assert isinstance(hub, HubForward)

    def held() -> int:
        return sum(one.untyped_storage().nbytes() for one in hub._model.parameters())

    before = held()
    assert before >= sum(one.nbytes for one in hub._model.parameters())
    engine.drop_weights()
    assert held() == 0
    engine.load_weights(tiny_model("gpt2"), version=1)
    assert held() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_dropped_kv_goes_back_to_the_system():
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=64, dtype=torch.float32)
    cache = KVCache(shape, num_slots=64, max_length=4096, device=torch.device("cpu"))
    cache.data.fill_(1.0)
    cache.num_cached_S[:] = 7
    assert cache.data.nbytes == 128 << 20
    full = _resident_bytes()
    cache.give_back()
    assert full - _resident_bytes() > 100 << 20
    assert cache.num_cached_S.tolist() == [0] * 64
    assert cache.flat_layers[0].shape == (2 * 64 * 4096, 64)
    assert cache.data[0, 1, 63, 0, 4095].tolist() == [0.0] * 64


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_sync_pushes_tensors_of_this_process_and_folders_alike(tmp_path):
    old, new, newer = (tiny_model("qwen2", seed=seed) for seed in (0, 1, 2))
    prompt = random_prompts([8])[0]
    newer.save_pretrained(tmp_path)
    with _engine(old) as engine:
        sync = SharedMemorySync(engine)
        for pushed, model in (
            (WeightsRef(tensors=new.state_dict()), new),
            (WeightsRef(folder=tmp_path), newer),
        ):
            sync.sleep()
            waiting = engine.submit(prompt, GREEDY)
            version = engine.policy_version + 1
            assert sync.push(pushed, version=version) == version == engine.policy_version
            assert list(waiting.wait(20).token_ids) == greedy(model, prompt, 12)


def test_a_folder_without_weights_is_refused_and_the_engine_keeps_its_own(tmp_path):
    model = tiny_model("llama")
    prompt = random_prompts([8])[0]
    with _engine(model) as engine:
        with pytest.raises(ModelError, match="holds no weights"):
            SharedMemorySync(engine).push(WeightsRef(folder=tmp_path), version=1)
        assert engine.policy_version == 0
        assert list(engine.generate([prompt], GREEDY)[0].token_ids) == greedy(model, prompt, 12)


def test_weights_are_either_in_memory_or_in_a_folder(tmp_path):
    for wrong in ({}, {"tensors": {}, "folder": tmp_path}):
        with pytest.raises(ValueError, match="either"):
            WeightsRef(**wrong)


def test_an_engine_from_a_folder_samples_what_one_from_its_weights_does(tmp_path):
    model = tiny_model("llama")
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    prompt = random_prompts([8])[0]
    config = EngineConfig(dtype="float32", max_length=96, max_sequences=4)
    with Engine.from_folder(tmp_path, config) as engine:
        assert list(engine.generate([prompt], GREEDY)[0].token_ids) == greedy(model, prompt, 12)
    with pytest.raises(ModelError, match="cannot be loaded"):
        Engine.from_folder(tmp_path / "nothing")
