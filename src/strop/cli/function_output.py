"""What came of a call -> text, for people and for scripts."""

from __future__ import annotations

import json
from typing import Any

from strop.schema.function import FunctionOutput, GroupRewardOutput, Reward, RewardOutput
from strop.schema.reply import FunctionReply


def json_text(reply: FunctionReply) -> str:
    if reply.output is not None:
        # Asked as Ark asks, so answered as Ark answers.
        ark = (reply.output.model_extra or {}).get("ark_reply")
        return json.dumps(ark, ensure_ascii=False) if ark is not None else reply.output.model_dump_json()
    return json.dumps(
        {"status": "failed", "error": reply.error, "error_code": reply.error_code}, ensure_ascii=False
    )


def pretty(output: FunctionOutput, latency_s: float) -> list[str]:
    """For people: what was scored or said, a line each."""
    lines = [f"{output.status.value} ({latency_s * 1000:.0f} ms)"]
    if isinstance(output, RewardOutput):
        lines += _reward_lines(output.reward)
    elif isinstance(output, GroupRewardOutput):
        for index, reward in enumerate(output.reward.rewards):
            lines += [f"[{index}]", *_reward_lines(reward)]
    elif output.agent_output is not None:
        for message in output.agent_output.messages or []:
            lines.append(f"  {message.get('role', '?'):<10} {message_text(message)}")
        for name in ("rollout_metrics", "rollout_extra", "reward_score"):
            value = getattr(output.agent_output, name)
            if value not in (None, {}):
                lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    for name, value in (output.model_extra or {}).items():
        if name == "ark_reply":
            continue
        lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False, default=str)}")
    return lines


def _reward_lines(reward: Reward) -> list[str]:
    metrics = [f"  {name:<20} {value:g}" for name, value in (reward.reward_metrics or {}).items()]
    return [f"  {'reward_score':<20} {reward.reward_score:g}", *metrics]


def message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    calls = message.get("tool_calls")
    return f"{text} {json.dumps(calls, ensure_ascii=False)}".strip() if calls else text
