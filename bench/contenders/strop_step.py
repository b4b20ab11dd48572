"""Prompts -> seconds and peak memory of one GRPO step of Strop: engine, reward, batch, learner, new weights.

The functions that a job would run in workers are called directly: TRL calls them directly, too.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import strop
from bench.contender import Answer, serve
from bench.contenders.strop_engine import engine_of, forget_end_tokens
from bench.workload import LEARNING_RATE, MAX_GRAD_NORM, vowel_share
from strop.config.job import HyperParameters, Scheduler
from strop.inference.local import SharedMemorySync
from strop.learners import models
from strop.learners.local.policy import LocalPolicyTrainer
from strop.rl.advantage import group_advantages
from strop.rl.batch import build_batch
from strop.rl.update import PolicyLearner
from strop.schema.batch import Batch
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import Completion, SamplingParams
from strop.schema.trajectory import Group, Trajectory, Turn

_TEMPERATURE = 1.0


class Step:
    """The machines of a step, warm, and the work of one."""

    def __init__(self, settings: Answer) -> None:
        model, tokenizer = models.load(settings["model"])
        forget_end_tokens(model, tokenizer)
        self.prompts = [tokenizer(text)["input_ids"] for text in settings["prompts"]]
        self.rollouts: int = settings["rollouts"]
        self.new_tokens: int = settings["new_tokens"]
        self._number = 0
        hyper_parameters = HyperParameters.model_validate(
            {
                "algorithm": "grpo",
                "reference_kl": False,  # TRL keeps no reference without a KL term either
                "learning_rate": LEARNING_RATE,
                "lr_scheduler_type": Scheduler.CONSTANT,
                "lr_warmup_steps": 0,
                "batch_size": len(self.prompts),
                "n_rollouts": self.rollouts,
                "max_grad_norm": MAX_GRAD_NORM,
            }
        )
        self.trainer = LocalPolicyTrainer(model, tokenizer, hyper_parameters)
        self.learner = PolicyLearner(self.trainer, hyper_parameters, total_steps=1000)
        self.engine = engine_of(model, tokenizer)
        self.weight_sync = SharedMemorySync(self.engine)
        self.engine.start()
        weights = list(self.trainer.weights().parameters())
        self.num_parameters = sum(weight.numel() for weight in weights if weight.requires_grad)
        self.training_dtype = str(weights[0].dtype).removeprefix("torch.")

    def sample(self) -> list[list[Completion]]:
        each = [prompt for prompt in self.prompts for _ in range(self.rollouts)]
        flat = self.engine.generate(
            each, SamplingParams(max_tokens=self.new_tokens, temperature=_TEMPERATURE)
        )
        return [flat[start : start + self.rollouts] for start in range(0, len(flat), self.rollouts)]

    def batch(self, answers: list[list[Completion]]) -> Batch:
        self._number += 1
        groups = [
            _group(f"{self._number}-{index}", prompt, completions)
            for index, (prompt, completions) in enumerate(zip(self.prompts, answers, strict=True))
        ]
        advantages: dict[str, float] = {}
        for group in groups:
            rewards = [trajectory.reward or 0.0 for trajectory in group.trajectories]
            centred = group_advantages("grpo", rewards)
            advantages.update(zip((one.rollout_id for one in group.trajectories), centred, strict=True))
        return build_batch(self._number, groups, advantages, mini_batch_size=len(groups))

    def run(self, _: Answer) -> Answer:
        start = time.perf_counter()
        answers = self.sample()
        sampled = time.perf_counter()
        batch = self.batch(answers)
        self.weight_sync.sleep()
        self.learner.update(batch)
        updated = time.perf_counter()
        self.weight_sync.push(self.learner.export(), version=self.learner.policy_version)
        end = time.perf_counter()
        packs = [pack for mini in batch.mini_batches for pack in mini.packs]
        return {
            "seconds": end - start,
            "parts": {"sampling": sampled - start + end - updated, "update": updated - sampled},
            "sampled_tokens": sum(len(one.token_ids) for group in answers for one in group),
            "update_tokens": sum(len(pack.token_ids) for pack in packs),
            "rows_tokens": sum(len(one.token_ids) for pack in packs for one in pack.sequences),
        }


def _group(group_id: str, prompt: list[int], completions: list[Completion]) -> Group:
    sample = Sample(sample_id=group_id, row=1, messages=[])
    trajectories = tuple(
        Trajectory(
            rollout_id=f"{group_id}-{index}",
            attempt_id="0",
            group_id=group_id,
            sample_id=group_id,
            attempts=1,
            status=TaskStatus.SUCCESS,
            turns=(_turn(prompt, completion),),
            reward=vowel_share(completion.text),
        )
        for index, completion in enumerate(completions)
    )
    return Group(group_id=group_id, sample=sample, trajectories=trajectories)


def _turn(prompt: list[int], completion: Completion) -> Turn:
    return Turn(
        index=0,
        prompt_ids=tuple(prompt),
        completion_ids=completion.token_ids,
        behaviour_logprobs=completion.logprobs,
        policy_versions=completion.policy_versions,
        temperature=_TEMPERATURE,
        finish_reason=completion.finish_reason,
        messages=(),
        response={},
        latency_s=0.0,
    )


def prepare(settings: Answer):
    step = Step(settings)
    step.engine.generate(step.prompts[:1], SamplingParams(max_tokens=2))
    facts: dict[str, Any] = {
        "version": strop.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "parameters": step.num_parameters,
        "training_dtype": step.training_dtype,
    }
    return step.run, facts


if __name__ == "__main__":
    serve(prepare)
