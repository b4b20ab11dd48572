"""Adapters: gradients as PEFT's, a base that is never written to, files that others read."""

from pathlib import Path

import peft
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from fakes.families import tiny_model
from fakes.learning import Learner
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack
from fakes.tokenizer import tiny_tokenizer
from strop.algorithms import algorithm_names
from strop.config.job import HyperParameters
from strop.errors import ModelError
from strop.learners.local import llama
from strop.learners.local.forward import tree_logprobs
from strop.learners.local.lora import Adapter
from strop.learners.local.packed_trees import pack_trees

# PEFT asks transformers by a name that is about to change.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

GROUP, OTHER = random_pack(0), random_pack(1)
IDS = torch.tensor([[5, 9, 40, 77, 123, 8]])


def settings(**changes) -> HyperParameters:
    values = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "train_dtype": "float32"}
    return HyperParameters.model_validate({**values, "lora_rank": 4, "lora_alpha": 8, **changes})


def learner(model=None, **changes) -> Learner:
    model = model or tiny_llama()
    return Learner(model, tiny_tokenizer(), settings(**changes), total_steps=10, dtype=model.dtype)


def randomise(adapter: Adapter, seed: int = 0) -> None:
    """B begins as zeros, where A has no gradient; give both something to do."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for site in adapter.sites.values():
            site.b_OR.copy_(torch.empty_like(site.b_OR).normal_(0, 0.1, generator=generator))
    adapter.merge()


def as_peft(model, adapter: Adapter, **changes):
    """The same adapter as PEFT builds it, around an untouched copy of the base."""
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=list(adapter.sites),
        fan_in_fan_out=any(site.transposed for site in adapter.sites.values()),
        task_type="CAUSAL_LM",
    )
    wrapped = get_peft_model(model, config)
    with torch.no_grad():
        for name, site in adapter.sites.items():
            layer = wrapped.get_submodule(f"base_model.model.{name}")
            layer.lora_A["default"].weight.copy_(site.a_RI)
            layer.lora_B["default"].weight.copy_(site.b_OR)
    return wrapped


def gradients(of: Learner) -> dict[str, torch.Tensor]:
    return {name: weight.grad.clone() for name, weight in of._adapter.named_parameters()}


def one_backward(of: Learner, *, as_module: bool = False) -> torch.Tensor:
    [trees] = pack_trees([GROUP], max_nodes=10_000)
    of._optimizer.zero_gradients()
    with of._adapter.dropping():
        logprobs_E, _ = tree_logprobs(of.weights(), trees, as_module=as_module)
        (logprobs_E * torch.linspace(-1, 1, len(logprobs_E))).sum().backward()
    return logprobs_E.detach()


@pytest.mark.parametrize("targets", [None, ("q_proj", "down_proj")])
@pytest.mark.parametrize("as_module", [False, True])
def test_gradients_are_those_of_peft(targets, as_module: bool) -> None:
    ours = learner(tiny_llama().double(), target_modules=targets)
    randomise(ours._adapter)
    assert llama.supports(ours.weights())
    ours_E = one_backward(ours, as_module=as_module)
    theirs = as_peft(tiny_llama().double(), ours._adapter).eval()
    [trees] = pack_trees([GROUP], max_nodes=10_000)
    theirs_E, _ = tree_logprobs(theirs.base_model.model, trees, as_module=True)
    (theirs_E * torch.linspace(-1, 1, len(theirs_E))).sum().backward()
    torch.testing.assert_close(ours_E, theirs_E.detach(), rtol=0, atol=1e-6)
    found = gradients(ours)
    assert len(found) == 2 * len(ours._adapter.sites) == (28 if targets is None else 8)
    for name, site in ours._adapter.sites.items():
        layer = theirs.get_submodule(f"base_model.model.{name}")
        for part, weight in (("lora_A", site.a_RI), ("lora_B", site.b_OR)):
            expected = getattr(layer, part)["default"].weight.grad
            assert expected.abs().max() > 0
            torch.testing.assert_close(found[f"{name}.{part}"], expected, rtol=0, atol=1e-6)
            assert weight.dtype == torch.float64


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "qwen3"])
def test_other_families_go_through_their_modules_with_the_same_gradients(family: str) -> None:
    ours = learner(tiny_model(family).double())
    randomise(ours._adapter)
    one_backward(ours)
    theirs = as_peft(tiny_model(family).double(), ours._adapter).eval()
    [trees] = pack_trees([GROUP], max_nodes=10_000)
    theirs_E, _ = tree_logprobs(theirs.base_model.model, trees, as_module=True)
    (theirs_E * torch.linspace(-1, 1, len(theirs_E))).sum().backward()
    for name in ours._adapter.sites:
        layer = theirs.get_submodule(f"base_model.model.{name}")
        for part in ("lora_A", "lora_B"):
            expected = getattr(layer, part)["default"].weight.grad
            torch.testing.assert_close(gradients(ours)[f"{name}.{part}"], expected, rtol=0, atol=1e-6)


def test_dropout_drops_what_pefts_drops() -> None:
    ours = learner(tiny_llama().double(), lora_dropout=0.5)
    randomise(ours._adapter)
    theirs = as_peft(tiny_llama().double(), ours._adapter).train()
    [trees] = pack_trees([GROUP], max_nodes=10_000)
    torch.manual_seed(3)
    ours_E = one_backward(ours, as_module=True)
    torch.manual_seed(3)
    theirs_E, _ = tree_logprobs(theirs.base_model.model, trees, as_module=True)
    (theirs_E * torch.linspace(-1, 1, len(theirs_E))).sum().backward()
    torch.testing.assert_close(ours_E, theirs_E.detach(), rtol=0, atol=1e-6)
    without = tree_logprobs(ours.weights(), trees)[0].detach()
    assert (ours_E - without).abs().max() > 1e-3
    for name in ours._adapter.sites:
        layer = theirs.get_submodule(f"base_model.model.{name}")
        for part in ("lora_A", "lora_B"):
            expected = getattr(layer, part)["default"].weight.grad
            torch.testing.assert_close(gradients(ours)[f"{name}.{part}"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_a_step_changes_what_is_sampled_from_and_leaves_the_base_as_it_was(algorithm: str) -> None:
    start = {name: value.clone() for name, value in tiny_llama().state_dict().items()}
    ours = learner(algorithm=algorithm, kl_loss_coef=0.1)
    assert {name: value.tolist() for name, value in ours.weights().state_dict().items()} == {
        name: value.tolist() for name, value in start.items()
    }
    first = ours.update(batch(mini_batch(GROUP)))
    assert first["actor/num_updates"] == 1
    assert first["actor/kl_loss"] == 0  # before any step the policy is its own reference
    second = ours.update(batch(mini_batch(OTHER), step=2))
    assert second["actor/reference_kl_k3"] > 1e-6
    base = ours._adapter.base_model().state_dict()
    now = ours.weights().state_dict()
    adapted = {f"{name}.weight" for name in ours._adapter.sites}
    for name, value in start.items():
        assert torch.equal(base[name], value)
        assert torch.equal(now[name], value) == (name not in adapted)


def test_the_update_is_that_of_the_formula_and_of_adam() -> None:
    """One step from B = 0: A has no gradient, so only B moves, each entry by the learning rate."""
    ours = learner()
    before = {name: weight.detach().clone() for name, weight in ours._adapter.named_parameters()}
    ours.update(batch(mini_batch(GROUP)))
    for name, weight in ours._adapter.named_parameters():
        moved = (weight.detach() - before[name]).abs()
        if name.endswith("lora_A"):
            assert moved.max() == 0
        else:
            assert moved.max().item() == pytest.approx(1e-2, rel=1e-3)


def test_the_adapter_is_read_by_peft_and_the_merged_model_equals_base_and_adapter(tmp_path: Path) -> None:
    ours = learner()
    randomise(ours._adapter)
    ours.update(batch(mini_batch(GROUP)))
    ours.save(tmp_path)
    with torch.no_grad():
        base = tiny_llama().eval()
        plain = base(IDS).logits
        together = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()(IDS).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path)(IDS).logits
        sampled = ours.weights()(IDS).logits
    assert (together - plain).abs().max() > 1e-2
    torch.testing.assert_close(merged, together, rtol=0, atol=1e-5)
    torch.testing.assert_close(merged, sampled, rtol=0, atol=0)
    config = peft.PeftConfig.from_pretrained(tmp_path / "adapter")
    assert (config.r, config.lora_alpha) == (4, 8)
    assert set(config.target_modules) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path: Path) -> None:
    batches = [batch(mini_batch(GROUP), mini_batch(OTHER), step=step) for step in (1, 2, 3)]
    straight = learner(kl_loss_coef=0.1)
    metrics = [straight.update(one) for one in batches]
    first = learner(kl_loss_coef=0.1)
    first.update(batches[0])
    first.save(tmp_path)
    resumed = learner(kl_loss_coef=0.1)
    resumed.load(tmp_path)
    again = [resumed.update(one) for one in batches[1:]]
    del metrics[0]
    for left, right in zip(metrics, again, strict=True):
        left.pop("timing/s/old_log_prob"), right.pop("timing/s/old_log_prob")
        assert str(left) == str(right)
    assert resumed.policy_version == straight.policy_version == 6
    for name, value in straight.weights().state_dict().items():
        assert torch.equal(value, resumed.weights().state_dict()[name])
    for name, value in straight._optimizer.state().items():
        assert torch.equal(value, resumed._optimizer.state()[name])


def test_in_bfloat16_base_adapter_and_merged_file_stay_in_full_precision(tmp_path: Path) -> None:
    model = tiny_llama()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    ours = Learner(model, tiny_tokenizer(), settings(), total_steps=10, dtype=torch.bfloat16)
    randomise(ours._adapter)
    exact = learner()
    randomise(exact._adapter)
    one_backward(ours)
    one_backward(exact)
    for name, gradient in gradients(ours).items():
        assert gradient.dtype == torch.float32
        scale = gradients(exact)[name].abs().max()
        torch.testing.assert_close(gradient, gradients(exact)[name], rtol=0, atol=float(scale) * 0.05)
    ours.save(tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    for name, site in ours._adapter.sites.items():
        expected = start[f"{name}.weight"] + 2.0 * site.b_OR.detach() @ site.a_RI.detach()
        torch.testing.assert_close(saved[f"{name}.weight"], expected, rtol=0, atol=1e-7)


def test_only_the_adapter_is_optimised() -> None:
    ours = learner()
    assert set(ours._optimizer.masters) == set(dict(ours._adapter.named_parameters()))
    trained = sum(weight.numel() for weight in ours._optimizer.masters.values())
    # Per layer q 64x64, k and v 32x64, o 64x64, gate, up 128x64, down 64x128: rank 4 times the sum of sides.
    assert trained == 2 * 4 * (2 * 128 + 2 * 96 + 3 * 192)


@pytest.mark.parametrize(
    ("targets", "complaint"),
    [(("c_attn",), "its layers: down_proj, gate_proj"), (("lm_head",), "no linear layer 'lm_head'")],
)
def test_a_target_that_cannot_be_adapted_is_refused(targets: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        learner(target_modules=targets)
