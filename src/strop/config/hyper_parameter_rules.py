"""Hyper-parameters against each other -> what would do nothing or cannot hold, with the key and the fix.

`config.job` asks after it has checked names, types and ranges; nothing here knows a file or a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from strop.schema.section import Contradiction

if TYPE_CHECKING:
    from strop.config.hyper_parameters import HyperParameters


def contradictions(hyper: HyperParameters) -> Iterator[Contradiction]:
    """Every one there is, the plainest first."""
    yield from _sizes(hyper)
    yield from _clipping(hyper)
    yield from _lengths(hyper)
    yield from _dynamic_sampling(hyper)
    yield from _critic(hyper)
    yield from _adapters(hyper)
    yield from _preferences(hyper)
    yield from _early_stopping(hyper)


def _sizes(hyper: HyperParameters) -> Iterator[Contradiction]:
    if hyper.max_prompt_length >= hyper.max_length:
        yield Contradiction(
            f"max_prompt_length ({hyper.max_prompt_length}) must be below max_length ({hyper.max_length}): "
            "the difference is what is left for the answer",
            fix="lower max_prompt_length or raise max_length",
        )
    if hyper.mini_batch_size > hyper.batch_size or hyper.batch_size % hyper.mini_batch_size:
        below = [size for size in range(1, hyper.batch_size + 1) if hyper.batch_size % size == 0]
        nearest = min(below, key=lambda size: abs(size - hyper.mini_batch_size))
        yield Contradiction(
            f"ppo_mini_batch_size ({hyper.mini_batch_size} prompts) must divide "
            f"batch_size ({hyper.batch_size} prompts)",
            fix=f"the nearest that does is {nearest}",
        )


def _clipping(hyper: HyperParameters) -> Iterator[Contradiction]:
    low, high = hyper.clip_range
    if 1 > low > high:  # a low of 1 is no lower bound at all
        own = hyper.method.clip_range or (0.0, 0.0)
        yield Contradiction(
            f"clip_ratio_low ({low:g}) must not exceed clip_ratio_high ({high:g})",
            fix=f"set both; {hyper.algorithm}'s own are {own[0]:g} and {own[1]:g}",
        )


def _lengths(hyper: HyperParameters) -> Iterator[Contradiction]:
    given, limit = hyper.model_fields_set, hyper.longest_answer
    if (hyper.overlong_buffer_len or 0) >= limit > 0:
        yield Contradiction(
            f"overlong_buffer_len: {hyper.overlong_buffer_len} must be below the {limit} tokens that an "
            "answer may have (max_tokens)",
            fix="a fifth of them is common: " + str(max(1, limit // 5)),
        )
    shapes = hyper.overlong_buffer > 0 or hyper.truncation_policy == "penalise"
    if "overlong_penalty_factor" in given and not shapes:
        yield Contradiction(
            "overlong_penalty_factor: has no effect without overlong_buffer_len or truncation_policy "
            "penalise",
            fix="set one of these, or remove it",
        )


def _dynamic_sampling(hyper: HyperParameters) -> Iterator[Contradiction]:
    if "max_num_gen_batches" in hyper.model_fields_set and not hyper.filters_groups:
        yield Contradiction(
            "max_num_gen_batches: has no effect while filter_groups is off",
            fix="set filter_groups: true, or remove it",
        )


def _critic(hyper: HyperParameters) -> Iterator[Contradiction]:
    if hyper.max_steps is not None and hyper.critic_warmup >= hyper.max_steps:
        yield Contradiction(
            f"critic_warmup: {hyper.critic_warmup} takes up all of max_steps {hyper.max_steps}: "
            "the policy would never be trained",
            fix=f"lower it below {hyper.max_steps}, or raise max_steps",
        )
    if hyper.method.critic and hyper.critic_learning_rate == 0:
        yield Contradiction(
            "critic_learning_rate: 0 keeps every value at 0, so advantages have no baseline",
            fix="1e-5 is common; to train without a critic, choose another algorithm",
        )


def _adapters(hyper: HyperParameters) -> Iterator[Contradiction]:
    if hyper.lora_rank is not None:
        if hyper.freeze_embeddings:
            yield Contradiction(
                "freeze_embeddings: has no effect with lora_rank, which freezes the whole model"
            )
        return
    for key in ("lora_alpha", "lora_dropout", "target_modules"):
        if key in hyper.model_fields_set:
            yield Contradiction(f"{key}: has no effect without lora_rank", fix="set lora_rank, or remove it")


def _preferences(hyper: HyperParameters) -> Iterator[Contradiction]:
    if hyper.dpo_loss == "ipo" and hyper.label_smoothing > 0:
        yield Contradiction("label_smoothing: has no effect with dpo_loss ipo")
    if hyper.dpo_loss == "robust" and hyper.label_smoothing == 0:
        yield Contradiction(
            "dpo_loss: robust is the same as sigmoid while label_smoothing is 0",
            fix="set label_smoothing to the share of wrong labels, or write sigmoid",
        )


def _early_stopping(hyper: HyperParameters) -> Iterator[Contradiction]:
    if "early_stopping_count" in hyper.model_fields_set and hyper.early_stopping_target is None:
        yield Contradiction(
            "early_stopping_count: has no effect without early_stopping_target",
            fix="set early_stopping_target, or remove it",
        )
