"""The gradient of an update is one number a weight, however the update is cut, packed, ordered or spread."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from fakes.offline import example, packed
from fakes.packs import mini_batch, random_pack, sequence
from fakes.ranks import part_of_critic_gradient, part_of_gradient, part_of_offline_gradient, work
from strop.algorithms import algorithm, algorithm_names
from strop.rl.batch import pack
from strop.schema.batch import Pack

PACKS = [
    random_pack(0, lengths=(3, 9, 4)),
    random_pack(1, lengths=(1, 6, 2), advantages=(0.3, -1.2, 0.9)),
    random_pack(2, lengths=(5, 2, 8), advantages=(0.0, 0.0, 0.0)),
    random_pack(3),
]


def without_logprobs(one: Pack) -> Pack:
    """The engine told no logprob of the first row and of the second row's last token."""
    first, second, *others = one.sequences
    nothing = tuple(math.nan if sampled else 0.0 for sampled in first.loss_mask)
    return pack(
        [
            replace(first, behaviour_logprobs=nothing),
            replace(second, behaviour_logprobs=(*second.behaviour_logprobs[:-1], math.nan)),
            *others,
        ]
    )


WHOLE = mini_batch(*PACKS)
SPOILT = mini_batch(without_logprobs(PACKS[0]), *PACKS[1:])
ALL_TERMS = {"kl_loss_coef": 0.3, "entropy_coeff": 0.2}
SHORT = {"max_length": 32, "max_prompt_length": 8}  # dr_grpo divides by the former
ALGORITHMS = [one for one in algorithm_names() if not algorithm(one).critic]
"""The policy loss of ppo is that of grpo; its critic is asked for by itself."""


def gradient(algorithm: str, packs=PACKS, **changes) -> torch.Tensor:
    max_nodes = changes.pop("max_nodes", 768)
    settings = {"algorithm": algorithm, **SHORT, **ALL_TERMS, **changes}
    return part_of_gradient(settings, WHOLE, packs, max_nodes=max_nodes)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_micro_batches_of_any_size_give_the_gradient_of_the_whole(algorithm: str):
    expected = gradient(algorithm)
    for max_nodes in (8, 20):
        assert_same(gradient(algorithm, max_nodes=max_nodes), expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_order_and_packing_of_rows_change_nothing(algorithm: str):
    expected = gradient(algorithm)
    assert_same(gradient(algorithm, PACKS[::-1]), expected)
    alone = [pack([one]) for each in PACKS for one in reversed(each.sequences)]
    assert_same(gradient(algorithm, alone), expected)


@pytest.mark.parametrize("kind", ["k1", "k3", "k3+", "abs"])
def test_every_kl_estimator_is_independent_of_the_cut(kind: str):
    expected = gradient("grpo", kl_loss_type=kind)
    assert_same(gradient("grpo", kl_loss_type=kind, max_nodes=8), expected)


def test_every_term_of_the_loss_counts_in_these_gradients():
    everything = gradient("grpo")
    for name in ALL_TERMS:
        without = gradient("grpo", **{name: 0.0})
        assert (everything - without).abs().max() > 1e-3


ROWS = packed(
    example("a", [5, 6, 7], [20, 21, 22], [30, 31], weights=[0, 0], pairs=((0, 1),)),
    example("b", [5, 6], [30, 31], [40, 41, 42, 43], [50], weights=[1, 0, 0], pairs=((0, 1), (0, 2), (1, 2))),
    example("c", [9], [50, 51, 52, 53, 54], weights=[0.5]),
)
"""Rows of preferences, of which some also teach."""


def test_two_processes_sum_to_the_gradient_of_one(tmp_path: Path):
    jobs = [
        ({"algorithm": name, **SHORT, **ALL_TERMS}, whole) for name in ALGORITHMS for whole in (WHOLE, SPOILT)
    ]
    jobs += [
        ({"algorithm": "grpo", **SHORT, **ALL_TERMS, "kl_loss_type": kind}, WHOLE)
        for kind in ("k1", "k3", "k3+", "abs")
    ]
    multiprocessing.spawn(work, (str(tmp_path), jobs, WHOLE, ROWS), nprocs=2)
    *found, critics, offline = torch.load(tmp_path / "gradients.pt")
    assert_same(critics, part_of_critic_gradient(WHOLE, range(len(PACKS))))
    assert_same(offline, part_of_offline_gradient(ROWS, range(len(ROWS))))
    for (settings, whole), summed in zip(jobs, found, strict=True):
        assert_same(summed, part_of_gradient(settings, whole, whole.packs))


def test_what_one_process_drops_leaves_the_denominators_of_both():
    """`SPOILT` has lost tokens of its first pack alone: apart, the second process would divide by too
    many."""
    settings = {"algorithm": "dapo", **SHORT, **ALL_TERMS}
    whole = part_of_gradient(settings, SPOILT, SPOILT.packs)
    halves = [slice(rank, None, 2) for rank in (0, 1)]
    together = [part_of_gradient(settings, SPOILT, SPOILT.packs, part=half) for half in halves]
    assert_same(together[0] + together[1], whole)
    apart = [part_of_gradient(settings, SPOILT, SPOILT.packs[half]) for half in halves]
    assert (apart[0] + apart[1] - whole).abs().max() > 1e-3


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "dapo", "rloo", "cispo", "sapo"])
def test_a_rollout_in_three_sequences_weighs_what_it_does_in_one(algorithm: str):
    """The same tokens with the same contexts, laid out as one row or as three: one gradient."""
    prompt, answer = [3, 4, 5], [20, 21, 22, 23, 24, 25]
    whole = sequence(prompt, answer, rollout_id="a")
    cuts = [(0, 1), (1, 3), (3, 6)]
    parts = [
        replace(
            sequence([*prompt, *answer[:start]], answer[start:end], rollout_id="a"), weight=(end - start) / 6
        )
        for start, end in cuts
    ]
    other = sequence(prompt, [30, 31], advantage=-1.0, rollout_id="b")
    settings = {"algorithm": algorithm, **SHORT, **ALL_TERMS}
    expected = part_of_gradient(settings, mini_batch(pack([whole, other])), [pack([whole, other])])
    split = pack([*parts, other])
    assert_same(part_of_gradient(settings, mini_batch(split), [split]), expected)
