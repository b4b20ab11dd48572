"""Trajectory -> score: rules first, and what passes them is graded by a model that judges."""

from __future__ import annotations

import os

from strop import AbstractRewardProcessor, RewardInput, RewardOutput
from strop.functions import presets
from strop.functions.judge import Endpoint, Hybrid, Judge, Rubric

RUBRIC = Rubric(
    criterion="Would the reader understand it, and is it true?",
    scale=5,
    anchors={
        1: "false, or says nothing: 'A magnet is a kind of magnet.'",
        3: "true, but the reader needs to know the thing already",
        5: "true, in words that the reader has: 'A magnet pulls iron to itself.'",
    },
)


def said(input: RewardInput) -> str:
    """The model's last words."""
    last = (input.agent_output.messages or [{}])[-1]
    return str(last.get("content") or "") if last.get("role") == "assistant" else ""


class Understandable(AbstractRewardProcessor):
    """0 without a call for what is empty, refuses or does not name the thing; else a rule and a grade."""

    def setup(self) -> None:
        # Its address and its key come from `runtime.env` in the job, or from the shell.
        judge = Judge(
            Endpoint(
                model=os.environ["JUDGE_MODEL"],
                base_url=os.environ["JUDGE_URL"],
                api_key_env="JUDGE_KEY",
                timeout_s=30,
                retries=2,
            ),
            rubric=RUBRIC,
        )
        self.mixed = Hybrid(
            judge,
            must={
                "answered": lambda input: presets.answered(said(input)),
                "names_it": lambda input: presets.contains(said(input), input.ground_truth),
            },
            rule=lambda input: 1.0 + presets.length_penalty(said(input), free=160, full=480),
            w_rule=0.25,
            w_model=0.75,
        )

    async def process(self, input: RewardInput) -> RewardOutput:
        return await self.mixed.process(input)
