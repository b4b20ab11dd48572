"""Valid configuration -> what a person should know of it: settings without effect, unusual values.

The loop records each note as an event, so that nobody tunes what does nothing.
"""

from __future__ import annotations

from strop.config.job import HyperParameters, JobConfig, SaveStrategy
from strop.locales import Message, msg


def total_steps(hyper: HyperParameters, num_samples: int) -> int:
    """Steps of a whole run: full batches in every epoch, or `max_steps` if that is less."""
    steps = hyper.n_epochs * (num_samples // hyper.batch_size)
    return min(steps, hyper.max_steps) if hyper.max_steps is not None else steps


def notes(config: JobConfig, *, num_samples: int) -> list[Message]:
    """Every note that applies, one sentence each."""
    hyper = config.hyper_parameters
    validated = any(dataset.type == "validation" for dataset in config.datasets)
    steps = total_steps(hyper, num_samples)
    offline = config.training_type.offline
    found = [
        *(_offline_notes(hyper) if offline else _update_notes(hyper)),
        *_save_notes(hyper, steps),
        *_validation_notes(hyper, steps, validated, offline),
        *_data_notes(hyper, steps, num_samples),
        (
            bool(config.training.resources.model_fields_set),
            msg("resources.* have no effect on a single machine"),
        ),
    ]
    return [text for holds, text in found if holds]


Note = tuple[bool, Message]


def _update_notes(hyper: HyperParameters) -> list[Note]:
    low, high = hyper.clip_range
    return [
        (
            hyper.mini_batch_size == hyper.batch_size and hyper.ppo_epochs == 1,
            msg("one mini-batch and one epoch: the ratio is always 1, so clipping never applies"),
        ),
        (
            hyper.method.policy_loss == "gspo" and max(low, high) >= 0.05,
            msg(
                "clip range {low:g}/{high:g} suits GRPO; GSPO's ratio is a mean over the "
                "sequence, so this will hardly ever clip (its own default is 3e-4/4e-4)",
                low=low,
                high=high,
            ),
        ),
        (
            hyper.method.policy_loss == "ppo" and max(low, high) < 0.01,
            msg(
                "clip range {low:g}/{high:g} suits GSPO; {algorithm}'s ratio is per token, "
                "so this clips most of them (0.2/0.2 is common)",
                low=low,
                high=high,
                algorithm=hyper.algorithm,
            ),
        ),
        (
            hyper.kl_loss_coef > 0 and hyper.kl_loss_type == "k1",
            msg(
                "kl_loss_type k1: its gradient has mean zero, so as a loss it constrains "
                "nothing; k2 and k3+ do"
            ),
        ),
        (
            hyper.kl_loss_coef > 0 and hyper.kl_loss_type == "k3",
            msg("kl_loss_type k3: its gradient is that of the reverse KL; k3+ has the right one"),
        ),
        (
            hyper.kl_loss_coef >= 1,
            msg(
                "kl_loss_coef {kl_loss_coef:g} will outweigh the reward; 0.0005 to 0.01 is common",
                kl_loss_coef=hyper.kl_loss_coef,
            ),
        ),
        (
            hyper.critic_warmup > 0,
            msg(
                "critic_warmup {critic_warmup}: only the critic learns in the first steps",
                critic_warmup=hyper.critic_warmup,
            ),
        ),
        (
            hyper.learning_rate > 1e-3,
            msg(
                "learning_rate {learning_rate:g} is far too high to be stable; 1e-6 to 1e-5 is common",
                learning_rate=hyper.learning_rate,
            ),
        ),
    ]


def _save_notes(hyper: HyperParameters, steps: int) -> list[Note]:
    given, strategy = hyper.model_fields_set, hyper.save_strategy
    return [
        (
            "save_steps" in given and strategy is not SaveStrategy.STEPS,
            msg("save_steps has no effect: save_strategy is {value}", value=strategy.value),
        ),
        (
            strategy is SaveStrategy.STEPS and hyper.save_steps > steps,
            msg(
                "save_steps {save_steps} is beyond the end of the run (step {steps}): only "
                "the last step is saved",
                save_steps=hyper.save_steps,
                steps=steps,
            ),
        ),
        (
            "save_total_limit" in given and strategy is SaveStrategy.NO,
            msg("save_total_limit has no effect: with save_strategy no, only the last step is saved"),
        ),
    ]


def _offline_notes(hyper: HyperParameters) -> list[Note]:
    return [
        (
            hyper.lora_dropout > 0,
            msg("lora_dropout is computed module by module, which is slower than the fused pass without it"),
        ),
    ]


def _validation_notes(hyper: HyperParameters, steps: int, validated: bool, offline: bool) -> list[Note]:
    mistaken = msg("memorization") if offline else msg("reward hacking")
    return [
        (
            not validated,
            msg("no validation dataset: nothing distinguishes learning from {mistaken}", mistaken=mistaken),
        ),
        (
            "eval_steps" in hyper.model_fields_set and not validated,
            msg("eval_steps has no effect: there is no validation dataset"),
        ),
        (
            validated and hyper.eval_steps > steps,
            msg(
                "eval_steps {eval_steps} is beyond the end of the run (step {steps}): "
                "validation only runs before and after",
                eval_steps=hyper.eval_steps,
                steps=steps,
            ),
        ),
        (
            hyper.early_stopping_target is not None
            and hyper.early_stopping_count * hyper.eval_steps >= steps,
            msg(
                "early_stopping_target cannot end the run before its last step: "
                "{early_stopping_count} x eval_steps {eval_steps} is not less than {steps}",
                early_stopping_count=hyper.early_stopping_count,
                eval_steps=hyper.eval_steps,
                steps=steps,
            ),
        ),
    ]


def _data_notes(hyper: HyperParameters, steps: int, num_samples: int) -> list[Note]:
    left_over = num_samples % hyper.batch_size
    whole = hyper.max_prompt_length + hyper.longest_answer
    return [
        (
            whole > hyper.max_length,
            msg(
                "max_prompt_length {max_prompt_length} and max_tokens {longest_answer} "
                "exceed max_length {max_length}: after a long prompt an answer is cut off "
                "before max_tokens",
                max_prompt_length=hyper.max_prompt_length,
                longest_answer=hyper.longest_answer,
                max_length=hyper.max_length,
            ),
        ),
        (
            hyper.filters_groups and hyper.n_epochs * (num_samples // hyper.batch_size) == steps,
            msg(
                "filter_groups uses up rows to refill batches: the epochs may end before step {steps}",
                steps=steps,
            ),
        ),
        (
            hyper.max_steps is not None and hyper.max_steps > steps,
            msg(
                "max_steps {max_steps} has no effect: the epochs end at step {steps}",
                max_steps=hyper.max_steps,
                steps=steps,
            ),
        ),
        (
            left_over > 0,
            msg(
                "{left_over} of {num_samples} rows are left out of each epoch, different "
                "ones each time: batch_size {batch_size} does not divide {num_samples}",
                left_over=left_over,
                num_samples=num_samples,
                batch_size=hyper.batch_size,
            ),
        ),
    ]
