"""Prompt and completions -> packs and batches of the learner, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence as ListLike

import torch

from strop.rl.batch import pack
from strop.schema.batch import Batch, MiniBatch, Pack, Sequence


def sequence(
    prompt: ListLike[int],
    completion: ListLike[int],
    *,
    advantage: float = 1.0,
    weight: float = 1.0,
    temperature: float = 1.0,
    behaviour: ListLike[float] | None = None,
    rollout_id: str = "r0",
) -> Sequence:
    """A single-turn rollout; behaviour logprobs default to -1."""
    before, after = len(prompt), len(completion)
    return Sequence(
        rollout_id=rollout_id,
        group_id="g",
        token_ids=(*prompt, *completion),
        loss_mask=(False,) * before + (True,) * after,
        behaviour_logprobs=(0.0,) * before + tuple(behaviour or [-1.0] * after),
        temperatures=(1.0,) * before + (temperature,) * after,
        advantage=advantage,
        weight=weight,
    )


def random_pack(
    seed: int,
    *,
    prompt: int = 5,
    lengths: ListLike[int] = (3, 6, 4),
    advantages: ListLike[float] = (1.0, -0.5, -0.5),
) -> Pack:
    """A group with a common prompt; its second completion starts like the first, so it branches twice."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 200, (count,), generator=generator).tolist()

    start, completions = ids(prompt), [ids(length) for length in lengths]
    completions[1][:2] = completions[0][:2]
    return pack(
        [
            sequence(start, completion, advantage=advantage, temperature=0.7, rollout_id=f"r{seed}-{index}")
            for index, (completion, advantage) in enumerate(zip(completions, advantages, strict=True))
        ]
    )


def mini_batch(*packs: Pack) -> MiniBatch:
    sequences = [item for one in packs for item in one.sequences]
    return MiniBatch(
        packs=packs,
        num_rollouts=len({item.rollout_id for item in sequences}),
        num_loss_tokens=sum(item.num_loss_tokens for item in sequences),
    )


def batch(*minis: MiniBatch, step: int = 1) -> Batch:
    return Batch(step=step, mini_batches=minis)
