"""A learner of a tiny model, groups for it, and what its weights say of them."""

import torch

from fakes.model import tiny_llama
from fakes.packs import random_pack, sequence
from fakes.tokenizer import tiny_tokenizer
from strop.config.job import HyperParameters
from strop.learners.local.forward import forest_logprobs
from strop.learners.local.packed_trees import make_forests
from strop.learners.local.update import Learner
from strop.rl.batch import pack

GROUP = random_pack(0)

OTHER = random_pack(1)

FLAT = random_pack(2, advantages=(0.0, 0.0, 0.0))


def settings(**changes) -> HyperParameters:
    values = {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "train_dtype": "float32", **changes}
    # A KL term needs the reference; the curve alone costs a pass, which most of these tests do not count.
    values.setdefault("reference_kl", "kl_loss_coef" in changes)
    return HyperParameters.model_validate(values)


def learner(dtype: torch.dtype = torch.float64, **changes) -> Learner:
    model = tiny_llama().to(dtype)
    return Learner(model, tiny_tokenizer(), settings(**changes), total_steps=10, dtype=dtype)


def weights(of: Learner) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in of.weights().named_parameters()}


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max(float((left[name].double() - right[name].double()).abs().max().detach()) for name in left)


def logprobs(of: Learner, packed) -> tuple[torch.Tensor, torch.Tensor]:
    """(S, T) logprobs and mask under the weights of now."""
    [forest] = make_forests([packed], max_nodes=10_000)
    with torch.no_grad():
        return forest_logprobs(of.weights(), forest)[0][forest.sequence_edges_ST], forest.mask_ST


def with_behaviour(of: Learner, packed, change: float = 0.0):
    """The same group, its behaviour logprobs those of the learner, the first one lowered by `change`."""
    rows, mask = logprobs(of, packed)
    made = []
    for index, item in enumerate(packed.sequences):
        own = rows[index][mask[index]].tolist()
        own[0] -= change if index == 0 else 0.0
        prompt = len(item.token_ids) - item.num_loss_tokens
        made.append(
            sequence(
                item.token_ids[:prompt],
                item.token_ids[prompt:],
                advantage=item.advantage,
                temperature=0.7,
                behaviour=own,
                rollout_id=item.rollout_id,
            )
        )
    return pack(made)
