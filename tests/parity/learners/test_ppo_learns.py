"""PPO on a tiny random model: sampling, values, advantages and updates together raise the reward."""

from pathlib import Path

import torch

from fakes.learning import Critic, Learner
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch
from strop.config.job import HyperParameters
from strop.learners.local.checkpoint import Checkpoints
from strop.rl.batch import pack
from strop.rl.gae import gae_metrics, with_gae
from strop.schema.batch import Sequence

PROMPTS, OFFSETS = ([5, 6, 7], [8, 9]), (0.0, 1.0)
ROLLOUTS, TOKENS, STEPS = 16, 3, 32
SETTINGS = {
    "algorithm": "ppo",
    "learning_rate": 6e-3,
    "critic_learning_rate": 6e-3,
    "lr_scheduler_type": "constant",
    "lr_warmup_steps": 0,
    "lam": 0.95,
    "batch_size": 2,
    "ppo_mini_batch_size": 1,
    "reference_kl": False,
    "train_dtype": "float32",
}


def is_right(token: int, prompt: int) -> bool:
    """One token in three; other ones after the other prompt."""
    return token % 3 == prompt


class Run:
    """The flow in small: `step` samples, judges and updates, and gives the share of right tokens and the
    metrics."""

    def __init__(self, **changes) -> None:
        self.hyper = HyperParameters.model_validate(SETTINGS | changes)
        model = tiny_llama()
        self.critic = Critic(model, self.hyper, total_steps=STEPS)
        self.learner = Learner(model, None, self.hyper, total_steps=STEPS)

    def step(self, step: int) -> tuple[float, dict[str, float]]:
        generator = torch.Generator().manual_seed(step)
        groups = [self.sampled(generator, prompt) for prompt in range(len(PROMPTS))]
        made = batch(*(mini_batch(pack(group)) for group in groups), step=step)
        made = with_gae(made, self.critic.values(made), gamma=self.hyper.gamma, lam=self.hyper.lam)
        metrics = gae_metrics(made) | self.critic.update(made) | self.learner.update(made)
        shares = [one.reward - OFFSETS[prompt] for prompt, group in enumerate(groups) for one in group]
        return sum(shares) / len(shares), metrics

    @torch.no_grad()
    def sampled(self, generator: torch.Generator, prompt: int) -> list[Sequence]:
        """Rollouts of three tokens, rewarded with the share of right ones and what their prompt gives."""
        start = PROMPTS[prompt]
        ids = torch.tensor([start] * ROLLOUTS)
        logprobs = []
        for _ in range(TOKENS):
            logits = self.learner.weights()(input_ids=ids, use_cache=False).logits[:, -1]
            choices = torch.log_softmax(logits, -1)
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
                reward=OFFSETS[prompt]
                + sum(is_right(token, prompt) for token in ids[row, before:].tolist()) / TOKENS,
            )
            for row in range(ROLLOUTS)
        ]


def test_ppo_raises_the_reward_and_its_critic_learns_what_each_prompt_is_worth():
    run = Run()
    shares, explained = [], []
    for step in range(1, STEPS + 1):
        share, metrics = run.step(step)
        shares.append(share)
        explained.append(metrics["critic/vf_explained_var"])
        assert (metrics["actor/num_updates"], metrics["critic/num_updates"]) == (2, 2)
    assert sum(shares[:3]) / 3 < 0.5
    assert sum(shares[-3:]) / 3 > 0.9
    assert abs(explained[0]) < 1e-3  # every value is 0 then, which explains nothing
    assert explained[-1] > 0.5


def test_a_resumed_run_of_ppo_is_the_uninterrupted_one_bit_by_bit(tmp_path: Path):
    straight = Run()
    for step in (1, 2):
        straight.step(step)
    writer = Checkpoints(straight.learner, straight.critic)
    writer.write(tmp_path / "step-2", step=2, policy_version=4, position={"step": 2})
    expected = [straight.step(step) for step in (3, 4)]

    resumed = Run()
    assert Checkpoints(resumed.learner, resumed.critic).load(tmp_path / "step-2") == {"step": 2}
    found = [resumed.step(step) for step in (3, 4)]
    for (reward, metrics), (same_reward, same_metrics) in zip(expected, found, strict=True):
        assert reward == same_reward
        del metrics["timing/s/old_log_prob"], same_metrics["timing/s/old_log_prob"]
        assert metrics == same_metrics
    assert resumed.learner.policy_version == straight.learner.policy_version == 8
    pairs = [(straight.learner.weights(), resumed.learner.weights())]
    pairs.append((straight.critic.network(), resumed.critic.network()))
    for left, right in pairs:
        for one, other in zip(left.parameters(), right.parameters(), strict=True):
            assert torch.equal(one, other)
