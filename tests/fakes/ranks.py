"""Packs -> the gradient of a mini-batch of which they are a part; alone, or as one of two processes.

The learner has left its start weights by one step, and the old logprobs are those of the start: every ratio,
KL and entropy of the objective is away from its fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from fakes.learning import Critic, Learner, OfflineLearner
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack
from strop.config.job import HyperParameters
from strop.learners.local import policy
from strop.learners.local.forward import scored
from strop.learners.local.packed_trees import pack_trees
from strop.rl.gae import with_gae
from strop.rl.normalizer import normalized
from strop.rl.offline import row_normalizer
from strop.rl.update import with_rows
from strop.schema.batch import LossNormalizer, MiniBatch, Pack

EVERYTHING = slice(None)
WARM_UP = random_pack(99)
_WARM_UP = HyperParameters.model_validate({"learning_rate": 1e-2, "lr_scheduler_type": "constant"})


def part_of_gradient(
    settings: dict[str, Any],
    whole: MiniBatch,
    packs: Sequence[Pack],
    *,
    max_nodes: int = 768,
    part: slice = EVERYTHING,
) -> torch.Tensor:
    """What `part` of `packs`, which are all of `whole`, adds to its gradient: all weights in a float64
    vector."""
    learner, start = _warm_learner()
    learner._hyper = HyperParameters.model_validate(settings)
    weighed, normalizer = normalized(replace(whole, packs=tuple(packs)), packs)
    computed = weighed[part]
    with torch.no_grad():
        old = scored(start, pack_trees(computed, max_nodes=max_nodes), computed).logprobs
    known = with_rows(
        computed, old_logprobs=old, reference_logprobs=learner.score_reference(computed).logprobs
    )
    learner._summed = False
    with patch.object(policy, "MAX_NODES", max_nodes):
        learner.forward_backward(known, normalizer)
    return torch.cat([weight.grad.flatten() for weight in learner.weights().parameters()])


@cache
def _warm_learner() -> tuple[Learner, torch.nn.Module]:
    """One for all: summing gradients moves no weight. And the weights that it started from."""
    learner = Learner(tiny_llama().double(), None, _WARM_UP, total_steps=10, dtype=torch.float64)
    learner.update(batch(mini_batch(WARM_UP)))
    return learner, tiny_llama().double()


def part_of_critic_gradient(whole: MiniBatch, chosen: Iterable[int]) -> torch.Tensor:
    """The same of a critic, for the packs of these indices."""
    hyper = HyperParameters.model_validate({"algorithm": "ppo", "cliprange_value": 0.05})
    critic = Critic(tiny_llama().double(), hyper, total_steps=10, dtype=torch.float64)
    torch.manual_seed(3)
    with torch.no_grad():
        critic.network().head.weight.normal_(0, 0.1)
    sequences = [one for packed in whole.packs for one in packed.sequences]
    values = [[0.1 * index] * one.num_loss_tokens for index, one in enumerate(sequences)]
    [judged] = with_gae(batch(whole), values, gamma=0.9, lam=0.9).mini_batches
    normalizer = LossNormalizer(num_tokens=whole.num_loss_tokens)
    critic.forward_backward([judged.packs[index] for index in chosen], normalizer)
    return torch.cat([weight.grad.flatten() for weight in critic.network().parameters()])


def part_of_offline_gradient(packs: Sequence[Pack], chosen: Iterable[int]) -> torch.Tensor:
    """What the packs of these indices add to the gradient of an update of all of them, learning from rows."""
    learner = OfflineLearner(tiny_llama().double(), None, _WARM_UP, total_steps=10, dtype=torch.float64)
    learner.remember_reference(packs)
    learner.update(batch(mini_batch(WARM_UP)))
    learner.forward_backward([packs[index] for index in chosen], row_normalizer(packs))
    return torch.cat([weight.grad.flatten() for weight in learner.weights().parameters()])


def work(
    rank: int,
    folder: str,
    jobs: Sequence[tuple[dict[str, Any], MiniBatch]],
    whole: MiniBatch,
    rows: Sequence[Pack],
) -> None:
    """One of two processes: computes every second pack of each job's mini-batch, sums with the other one;
    rank 0 writes the sums, at last that of the critic for `whole` and that of learning from `rows`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    gradients = [
        part_of_gradient(settings, mini, mini.packs, part=slice(rank, None, 2)) for settings, mini in jobs
    ]
    gradients.append(part_of_critic_gradient(whole, range(rank, len(whole.packs), 2)))
    gradients.append(part_of_offline_gradient(rows, range(rank, len(rows), 2)))
    for gradient in gradients:
        dist.all_reduce(gradient)
    if rank == 0:
        torch.save(gradients, Path(folder) / "gradients.pt")
    dist.destroy_process_group()
