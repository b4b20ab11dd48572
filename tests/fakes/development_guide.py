"""Functions as Bailian's development guide writes them, and its four test inputs with their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FUNCTIONS = """
from dashscope.finetune.reinforcement import (
    AbstractGroupRewardProcessor, AbstractRewardProcessor, AbstractRolloutProcessor, GroupReward,
    GroupRewardInput, GroupRewardOutput, Reward, RewardInput, RewardOutput, RolloutInput, RolloutOutput,
    TaskStatus, aggregate_func, reward_func, sub_reward_func,
)
from dashscope.finetune.reinforcement.component.data.base_data_model import AgentOutput
from dashscope.finetune.reinforcement.component.observability import observe_processor


def scored(score, **metrics):
    reward = Reward(reward_score=score, reward_metrics=metrics or None)
    return RewardOutput(reward=reward, status=TaskStatus.SUCCESS, error=None)


def first_text(input):
    messages = input.agent_output.messages
    return str((messages[0].get("content") if messages else "") or "")


class Rollout(AbstractRolloutProcessor):
    def setup(self) -> None:
        self.ready = True

    async def process(self, input: RolloutInput) -> RolloutOutput:
        assert self.ready and input.model_resource.api_key.get_secret_value()
        answer = {"role": "assistant", "content": "I am " + input.model_resource.model_name}
        output = AgentOutput(messages=[*input.messages, answer], rollout_metrics={"latency": 1.2})
        return RolloutOutput(agent_output=output, status=TaskStatus.SUCCESS)


class PlainReward(AbstractRewardProcessor):
    @observe_processor
    async def process(self, input: RewardInput) -> RewardOutput:
        content = input.agent_output.messages[-1].get("content", "")
        return scored(1.0 if input.ground_truth in content else 0.0, test1=0.5, test2=0.3)


@reward_func("Safety")
class Safety(AbstractRewardProcessor):
    BANNED = {"hack", "exploit", "attack"}

    @sub_reward_func("toxicity", sub_weight=0.7)
    def toxicity(self, input: RewardInput) -> RewardOutput:
        banned = any(word in first_text(input).lower() for word in self.BANNED)
        return scored(0.0 if banned else 1.0, **{"score-1": 0.1})

    @sub_reward_func("refusal", sub_weight=0.3)
    async def refusal(self, input: RewardInput) -> RewardOutput:
        refused = first_text(input).strip().lower().startswith("i cannot")
        return scored(0.5 if refused else 1.0, **{"score-1": 0.2})

    @aggregate_func
    async def aggregate(self, sub_rewards):
        weights, scores = self.get_weights(), self.get_scores(sub_rewards)
        total = sum(scores[name] * weights[name] for name in scores)
        return scored(total, **{"aggregate-1": 0.4, **self.get_reward_metrics(sub_rewards)})


class Containing(AbstractGroupRewardProcessor):
    def process(self, input: GroupRewardInput) -> GroupRewardOutput:
        rewards = []
        for output in input.agent_outputs:
            texts = [str(message.get("content")) for message in output.messages or []]
            hit = input.ground_truth is not None and any(str(input.ground_truth) in text for text in texts)
            rewards.append(Reward(reward_score=1.0 if hit else 0.5 if texts else 0.0))
        return GroupRewardOutput(reward=GroupReward(rewards=rewards), status=TaskStatus.SUCCESS, error=None)
"""

_LONG = "This is a test content that exceeds 50 characters in length and should receive a reward score of 0.5"
_AGENT = {
    "messages": [{"role": "user", "content": "Test question"}],
    "rollout_extra": {"content": _LONG},
    "rollout_metrics": {"accuracy": 0.95},
    "reward_score": None,
}

INPUTS: dict[str, dict[str, Any]] = {
    "Rollout": {
        "func_type": "rollout",
        "messages": [{"role": "user", "content": "Hello, please introduce yourself"}],
        "tools": None,
        "ground_truth": "",
        "rollout_extra": {
            "rollout_id": "ro-ins-e8e92e94-b5c3-4546-b7b1-9832b8b948f2",
            "training_state": {"task_id": "task-001"},
        },
        "sampling_params": {"temperature": 0.7, "max_tokens": 1024, "max_turns": 25, "timeout": 60.0},
        "model_resource": {
            "model_name": "qwen3.5-9b",
            "base_url": "https://dashscope.aliyuncs.com/compatible-mode/v1",
            "api_key": "your-api-key-here",
        },
        "request_metadata": {
            "protocol": "openai",
            "system_prompt": "",
            "job_id": "dummy-job-id",
            "sample_id": "dummy-sample-id",
            "rollout_id": "dummy-rollout-id",
            "attempt_id": "dummy-attempt-id",
        },
        "additional_field": "any extra data you want",
    },
    "PlainReward": {
        "func_type": "reward",
        "ground_truth": "0.5",
        "request_metadata": None,
        "agent_output": _AGENT,
    },
    "Safety": {
        "func_type": "reward",
        "ground_truth": "0.5",
        "agent_output": {"messages": [{"role": "user", "content": "I cannot help you with that"}]},
    },
    "Containing": {
        "func_type": "group_reward",
        "ground_truth": "0.5",
        "request_metadata": None,
        "agent_outputs": [_AGENT],
    },
}

_SUCCESS = {"status": "success", "error": None}
OUTPUTS: dict[str, dict[str, Any]] = {
    "Rollout": {
        "agent_output": {
            "messages": [
                {"role": "user", "content": "Hello, please introduce yourself"},
                {"role": "assistant", "content": "I am qwen3.5-9b"},
            ],
            "rollout_extra": None,
            "rollout_metrics": {"latency": 1.2},
            "reward_score": None,
        },
        **_SUCCESS,
        "error_code": None,
    },
    "PlainReward": {
        "reward": {"reward_score": 0.0, "reward_metrics": {"test1": 0.5, "test2": 0.3}},
        **_SUCCESS,
        "error_code": None,
    },
    "Safety": {
        "reward": {
            "reward_score": 0.85,
            "reward_metrics": {"aggregate-1": 0.4, "refusal.score-1": 0.2, "toxicity.score-1": 0.1},
        },
        **_SUCCESS,
        "error_code": None,
    },
    "Containing": {"reward": {"rewards": [{"reward_score": 0.5, "reward_metrics": None}]}, **_SUCCESS},
}


def write_functions(folder: Path) -> None:
    (folder / "guide.py").write_text(FUNCTIONS)
