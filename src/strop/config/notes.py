"""Valid configuration -> what a person should know of it: settings without effect, unusual values.

The loop records each note as an event, so that nobody tunes what does nothing.
"""

from __future__ import annotations

from strop.bilingual import Bilingual, both
from strop.config.job import HyperParameters, JobConfig, SaveStrategy


def total_steps(hyper: HyperParameters, num_samples: int) -> int:
    """Steps of a whole run: full batches in every epoch, or `max_steps` if that is less."""
    steps = hyper.n_epochs * (num_samples // hyper.batch_size)
    return min(steps, hyper.max_steps) if hyper.max_steps is not None else steps


def notes(config: JobConfig, *, num_samples: int) -> list[Bilingual]:
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
            both("resources.* have no effect on a single machine", "resources.* 在单机上不起作用"),
        ),
    ]
    return [text for holds, text in found if holds]


Note = tuple[bool, Bilingual]


def _update_notes(hyper: HyperParameters) -> list[Note]:
    low, high = hyper.clip_range
    return [
        (
            hyper.mini_batch_size == hyper.batch_size and hyper.ppo_epochs == 1,
            both(
                "one mini-batch and one epoch: the ratio is always 1, so clipping never applies",
                "只有一个小批量和一轮更新：比率恒为 1，裁剪不会生效",
            ),
        ),
        (
            hyper.method.policy_loss == "gspo" and max(low, high) >= 0.05,
            both(
                f"clip range {low:g}/{high:g} suits GRPO; GSPO's ratio is a mean over the sequence, so this "
                "will hardly ever clip (its own default is 3e-4/4e-4)",
                f"裁剪范围 {low:g}/{high:g} 适合 GRPO；GSPO 的比率是整个序列的均值，因此几乎不会裁剪"
                "（其默认值为 3e-4/4e-4）",
            ),
        ),
        (
            hyper.method.policy_loss == "ppo" and max(low, high) < 0.01,
            both(
                f"clip range {low:g}/{high:g} suits GSPO; {hyper.algorithm}'s ratio is per token, so "
                "this clips most of them (0.2/0.2 is common)",
                f"裁剪范围 {low:g}/{high:g} 适合 GSPO；{hyper.algorithm} 的比率按单个词元计算，因此大多会被"
                "裁剪（常用 0.2/0.2）",
            ),
        ),
        (
            hyper.kl_loss_coef > 0 and hyper.kl_loss_type == "k1",
            both(
                "kl_loss_type k1: its gradient has mean zero, so as a loss it constrains nothing; "
                "k2 and k3+ do",
                "kl_loss_type k1：其梯度均值为零，作为损失起不到约束；k2 或 k3+ 可以",
            ),
        ),
        (
            hyper.kl_loss_coef > 0 and hyper.kl_loss_type == "k3",
            both(
                "kl_loss_type k3: its gradient is that of the reverse KL; k3+ has the right one",
                "kl_loss_type k3：其梯度是反向 KL 的；k3+ 才是正确的",
            ),
        ),
        (
            hyper.kl_loss_coef >= 1,
            both(
                f"kl_loss_coef {hyper.kl_loss_coef:g} will outweigh the reward; 0.0005 to 0.01 is common",
                f"kl_loss_coef {hyper.kl_loss_coef:g} 会压过奖励；常用 0.0005～0.01",
            ),
        ),
        (
            hyper.critic_warmup > 0,
            both(
                f"critic_warmup {hyper.critic_warmup}: only the critic learns in the first steps",
                f"critic_warmup {hyper.critic_warmup}：最初这么多步只更新评论模型",
            ),
        ),
        (
            hyper.learning_rate > 1e-3,
            both(
                f"learning_rate {hyper.learning_rate:g} is far too high to be stable; 1e-6 to 1e-5 is common",
                f"learning_rate {hyper.learning_rate:g} 远高于可承受的范围；常用 1e-6～1e-5",
            ),
        ),
    ]


def _save_notes(hyper: HyperParameters, steps: int) -> list[Note]:
    given, strategy = hyper.model_fields_set, hyper.save_strategy
    return [
        (
            "save_steps" in given and strategy is not SaveStrategy.STEPS,
            both(
                f"save_steps has no effect: save_strategy is {strategy.value}",
                f"save_steps 不起作用：save_strategy 为 {strategy.value}",
            ),
        ),
        (
            strategy is SaveStrategy.STEPS and hyper.save_steps > steps,
            both(
                f"save_steps {hyper.save_steps} is beyond the end of the run (step {steps}): only the last "
                "step is saved",
                f"save_steps {hyper.save_steps} 超过总步数 {steps}：只保存最后一步",
            ),
        ),
        (
            "save_total_limit" in given and strategy is SaveStrategy.NO,
            both(
                "save_total_limit has no effect: with save_strategy no, only the last step is saved",
                "save_total_limit 不起作用：save_strategy 为 no 时只保存最后一步",
            ),
        ),
    ]


def _offline_notes(hyper: HyperParameters) -> list[Note]:
    return [
        (
            hyper.lora_dropout > 0,
            both(
                "lora_dropout is computed module by module, which is slower than the fused pass without it",
                "lora_dropout 逐模块计算，比不用它时的手写前向慢",
            ),
        ),
    ]


def _validation_notes(hyper: HyperParameters, steps: int, validated: bool, offline: bool) -> list[Note]:
    mistaken = both("memorization", "死记硬背") if offline else both("reward hacking", "钻奖励的空子")
    return [
        (
            not validated,
            both(
                f"no validation dataset: nothing distinguishes learning from {mistaken}",
                f"没有验证集：无法区分真正学会与{mistaken.zh}",
            ),
        ),
        (
            "eval_steps" in hyper.model_fields_set and not validated,
            both(
                "eval_steps has no effect: there is no validation dataset", "eval_steps 不起作用：没有验证集"
            ),
        ),
        (
            validated and hyper.eval_steps > steps,
            both(
                f"eval_steps {hyper.eval_steps} is beyond the end of the run (step {steps}): validation "
                "only runs before and after",
                f"eval_steps {hyper.eval_steps} 超过总步数 {steps}：只在开始前与结束后验证",
            ),
        ),
        (
            hyper.early_stopping_target is not None
            and hyper.early_stopping_count * hyper.eval_steps >= steps,
            both(
                "early_stopping_target cannot end the run before its last step: "
                f"{hyper.early_stopping_count} x eval_steps {hyper.eval_steps} is not less than {steps}",
                "early_stopping_target 无法使任务提前结束："
                f"{hyper.early_stopping_count} x eval_steps {hyper.eval_steps} 不小于 {steps}",
            ),
        ),
    ]


def _data_notes(hyper: HyperParameters, steps: int, num_samples: int) -> list[Note]:
    left_over = num_samples % hyper.batch_size
    whole = hyper.max_prompt_length + hyper.longest_answer
    return [
        (
            whole > hyper.max_length,
            both(
                f"max_prompt_length {hyper.max_prompt_length} and max_tokens {hyper.longest_answer} exceed "
                f"max_length {hyper.max_length}: after a long prompt an answer is cut off before max_tokens",
                f"max_prompt_length {hyper.max_prompt_length} 与 max_tokens {hyper.longest_answer} 之和超过 "
                f"max_length {hyper.max_length}：长提示词之后，回答会在 max_tokens 之前被截断",
            ),
        ),
        (
            hyper.filters_groups and hyper.n_epochs * (num_samples // hyper.batch_size) == steps,
            both(
                f"filter_groups uses up rows to refill batches: the epochs may end before step {steps}",
                f"filter_groups 补采会消耗数据行：各轮数据可能在 {steps} 步之前用完",
            ),
        ),
        (
            hyper.max_steps is not None and hyper.max_steps > steps,
            both(
                f"max_steps {hyper.max_steps} has no effect: the epochs end at step {steps}",
                f"max_steps {hyper.max_steps} 不起作用：{steps} 步后各轮数据已用完",
            ),
        ),
        (
            left_over > 0,
            both(
                f"{left_over} of {num_samples} rows are left out of each epoch, different ones each time: "
                f"batch_size {hyper.batch_size} does not divide {num_samples}",
                f"每轮有 {left_over} 行用不上（共 {num_samples} 行，每轮不同）："
                f"batch_size {hyper.batch_size} 不能整除",
            ),
        ),
    ]
