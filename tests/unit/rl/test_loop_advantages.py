"""Which advantages reach the learner, by algorithm and with a KL penalty, through the whole flow on fakes."""

import pytest

from fakes.bench import Bench, job
from fakes.critic import FakeCritic, sequences_in
from strop.config.job import JobConfig
from strop.rl.failures import NothingLearned
from strop.schema.function import Reward, RewardInput, RewardOutput

ALL = {"validation": False, "max_steps": 1}


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


async def learned(bench: Bench, config: JobConfig):
    """What the learner got and what was measured; the reward of a rollout is the last digit of its number."""
    await bench.train(config)
    (batch,) = bench.learner.batches
    return sequences_in(batch), bench.recorder.values[1]


@pytest.mark.parametrize("algorithm", ["dr_grpo", "rloo"])
async def test_the_algorithm_chooses_the_baseline(bench: Bench, algorithm: str):
    sequences, _ = await learned(bench, job(algorithm=algorithm, **ALL))
    for one in sequences:
        siblings = [each.reward for each in sequences if each.group_id == one.group_id]
        centred = one.reward - sum(siblings) / len(siblings)
        assert one.advantage == pytest.approx(centred if algorithm == "dr_grpo" else centred * 4 / 3)


async def test_reinforce_pp_compares_across_the_step_token_by_token(bench: Bench):
    sequences, values = await learned(bench, job(algorithm="reinforce_pp", **ALL))
    rewards = [one.reward for one in sequences]
    mean = sum(rewards) / len(rewards)
    std = (sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)) ** 0.5
    for one in sequences:  # one sampled token each
        assert one.token_advantages == pytest.approx(((one.reward - mean) / std,), abs=1e-6)
        assert one.returns == (one.reward,)
    assert values["critic/returns/mean"] == pytest.approx(mean)
    assert values["critic/advantages/mean"] == pytest.approx(0, abs=1e-9)


async def test_reinforce_pp_learns_from_prompts_that_are_answered_once(bench: Bench):
    sequences, _ = await learned(bench, job(algorithm="reinforce_pp", n_rollouts=1, batch_size=4, **ALL))
    rewards = [one.reward for one in sequences]
    assert len(rewards) == 4
    assert len(set(rewards)) > 1
    mean = sum(rewards) / 4
    std = (sum((reward - mean) ** 2 for reward in rewards) / 3) ** 0.5
    for one in sequences:
        assert one.token_advantages == pytest.approx(((one.reward - mean) / std,), abs=1e-6)


async def test_without_a_penalty_the_learner_is_not_asked_for_scores(bench: Bench, monkeypatch):
    monkeypatch.setattr(bench.learner, "score", None)
    _, values = await learned(bench, job(algorithm="grpo", **ALL))
    assert "timing/s/scores" not in values
    assert values["critic/rewards/mean"] == values["critic/score/mean"]


async def test_a_penalty_lowers_every_reward_by_what_its_tokens_cost(bench: Bench):
    sequences, values = await learned(bench, job(algorithm="dr_grpo", kl_reward_coef=0.2, **ALL))
    # k1 of half a nat on one token, times 0.2; all alike, so that the baseline takes it out again.
    assert values["critic/rewards/mean"] == pytest.approx(values["critic/score/mean"] - 0.1)
    assert values["actor/reward_kl_penalty"] == pytest.approx(0.5)
    assert values["timing/s/scores"] >= 0
    for one in sequences:
        siblings = [each.reward for each in sequences if each.group_id == one.group_id]
        assert one.advantage == pytest.approx(one.reward - sum(siblings) / len(siblings))
        assert one.reference_logprobs == (-1.5,)


async def test_with_a_critic_a_penalty_stands_at_its_token(bench: Bench):
    bench.critic = FakeCritic()
    sequences, values = await learned(bench, job(algorithm="ppo", kl_reward_coef=0.2, **ALL))
    for one in sequences:
        assert one.returns == pytest.approx((one.reward - 0.1,))
    assert values["critic/rewards/mean"] == pytest.approx(values["critic/score/mean"] - 0.1)


async def test_flat_groups_are_taught_where_an_entropy_bonus_pulls(tmp_path):
    def flat(payload: RewardInput) -> RewardOutput:
        return RewardOutput(reward=Reward(reward_score=1.0))

    still = Bench(tmp_path / "still", right=flat)
    with pytest.raises(NothingLearned):
        await still.train(job(algorithm="grpo", **ALL))
    assert still.learner.batches == []
    bold = Bench(tmp_path / "bold", right=flat)
    await bold.train(job(algorithm="grpo", entropy_coeff=0.01, **ALL))
    assert len(bold.learner.batches) == 1
