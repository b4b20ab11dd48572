"""A learner of a tiny model, groups for it, and what its weights say of them.

`Learner`, `Critic` and `OfflineLearner` are the local trainers of one test process together with the updates
that `rl` drives them through.
"""

import torch

from fakes.model import tiny_llama
from fakes.packs import random_pack, sequence
from fakes.tokenizer import tiny_tokenizer
from strop.config.job import HyperParameters
from strop.learners.local.critic import LocalValueTrainer
from strop.learners.local.forward import tree_logprobs
from strop.learners.local.packed_trees import pack_trees
from strop.learners.local.policy import LocalPolicyTrainer
from strop.learners.local.rows import LocalRowTrainer
from strop.learners.local.teacher import Teacher
from strop.rl.batch import pack
from strop.rl.offline import RowLearner
from strop.rl.update import CriticLearner, PolicyLearner
from strop.schema.batch import Batch, Pack, Score

GROUP = random_pack(0)

OTHER = random_pack(1)

FLAT = random_pack(2, advantages=(0.0, 0.0, 0.0))


class Learner(LocalPolicyTrainer):
    def __init__(
        self,
        model,
        tokenizer,
        hyper: HyperParameters,
        *,
        total_steps: int,
        teacher: Teacher | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sha256 = None if teacher is None else teacher.sha256
        super().__init__(model, tokenizer, hyper, teacher_sha256=sha256, dtype=dtype)
        self.policy = PolicyLearner(self, hyper, total_steps=total_steps, teacher=teacher)

    def update(self, batch: Batch) -> dict[str, float]:
        return self.policy.update(batch)

    def scores(self, batch: Batch) -> list[Score]:
        return self.policy.score(batch)


class Critic(LocalValueTrainer):
    def __init__(
        self, model, hyper: HyperParameters, *, total_steps: int, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(model, hyper, dtype=dtype)
        self.critic = CriticLearner(self, hyper, total_steps=total_steps)

    def values(self, batch: Batch) -> list[list[float]]:
        return self.critic.values(batch)

    def update(self, batch: Batch) -> dict[str, float]:
        return self.critic.update(batch)


class OfflineLearner(LocalRowTrainer):
    def __init__(
        self, model, tokenizer, hyper: HyperParameters, *, total_steps: int, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(model, tokenizer, hyper, dtype=dtype)
        self.rows = RowLearner(self, hyper, total_steps=total_steps)

    def update(self, batch: Batch) -> dict[str, float]:
        return self.rows.update(batch)

    def measure(self, packs: list[Pack]) -> dict[str, float]:
        return self.rows.measure(packs)


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
    [trees] = pack_trees([packed], max_nodes=10_000)
    with torch.no_grad():
        return tree_logprobs(of.weights(), trees)[0][trees.sequence_edges_ST], trees.mask_ST


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
