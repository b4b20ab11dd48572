"""Hyper-parameter -> what it does: one sentence in English, from the schema, and in Chinese."""

from __future__ import annotations

from strop.config.hyper_parameters import HyperParameters


def about(name: str) -> tuple[str, str]:
    """In English and Chinese; empty where no hyper-parameter has the name.

    >>> about("learning_rate")
    ('Peak of the learning rate.', '学习率的峰值。')
    """
    field = HyperParameters.model_fields.get(name)
    if field is None or field.description is None:
        return "", ""
    return " ".join(field.description.split()), CHINESE[name]


CHINESE: dict[str, str] = {
    "algorithm": "训练算法，见 algorithms.md；它决定裁剪、聚合与动态采样的默认值。",
    "kl_loss_coef": "损失中与初始权重的 KL 项的系数。",
    "learning_rate": "学习率的峰值。",
    "lr_scheduler_type": "预热之后学习率在计划步数内的变化方式。",
    "lr_warmup_steps": "学习率上升的步数；-1 表示全程的 3 %。",
    "n_epochs": "训练数据的遍数。",
    "batch_size": "每步的提示词数；离线训练为数据行数，CPT 为文本片段数。",
    "n_rollouts": "每个提示词的 rollout 数，即组的大小。",
    "ppo_mini_batch_size": "每次优化器更新的提示词数；须整除 batch_size。",
    "ppo_epochs": "每步数据重复训练的遍数。",
    "max_length": "提示词与回答合计的词元上限。",
    "max_prompt_length": "提示词的词元上限；更长的行会被拒绝。",
    "eval_steps": "两次验证之间的步数；训练前后也各验证一次。",
    "early_stopping_target": "验证达到此值即提前结束：mean@1 不低于此值；离线训练为损失不高于此值。",
    "early_stopping_count": "须连续达到 early_stopping_target 的验证次数；训练前的那次不计。",
    "save_steps": "保存检查点的间隔步数（save_strategy 为 steps 时）。",
    "save_strategy": "何时保存检查点：每 save_steps 步、每轮结束时，或仅在训练结束时。",
    "save_total_limit": "保留的检查点数；验证最佳与最新的检查点不会被删除。",
    "seed": "数据顺序、采样与适配器的随机种子。",
    "max_steps": "训练多少步后停止。",
    "temperature": "训练 rollout 的采样温度；损失与熵也按此温度计算。",
    "max_tokens": "单轮回答的词元上限。",
    "clip_ratio_low": "比率允许低于 1 的幅度。",
    "clip_ratio_high": "比率允许高于 1 的幅度。",
    "dual_clip": "负优势词元损失的上限（以优势的倍数计）；0 表示不限。",
    "tau_pos": "SAPO：优势为正时门控的温度。",
    "tau_neg": "SAPO：优势为负时门控的温度。",
    "gamma": "后续奖励按采样词元的折扣率。",
    "lam": "GAE：优势向后看的程度。",
    "cliprange_value": "每步价值允许移动的幅度（以奖励为单位）；0 表示不限。",
    "critic_learning_rate": "价值模型的学习率。",
    "critic_warmup": "仅训练价值模型的步数。",
    "loss_agg_mode": "词元损失汇总为一个数的方式。",
    "entropy_coeff": "熵奖励的系数。",
    "kl_loss_type": "损失中 KL 的估计方式。",
    "kl_reward_coef": "从奖励中扣除的、与初始权重的 KL 的系数。",
    "kl_reward_type": "奖励中 KL 的估计方式。",
    "reference_kl": "每次训练都测量与初始权重的距离。",
    "rollout_is": "用截断的重要性权重修正采样端与训练端的差异。",
    "rollout_is_threshold": "重要性权重的上限。",
    "rollout_rs": "剔除采样端与训练端差异过大的词元或整条序列。",
    "rollout_rs_low": "保留的最低比率。",
    "rollout_rs_high": "保留的最高比率。",
    "max_grad_norm": "梯度范数的上限，超出则缩放。",
    "weight_decay": "AdamW 的权重衰减。",
    "freeze_embeddings": "保持输入与输出嵌入不变。",
    "lora_rank": "以此秩训练低秩适配器，而不是整个模型。",
    "lora_alpha": "适配器按 lora_alpha / lora_rank 缩放。",
    "lora_dropout": "适配器之前的 dropout，仅用于离线训练。",
    "target_modules": "加装适配器的线性层。",
    "dpo_loss": "偏好损失的形式。",
    "dpo_beta": "DPO 将策略约束在初始权重附近的强度。",
    "label_smoothing": "假定标注有误的偏好占比。",
    "train_dtype": "训练端精度；auto 表示处理器硬件支持时用 bfloat16。",
    "sampling_dtype": "采样端精度；auto 含义同上。",
    "filter_groups": "动态采样：剔除组内得分全部相等的组，并补充采样新的提示词。",
    "max_num_gen_batches": "每步采样的最多轮数（含首轮）；之后用已得到的组训练。",
    "overlong_buffer_len": "回答上限之前按长度扣分的词元数；0 表示不扣。",
    "overlong_penalty_factor": "达到上限或被截断的回答扣除的奖励。",
    "truncation_policy": "被引擎截断的回答：保留、扣分，或从损失中剔除。",
    "max_attempts": "rollout 及每次奖励调用在判定失败前的尝试次数。",
    "max_staleness": "允许在训练其他步时提前采样的步数；0 表示每步都用最新权重采样，只有此时重跑才逐位一致。",
    "max_failure_rate": "单步允许失败的 rollout 占比，超过即停止；全部失败时必然停止。",
}
"""By name."""
