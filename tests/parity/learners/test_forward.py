"""The packed, hand-written forward and backward pass against transformers, sequence by sequence."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from fakes.model import tiny_llama
from fakes.packs import random_pack, sequence
from strop.errors import ModelError
from strop.learners.local import llama
from strop.learners.local.forward import check_trainable, tree_logprobs
from strop.learners.local.packed_trees import PackedTrees, pack_trees
from strop.rl.batch import pack
from strop.schema.batch import Pack

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 211,
}
ROPED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 512}
CONFIGS = {
    "llama": LlamaConfig(**ROPED, tie_word_embeddings=True),
    "llama with its own head": LlamaConfig(**ROPED, tie_word_embeddings=False),
    "qwen2, biased": Qwen2Config(**ROPED),
    "mistral": MistralConfig(**ROPED, sliding_window=None),
    "qwen3, as the module": Qwen3Config(**ROPED, head_dim=8),
    "gpt2, as the module": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=512, vocab_size=211),
}


def build(name: str, dtype: torch.dtype):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation="sdpa").to(dtype).eval()
    with torch.no_grad():  # fresh models have ones and zeros where a bug would hide
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def packs() -> list[Pack]:
    long = [sequence(range(3, 150), range(20, 60)), sequence(range(3, 150), range(21, 41), temperature=1.3)]
    return [random_pack(0), random_pack(1, prompt=9, lengths=(2, 12, 7)), pack(long)]


def gradients(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def weighted(trees: PackedTrees, logprobs_E: torch.Tensor) -> torch.Tensor:
    """Any loss that treats every token differently."""
    tokens_ST = logprobs_E[trees.sequence_edges_ST].exp()
    slope = torch.linspace(0.5, 1.5, tokens_ST.shape[1], dtype=tokens_ST.dtype)
    return (tokens_ST * slope * trees.advantages_ST * trees.mask_ST).sum()


def one_by_one(model, packed: Pack) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Logprobs of each sequence's sampled tokens by a plain forward pass over that sequence alone."""
    logprobs, entropies = [], []
    for item in packed.sequences:
        ids = torch.tensor([item.token_ids])
        temperatures = torch.tensor(item.temperatures)[1:, None]
        all_logprobs = torch.log_softmax(
            model(input_ids=ids, use_cache=False).logits[0, :-1] / temperatures, -1
        )
        sampled = torch.tensor(item.loss_mask)[1:]
        logprobs.append(all_logprobs.gather(1, ids[0, 1:, None])[sampled, 0])
        entropies.append(-(all_logprobs.exp() * all_logprobs).sum(-1)[sampled])
    return logprobs, entropies


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_packed_trees_equal_each_sequence_alone(name: str, dtype: torch.dtype, tolerance: float):
    model = build(name, dtype)
    micro_batches = pack_trees(packs(), max_nodes=10_000)
    assert len(micro_batches) == 1
    found_E, entropies_E = tree_logprobs(model, micro_batches[0])
    found = gradients(model, weighted(micro_batches[0], found_E))

    alone = [one_by_one(model, packed) for packed in packs()]
    logprobs = [row for rows, _ in alone for row in rows]
    rows_ST = torch.nn.utils.rnn.pad_sequence(logprobs, batch_first=True)
    mask = micro_batches[0].mask_ST
    torch.testing.assert_close(
        found_E[micro_batches[0].sequence_edges_ST][mask], rows_ST[mask], rtol=0, atol=tolerance
    )
    entropies = torch.nn.utils.rnn.pad_sequence([row for _, rows in alone for row in rows], batch_first=True)
    torch.testing.assert_close(
        entropies_E[micro_batches[0].sequence_edges_ST][mask],
        entropies[mask].detach(),
        rtol=0,
        atol=tolerance,
    )
    slope = torch.linspace(0.5, 1.5, rows_ST.shape[1], dtype=dtype)
    expected = gradients(model, (rows_ST.exp() * slope * micro_batches[0].advantages_ST * mask).sum())
    assert found.keys() == expected.keys()
    for weight, gradient in expected.items():
        torch.testing.assert_close(
            found[weight],
            gradient,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text, at=weight: f"{at}: {text}",
        )


@pytest.mark.parametrize("name", ["llama", "llama with its own head", "qwen2, biased", "mistral"])
def test_the_fast_path_equals_the_module(name: str):
    model = build(name, torch.float32)
    assert llama.supports(model)
    [trees] = pack_trees(packs(), max_nodes=10_000)
    fast_E, _ = tree_logprobs(model, trees)
    fast = gradients(model, weighted(trees, fast_E))
    module_E, _ = tree_logprobs(model, trees, as_module=True)
    module = gradients(model, weighted(trees, module_E))
    torch.testing.assert_close(fast_E, module_E, rtol=0, atol=1e-5)
    assert fast.keys() == module.keys()
    for weight, gradient in module.items():
        torch.testing.assert_close(fast[weight], gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("max_nodes", [16, 60, 200])
def test_how_packs_are_cut_into_micro_batches_changes_no_gradient(max_nodes: int):
    model = build("llama", torch.float64)
    [whole] = pack_trees(packs(), max_nodes=10_000)
    expected = gradients(model, weighted_by_position(whole, tree_logprobs(model, whole)[0]))
    parts = pack_trees(packs(), max_nodes=max_nodes)
    assert len(parts) > 1
    loss = sum(weighted_by_position(part, tree_logprobs(model, part)[0]) for part in parts)
    for weight, gradient in gradients(model, loss).items():
        torch.testing.assert_close(gradient, expected[weight], rtol=0, atol=1e-6)


def weighted_by_position(trees: PackedTrees, logprobs_E: torch.Tensor) -> torch.Tensor:
    tokens_ST = logprobs_E[trees.sequence_edges_ST].exp()
    slope = 1 / torch.arange(1, tokens_ST.shape[1] + 1, dtype=tokens_ST.dtype)
    return (tokens_ST * slope * trees.advantages_ST * trees.mask_ST).sum()


def test_a_frozen_embedding_gets_no_gradient_and_changes_none_of_the_others():
    model = build("llama", torch.float64)
    [trees] = pack_trees(packs(), max_nodes=10_000)
    whole = gradients(model, weighted(trees, tree_logprobs(model, trees)[0]))
    model.get_input_embeddings().requires_grad_(False)
    frozen = gradients(model, weighted(trees, tree_logprobs(model, trees)[0]))
    assert set(whole) - set(frozen) == {"model.embed_tokens.weight"}
    for weight, gradient in frozen.items():
        torch.testing.assert_close(gradient, whole[weight], rtol=0, atol=1e-12)


def test_bfloat16_stays_near_float32():
    model = tiny_llama().eval()
    [trees] = pack_trees(packs()[:2], max_nodes=10_000)
    exact_E, _ = tree_logprobs(model, trees)
    rough_E, _ = tree_logprobs(model.to(torch.bfloat16), trees)
    assert rough_E.dtype == torch.float32
    assert (rough_E - exact_E).abs().mean() < 0.05


def test_a_sliding_window_is_refused():
    model = AutoModelForCausalLM.from_config(MistralConfig(**ROPED, sliding_window=8))
    with pytest.raises(ModelError, match="window 8"):
        check_trainable(model)


def test_a_model_that_changes_its_logits_is_refused():
    from transformers import CohereConfig

    model = AutoModelForCausalLM.from_config(CohereConfig(**ROPED, logit_scale=0.25))
    with pytest.raises(ModelError, match="change the logits"):
        check_trainable(model)


@pytest.mark.slow
def test_the_real_small_model_equals_its_module(smollm2):
    from strop.learners import models

    model, tokenizer = models.load(smollm2)
    prompt = tokenizer("What is 12 plus 30? Think, then answer.").input_ids
    group = [
        sequence(prompt, tokenizer(text).input_ids) for text in ("The answer is 42.", "The answer: 42", "No.")
    ]
    [trees] = pack_trees([pack(group)], max_nodes=10_000)
    with torch.no_grad():
        fast_E, _ = tree_logprobs(model, trees)
        logprobs, _ = one_by_one(model, pack(group))
    for row, expected in enumerate(logprobs):
        edges = trees.sequence_edges_ST[row][trees.mask_ST[row]]
        torch.testing.assert_close(fast_E[edges], expected, rtol=0, atol=1e-4)
