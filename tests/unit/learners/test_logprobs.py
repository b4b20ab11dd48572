"""Chunked logprobs against the plain softmax over the whole vocabulary."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from strop.learners.local.logprobs import edge_logprobs

EDGES, WIDTH, VOCABULARY = 30, 16, 101


CUTS = [(1, 0), (7, 7 * VOCABULARY * 8), (64, 1 << 30), (7, 0)]


def inputs(dtype: torch.dtype = torch.float64, *, bias: bool = False):
    torch.manual_seed(0)
    hidden = torch.randn(EDGES, WIDTH, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, dtype=dtype, requires_grad=True)
    offset = torch.randn(VOCABULARY, dtype=dtype, requires_grad=True) if bias else None
    tokens = torch.randint(VOCABULARY, (EDGES,))
    temperatures = torch.where(torch.arange(EDGES) % 3 == 0, 0.6, 1.0)
    return hidden, weight, offset, tokens, temperatures


def plain(hidden, weight, offset, tokens, temperatures):
    logits = torch.nn.functional.linear(hidden, weight, offset) / temperatures[:, None]
    logprobs = torch.log_softmax(logits, -1)
    return logprobs.gather(1, tokens[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("kept_bytes", [0, 7 * VOCABULARY * 8, 1 << 30])
@pytest.mark.parametrize("bias", [False, True])
def test_chunks_give_the_logprobs_entropies_and_gradients_of_the_whole(
    chunk: int, kept_bytes: int, bias: bool
):
    ours, theirs = inputs(bias=bias), inputs(bias=bias)
    logprobs, entropies = edge_logprobs(*ours, chunk=chunk, kept_bytes=kept_bytes)
    expected_logprobs, expected_entropies = plain(*theirs)
    torch.testing.assert_close(logprobs, expected_logprobs, rtol=0, atol=1e-12)
    torch.testing.assert_close(entropies, expected_entropies.detach(), rtol=0, atol=1e-12)
    pull = torch.linspace(-1, 1, EDGES, dtype=torch.float64)
    (logprobs * pull).sum().backward()
    (expected_logprobs * pull).sum().backward()
    for mine, other in zip(ours[:3], theirs[:3], strict=True):
        if mine is not None:
            torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("chunk", "kept_bytes"), CUTS)
@pytest.mark.parametrize("bias", [False, True])
def test_entropies_have_the_gradient_of_the_whole_where_it_is_asked_for(
    chunk: int, kept_bytes: int, bias: bool
):
    ours, theirs = inputs(bias=bias), inputs(bias=bias)
    settings = {"chunk": chunk, "kept_bytes": kept_bytes}
    logprobs, entropies = edge_logprobs(*ours, entropy_gradient=True, **settings)
    expected_logprobs, expected_entropies = plain(*theirs)
    pull = torch.linspace(-1, 1, EDGES, dtype=torch.float64)
    (logprobs * pull + entropies * pull.flip(0)).sum().backward()
    (expected_logprobs * pull + expected_entropies * pull.flip(0)).sum().backward()
    for mine, other in zip(ours[:3], theirs[:3], strict=True):
        if mine is not None:
            torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-12)
    assert not edge_logprobs(*ours, **settings)[1].requires_grad


def test_the_entropy_of_a_certain_token_has_no_gradient_and_no_nan():
    hidden = torch.tensor([[2000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0]], requires_grad=True)
    _, entropies = edge_logprobs(
        hidden, weight, None, torch.tensor([0]), torch.ones(1), entropy_gradient=True
    )
    entropies.sum().backward()
    assert hidden.grad.item() == 0.0
    assert torch.equal(weight.grad, torch.zeros(2, 1))


def test_a_token_far_below_the_best_keeps_its_exact_logprob():
    hidden = torch.tensor([[200.0]])
    weight = torch.tensor([[1.0], [0.0]])
    logprobs, entropies = edge_logprobs(hidden, weight, None, torch.tensor([1]), torch.ones(1))
    assert logprobs.item() == -200.0
    assert entropies.item() == 0.0


def test_temperature_divides_the_logits_of_its_own_token_only():
    hidden, weight, _, tokens, _ = inputs()
    one, _ = edge_logprobs(hidden, weight, None, tokens, torch.ones(EDGES))
    mixed, _ = edge_logprobs(hidden, weight, None, tokens, torch.where(torch.arange(EDGES) == 4, 0.6, 1.0))
    expected = torch.log_softmax(hidden[4] @ weight.t() / torch.tensor(0.6), -1)[tokens[4]]
    assert mixed[4].item() == pytest.approx(expected.item(), abs=1e-7)
    others = torch.arange(EDGES) != 4
    torch.testing.assert_close(mixed[others], one[others], rtol=0, atol=1e-12)


class _Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self.numel = max(self.numel, value.numel())
        return result


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_no_tensor_grows_with_tokens_times_vocabulary(chunk: int, entropy_gradient: bool):
    settings = {"chunk": chunk, "kept_bytes": 0, "entropy_gradient": entropy_gradient}
    with _Largest() as largest:
        logprobs, entropies = edge_logprobs(*inputs(), **settings)
        (logprobs.sum() + entropies.sum()).backward()
    assert largest.numel <= max(chunk * VOCABULARY, VOCABULARY * WIDTH)


def test_logprobs_of_half_precision_states_are_summed_in_full_precision():
    hidden, weight, _, tokens, temperatures = inputs(torch.bfloat16)
    logprobs, entropies = edge_logprobs(hidden, weight, None, tokens, temperatures)
    assert logprobs.dtype == entropies.dtype == torch.float32
    logits = (hidden @ weight.t()).float() / temperatures[:, None]
    expected = torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-5)
