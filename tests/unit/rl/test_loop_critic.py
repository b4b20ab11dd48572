"""PPO through the whole flow on fakes: who is asked in which order, with what, and when the policy waits."""

from pathlib import Path

import pytest

from fakes.capture import FakeCapture
from fakes.critic import FakeCritic, sequences_in
from fakes.functions import FakeFunctions, last_digit, one_call_agent
from fakes.learner import FakeCheckpoints, FakeLearner
from fakes.recorder import FakeRecorder
from fakes.weight_sync import FakeWeightSync
from strop.config.job import JobConfig
from strop.data.dataset import Dataset
from strop.errors import TrainingError
from strop.rl.failures import NothingLearned
from strop.rl.interfaces import Backends
from strop.rl.loop import train
from strop.rl.stop import StopFlag
from strop.schema.function import Reward, RewardOutput
from strop.schema.sample import Sample


def job(**hyper) -> JobConfig:
    defaults = {"algorithm": "ppo", "batch_size": 2, "n_rollouts": 4, "max_steps": 1, "save_strategy": "no"}
    defaults |= {"max_length": 64, "max_prompt_length": 32, "n_epochs": 9}
    code = {"classpath": "a.B"}
    return JobConfig.model_validate(
        {
            "model": "m",
            "datasets": [{"file_name": "train.jsonl"}],
            "functions": [
                {"type": "rollout", "name": "agent", "fcmodel": code},
                {"type": "reward", "name": "right", "fcmodel": code},
            ],
            "training": {"hyper_parameters": defaults | hyper},
        }
    )


class Bench:
    def __init__(self, folder: Path, right=last_digit) -> None:
        self.folder = folder
        self.capture = FakeCapture()
        self.functions = FakeFunctions(agent=one_call_agent(self.capture), right=right)
        self.learner, self.critic = FakeLearner(), FakeCritic()
        self.recorder = FakeRecorder()
        self.weight_sync = FakeWeightSync()

    async def train(self, config: JobConfig):
        backends = Backends(
            gateway=self.capture,
            functions=self.functions,
            learner=self.learner,
            critic=self.critic,
            checkpoints=FakeCheckpoints(self.learner),
            weight_sync=self.weight_sync,
            recorder=self.recorder,
        )
        samples = tuple(
            Sample(sample_id=str(row), row=row, messages=[{"role": "user", "content": f"task {row}"}])
            for row in range(8)
        )
        data = Dataset(path=Path("train.jsonl"), samples=samples)
        return await train(config, backends, data, None, job_id="job", folder=self.folder, stop=StopFlag())


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


async def test_critic_and_policy_get_one_batch_with_returns_of_the_rewards(bench):
    await bench.train(job())
    (batch,) = bench.learner.batches
    assert bench.critic.batches == [batch]
    rewards = {
        one.rollout_id: one.reward
        for group in bench.recorder.groups["train", 1]
        for one in group.trajectories
    }
    assert len(set(rewards.values())) > 1
    for sequence in sequences_in(batch):
        # One sampled token: its return is the reward, its old value the critic's of before the update.
        assert sequence.returns == (rewards[sequence.rollout_id],)
        assert sequence.old_values == (0.25,)


async def test_advantages_have_mean_zero_and_order_the_rewards(bench):
    await bench.train(job())
    pairs = [(one.returns[0], one.token_advantages[0]) for one in sequences_in(bench.learner.batches[0])]
    assert sum(advantage for _, advantage in pairs) == pytest.approx(0, abs=1e-9)
    assert sorted(pairs) == sorted(pairs, key=lambda pair: pair[1])
    values = bench.recorder.values[1]
    assert values["critic/advantages/max"] == max(advantage for _, advantage in pairs)
    assert values["critic/values/mean"] == 0.25
    assert values["critic/returns/mean"] == pytest.approx(sum(value for value, _ in pairs) / 8)


async def test_the_step_reports_the_critics_numbers_and_times(bench):
    await bench.train(job())
    values = bench.recorder.values[1]
    assert values["critic/vf_loss"] == bench.critic.value
    assert values["actor/loss"] == bench.learner.weights
    assert {"timing/s/values", "timing/s/update_critic", "timing/s/update_actor"} <= set(values)


async def test_while_the_critic_is_warmed_up_the_policy_stays(bench):
    await bench.train(job(max_steps=3, critic_warmup=2))
    assert [batch.step for batch in bench.critic.batches] == [1, 2, 3]
    assert [batch.step for batch in bench.learner.batches] == [3]
    assert bench.weight_sync.pushed == [0, 0, 0, 1]  # the engine lets go of its weights for the critic, too
    assert "timing/s/update_actor" not in bench.recorder.values[2]
    assert "step_without_gradient" not in bench.recorder.kinds()


def by_sample(payload) -> RewardOutput:
    """The same for every rollout of a prompt, another one for each prompt."""
    return RewardOutput(reward=Reward(reward_score=float(payload.request_metadata.sample_id)))


async def test_groups_of_equal_rewards_still_teach(tmp_path):
    bench = Bench(tmp_path, right=by_sample)
    await bench.train(job())
    assert bench.recorder.values[1]["group/frac_zero_std"] == 1.0
    assert len({one.token_advantages for one in sequences_in(bench.learner.batches[0])}) == 2


async def test_returns_as_expected_teach_the_policy_nothing(tmp_path):
    bench = Bench(tmp_path, right=lambda payload: RewardOutput(reward=Reward(reward_score=1.0)))
    with pytest.raises(NothingLearned):
        await bench.train(job())
    assert (len(bench.critic.batches), len(bench.learner.batches)) == (1, 0)
    [text] = [text for kind, text, _ in bench.recorder.events if kind == "step_without_gradient"]
    assert text == "nothing to learn: every return was as far from its value as every other"


async def test_one_survivor_needs_no_group(tmp_path):
    def right(payload):
        if not payload.request_metadata.rollout_id.endswith("-r2"):
            raise ValueError("no")
        return by_sample(payload)

    bench = Bench(tmp_path, right=right)
    await bench.train(job(max_failure_rate=0.75))
    assert [one.rollout_id[-2:] for one in sequences_in(bench.learner.batches[0])] == ["r2", "r2"]


async def test_each_pass_over_the_batch_is_one_of_critic_and_policy(bench):
    await bench.train(job(ppo_epochs=2, ppo_mini_batch_size=1))
    assert len(bench.learner.batches[0].mini_batches) == 4
    assert len(bench.critic.batches[0].mini_batches) == 4
    assert bench.recorder.values[1]["perf/loss_tokens"] == 8.0


async def test_a_critic_whose_gradient_is_never_finite_ends_its_warm_up(bench):
    bench.critic.skipped = 1.0
    with pytest.raises(TrainingError, match="had a finite gradient"):
        await bench.train(job(max_steps=9, critic_warmup=8))
    assert bench.recorder.kinds().count("update_skipped") == 3


async def test_a_critic_that_learns_nothing_ends_the_run_though_the_policy_moves(bench):
    bench.critic.skipped = 1.0
    bench.learner.update = lambda batch: {"actor/num_updates": 1.0, "actor/skipped_updates": 0.0}
    with pytest.raises(TrainingError, match="had a finite gradient"):
        await bench.train(job(max_steps=9))
