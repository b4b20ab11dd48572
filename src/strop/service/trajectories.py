"""Recorded rollouts -> plain values, as the API and the console give them out."""

from __future__ import annotations

from typing import Any

from strop.store.trajectories import Recorded


def trajectory_values(recorded: Recorded) -> dict[str, Any]:
    """With its turns where they were read. Token ids and logprobs are left to the store: they are long."""
    one = recorded.trajectory
    values: dict[str, Any] = {
        "rollout_id": one.rollout_id,
        "attempt_id": one.attempt_id,
        "group_id": one.group_id,
        "sample_id": one.sample_id,
        "step": recorded.step,
        "split": recorded.split,
        "attempts": one.attempts,
        "status": one.status.value,
        "reward": one.reward,
        "reward_parts": one.reward_parts,
        "reward_metrics": one.reward_metrics,
        "rollout_metrics": one.rollout_metrics,
        "rollout_extra": one.rollout_extra,
        "ground_truth": recorded.ground_truth,
        "messages": list(one.messages),
        "num_turns": recorded.num_turns,
        "num_sampled_tokens": recorded.num_sampled_tokens,
        "rollout_s": one.rollout_s,
        "reward_s": one.reward_s,
        "error": one.error,
        "error_code": one.error_code,
    }
    if one.turns:
        values["turns"] = [
            {
                "index": turn.index,
                "messages": list(turn.messages),
                "response": turn.response,
                "finish_reason": turn.finish_reason.value,
                "temperature": turn.temperature,
                "num_prompt_tokens": len(turn.prompt_ids),
                "num_completion_tokens": len(turn.completion_ids),
                "latency_s": turn.latency_s,
            }
            for turn in one.turns
        ]
    return values
