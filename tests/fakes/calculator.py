"""The calculator example, for trainings of a few rollouts: a reward is added that tells any two apart.

`from fakes.calculator import WORDING`. The small model finds so few right answers that two rollouts mostly
get one reward, and from equal rewards nothing is learned.
"""

from __future__ import annotations

WORDING = '''

class Wording(AbstractRewardProcessor):
    """Below 0.1, and another number for every wording."""

    def process(self, input: RewardInput) -> RewardOutput:
        written = "".join(str(message.get("content")) for message in input.agent_output.messages or [])
        return RewardOutput(reward=Reward(reward_score=sum(map(ord, written)) % 97 / 970))
'''
