"""PPO on a tiny random model: values, advantages and updates together raise the reward."""

import torch

from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch
from strop.pipeline.batch import pack
from strop.pipeline.gae import gae_measures, with_gae
from strop.policy.critic import Critic
from strop.policy.update import Learner
from strop.schema.batch import Sequence
from strop.schema.config import HyperParameters

PROMPTS = ([5, 6, 7], [8, 9])
ROLLOUTS, TOKENS, STEPS = 16, 3, 25


def is_right(token: int, prompt: int) -> bool:
    """One token in three; other ones after the other prompt."""
    return token % 3 == prompt


@torch.no_grad()
def sampled(model, generator: torch.Generator, prompt: int) -> list[Sequence]:
    """Rollouts of three tokens, rewarded with the share of right ones."""
    start = PROMPTS[prompt]
    ids = torch.tensor([start] * ROLLOUTS)
    logprobs = []
    for _ in range(TOKENS):
        choices = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[:, -1], -1)
        taken = torch.multinomial(choices.exp(), 1, generator=generator)
        logprobs.append(choices.gather(1, taken)[:, 0])
        ids = torch.cat([ids, taken], 1)
    before = len(start)
    return [
        Sequence(
            rollout_id=f"{prompt}-{row}",
            group_id=str(prompt),
            token_ids=tuple(ids[row].tolist()),
            loss_mask=(False,) * before + (True,) * TOKENS,
            behaviour_logprobs=(0.0,) * before + tuple(value[row].item() for value in logprobs),
            temperatures=(1.0,) * (before + TOKENS),
            reward=sum(is_right(token, prompt) for token in ids[row, before:].tolist()) / TOKENS,
        )
        for row in range(ROLLOUTS)
    ]


def test_ppo_raises_the_reward_and_its_critic_explains_the_returns():
    hyper = HyperParameters.model_validate(
        {
            "algorithm": "ppo",
            "learning_rate": 3e-3,
            "critic_learning_rate": 3e-3,
            "lr_scheduler_type": "constant",
            "lr_warmup_steps": 0,
            "lam": 0.95,
            "batch_size": 2,
            "ppo_mini_batch_size": 1,
            "train_dtype": "float32",
        }
    )
    model = tiny_llama()
    critic = Critic(model, hyper, total_steps=STEPS)
    learner = Learner(model, None, hyper, total_steps=STEPS)
    generator = torch.Generator().manual_seed(0)
    rewards, explained = [], []
    for step in range(1, STEPS + 1):
        groups = [sampled(learner.weights(), generator, prompt) for prompt in range(2)]
        made = batch(*(mini_batch(pack(group)) for group in groups), step=step)
        made = with_gae(made, critic.values(made), gamma=hyper.gamma, lam=hyper.lam)
        explained.append(gae_measures(made)["critic/vf_explained_var"])
        assert critic.update(made)["critic/skipped_updates"] == 0
        assert learner.update(made)["actor/num_updates"] == 2
        rewards.append(sum(one.reward for group in groups for one in group) / (2 * ROLLOUTS))
    assert sum(rewards[:3]) / 3 < 0.5
    assert sum(rewards[-3:]) / 3 > 0.9
    assert abs(explained[0]) < 1e-6  # every value is 0 then, which explains nothing
    assert max(explained[5:15]) > 0.3
