"""A gateway without an engine: agents say what they sampled, and it remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import SecretStr

from strop.schema.function import ModelResource
from strop.schema.sampling import FinishReason, SamplingParams
from strop.schema.trajectory import Turn

Policy = Callable[[SamplingParams, list[dict[str, Any]]], str]


def echo_policy(sampling: SamplingParams, messages: list[dict[str, Any]]) -> str:
    """Answers with its seed's parity, so that siblings differ and runs repeat; greedy answers 1."""
    return "1" if sampling.temperature == 0 or (sampling.seed or 0) % 2 else "0"


class FakeCapture:
    """Token ids are the bytes of the text; each sampled token has logprob -1."""

    def __init__(self, policy: Policy = echo_policy) -> None:
        self.policy = policy
        self.opened: list[tuple[str, str]] = []
        self.sampling: dict[tuple[str, str], SamplingParams] = {}
        self.training: dict[tuple[str, str], bool] = {}
        self.live: dict[tuple[str, str], list[Turn]] = {}

    def open(
        self, rollout_id: str, attempt_id: str, *, sampling: SamplingParams, training: bool
    ) -> ModelResource:
        key = (rollout_id, attempt_id)
        if key in self.sampling:
            raise ValueError(f"{key} was used before")
        self.opened.append(key)
        self.sampling[key], self.training[key], self.live[key] = sampling, training, []
        address = f"http://capture/rollouts/{rollout_id}/{attempt_id}/v1"
        return ModelResource(model_name="policy", base_url=address, api_key=SecretStr("key"))

    async def chat(
        self,
        rollout_id: str,
        attempt_id: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
    ) -> dict[str, Any]:
        key = (rollout_id, attempt_id)
        response = {"role": "assistant", "content": self.policy(self.sampling[key], messages)}
        sampled = response["content"].encode()
        turn = Turn(
            index=len(self.live[key]),
            prompt_ids=tuple("".join(str(message["content"]) for message in messages).encode()),
            completion_ids=tuple(sampled),
            behaviour_logprobs=(-1.0,) * len(sampled),
            policy_versions=(0,) * len(sampled),
            temperature=self.sampling[key].temperature,
            finish_reason=FinishReason.STOP,
            messages=tuple(messages),
            response=response,
            latency_s=0.0,
        )
        self.live[key].append(turn)
        return response

    def close(self, rollout_id: str, attempt_id: str) -> tuple[Turn, ...]:
        return tuple(self.live.pop((rollout_id, attempt_id)))

    def prompt_length(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> int:
        return sum(len(str(message["content"]).split()) for message in messages)
