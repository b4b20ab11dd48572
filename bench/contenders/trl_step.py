"""Prompts -> seconds and peak memory of TRL's `GRPOTrainer`, one whole step a request.

The trainer runs its own loop; a callback holds it before each step until the parent asks, and answers after.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from bench.contender import Line, peak_bytes
from bench.workload import LEARNING_RATE, MAX_GRAD_NORM, vowel_share


class _TimedTrainer(GRPOTrainer):
    """Takes the time of sampling; everything else is TRL's."""

    sampling_seconds = 0.0

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = super()._generate_single_turn(*arguments, **named)
        self.sampling_seconds += time.perf_counter() - start
        return result


class _OneStepARequest(TrainerCallback):
    def __init__(self, line: Line) -> None:
        self._line = line
        self.trainer: _TimedTrainer | None = None
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.trainer is not None
        if self._line.hear() is None:
            sys.exit(0)
        self.trainer.sampling_seconds = 0.0
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.trainer is not None
        seconds = time.perf_counter() - self._start
        sampling = self.trainer.sampling_seconds
        parts = {"sampling": sampling, "update": seconds - sampling}
        self._line.say({"seconds": seconds, "parts": parts, "peak_bytes": peak_bytes()})


def reward(completions: list[str], **_: Any) -> list[float | None]:
    return [vowel_share(text) for text in completions]


def main() -> None:
    line = Line()
    settings = json.loads(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=getattr(torch, settings["weights"]))
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    prompts, rollouts = settings["prompts"], settings["rollouts"]
    rows = len(prompts) * rollouts
    micro_batch = min(settings["micro_batch"], rows)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=rows // micro_batch,
            num_generations=rollouts,
            max_completion_length=settings["new_tokens"],
            generation_kwargs={"min_new_tokens": settings["new_tokens"]},
            cache_implementation=settings["cache"],
            temperature=1.0,
            beta=0.0,
            loss_type="grpo",
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            max_grad_norm=MAX_GRAD_NORM,
            max_steps=1000,
            bf16=settings["autocast"],
            gradient_checkpointing=settings["gradient_checkpointing"],
            use_cpu=True,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        callback = _OneStepARequest(line)
        trainer = _TimedTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            callbacks=[callback],
        )
        callback.trainer = trainer
        trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        line.say(
            {"ready": True, "version": trl.__version__, "torch": torch.__version__, "parameters": trained}
        )
        trainer.train()


if __name__ == "__main__":
    main()
