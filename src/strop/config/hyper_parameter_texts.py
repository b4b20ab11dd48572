"""Hyper-parameter -> what it does, one sentence in English and in Chinese. For documents and pages.

A test sees to it that every hyper-parameter has its texts; `hyper_parameters_doc` makes the page of them.
"""

from __future__ import annotations

KNOB_TEXTS: dict[str, tuple[str, str]] = {
    "algorithm": (
        "The method, see algorithms.md. It brings defaults for clipping, aggregation, dynamic sampling.",
        "训练算法，见 algorithms.md；它决定裁剪、聚合与动态采样的默认值。",
    ),
    "kl_loss_coef": (
        "Weight of the KL to the start weights in the loss.",
        "损失中与初始权重的 KL 项的系数。",
    ),
    "learning_rate": ("Peak of the learning rate.", "学习率的峰值。"),
    "lr_scheduler_type": (
        "How the rate goes on after the warm-up, over the steps planned.",
        "预热之后学习率在计划步数内的变化方式。",
    ),
    "lr_warmup_steps": (
        "Steps in which the rate rises; -1 is 3 % of the run.",
        "学习率上升的步数；-1 表示全程的 3 %。",
    ),
    "n_epochs": ("Passes over the training rows.", "训练数据的遍数。"),
    "batch_size": (
        "Prompts a step; in the offline trainings rows, in CPT pieces of text.",
        "每步的提示词数；离线训练为数据行数，CPT 为文本片段数。",
    ),
    "n_rollouts": ("Rollouts a prompt: the size of a group.", "每个提示词的 rollout 数，即组的大小。"),
    "ppo_mini_batch_size": (
        "Prompts an optimizer update; divides batch_size.",
        "每次优化器更新的提示词数；须整除 batch_size。",
    ),
    "ppo_epochs": ("Passes over the batch of a step.", "每步数据重复训练的遍数。"),
    "max_length": ("Tokens of prompt and answers together.", "提示词与回答合计的词元上限。"),
    "max_prompt_length": (
        "Longest prompt in tokens; longer rows are refused.",
        "提示词的词元上限；更长的行会被拒绝。",
    ),
    "eval_steps": (
        "Steps between validations; also before the first step and after the last.",
        "两次验证之间的步数；训练前后也各验证一次。",
    ),
    "early_stopping_target": (
        "End the run once validation is this good: mean@1 at least, offline the loss at most.",
        "验证达到此值即提前结束：mean@1 不低于此值；离线训练为损失不高于此值。",
    ),
    "early_stopping_count": (
        "Validations in a row that must reach early_stopping_target; that before the first step is none.",
        "须连续达到 early_stopping_target 的验证次数；训练前的那次不计。",
    ),
    "save_steps": (
        "Steps between checkpoints, with save_strategy steps.",
        "保存检查点的间隔步数（save_strategy 为 steps 时）。",
    ),
    "save_strategy": (
        "When checkpoints are saved: every save_steps, at each epoch's end, or only at the end of the run.",
        "何时保存检查点：每 save_steps 步、每轮结束时，或仅在训练结束时。",
    ),
    "save_total_limit": (
        "Checkpoints kept. The best by validation and the newest are never removed.",
        "保留的检查点数；验证最佳与最新的检查点不会被删除。",
    ),
    "seed": ("Seed of data order, sampling and adapters.", "数据顺序、采样与适配器的随机种子。"),
    "max_steps": ("Stop after this many steps.", "训练多少步后停止。"),
    "temperature": (
        "Temperature of training rollouts; loss and entropy are taken at it, too.",
        "训练 rollout 的采样温度；损失与熵也按此温度计算。",
    ),
    "max_tokens": ("Longest answer of a turn in tokens.", "单轮回答的词元上限。"),
    "clip_ratio_low": ("How far the ratio may fall below 1.", "比率允许低于 1 的幅度。"),
    "clip_ratio_high": ("How far the ratio may rise above 1.", "比率允许高于 1 的幅度。"),
    "dual_clip": (
        "What a token of negative advantage may cost at most, in multiples of it; 0 for no bound.",
        "负优势词元损失的上限（以优势的倍数计）；0 表示不限。",
    ),
    "tau_pos": (
        "SAPO: temperature of the gate where the advantage is positive.",
        "SAPO：优势为正时门控的温度。",
    ),
    "tau_neg": (
        "SAPO: temperature of the gate where the advantage is negative.",
        "SAPO：优势为负时门控的温度。",
    ),
    "gamma": ("Discount of later rewards, a sampled token.", "后续奖励按采样词元的折扣率。"),
    "lam": ("GAE: how far advantages look ahead.", "GAE：优势向后看的程度。"),
    "cliprange_value": (
        "How far a value may move in a step, in units of the reward; 0 for any distance.",
        "每步价值允许移动的幅度（以奖励为单位）；0 表示不限。",
    ),
    "critic_learning_rate": ("Learning rate of the critic.", "价值模型的学习率。"),
    "critic_warmup": ("Steps in which the critic alone learns.", "仅训练价值模型的步数。"),
    "loss_agg_mode": ("How the losses of tokens become one number.", "词元损失汇总为一个数的方式。"),
    "entropy_coeff": ("Weight of the entropy bonus.", "熵奖励的系数。"),
    "kl_loss_type": ("Estimator of the KL in the loss.", "损失中 KL 的估计方式。"),
    "kl_reward_coef": (
        "Weight of the KL to the start weights that is taken off the reward.",
        "从奖励中扣除的、与初始权重的 KL 的系数。",
    ),
    "kl_reward_type": ("Estimator of the KL in the reward.", "奖励中 KL 的估计方式。"),
    "reference_kl": (
        "Measure the distance to the start weights in every run.",
        "每次训练都测量与初始权重的距离。",
    ),
    "rollout_is": (
        "Correct for the difference of engine and learner by truncated importance weights.",
        "用截断的重要性权重修正采样端与训练端的差异。",
    ),
    "rollout_is_threshold": ("What such a weight is cut at.", "重要性权重的上限。"),
    "rollout_rs": (
        "Leave out tokens, or whole sequences, on which engine and learner disagree too much.",
        "剔除采样端与训练端差异过大的词元或整条序列。",
    ),
    "rollout_rs_low": ("Lowest ratio that is kept.", "保留的最低比率。"),
    "rollout_rs_high": ("Highest ratio that is kept.", "保留的最高比率。"),
    "max_grad_norm": ("Gradients are scaled down to this norm.", "梯度范数的上限，超出则缩放。"),
    "weight_decay": ("AdamW's weight decay.", "AdamW 的权重衰减。"),
    "freeze_embeddings": (
        "Leave input and output embeddings as they are.",
        "保持输入与输出嵌入不变。",
    ),
    "lora_rank": (
        "Train low-rank adapters of this rank in place of the whole model.",
        "以此秩训练低秩适配器，而不是整个模型。",
    ),
    "lora_alpha": (
        "Adapters are scaled by lora_alpha / lora_rank.",
        "适配器按 lora_alpha / lora_rank 缩放。",
    ),
    "lora_dropout": (
        "Dropout before adapters, in the offline trainings.",
        "适配器之前的 dropout，仅用于离线训练。",
    ),
    "target_modules": ("Linear layers that get adapters.", "加装适配器的线性层。"),
    "dpo_loss": ("Form of the preference loss.", "偏好损失的形式。"),
    "dpo_beta": ("How tightly DPO holds the policy to its start.", "DPO 将策略约束在初始权重附近的强度。"),
    "label_smoothing": ("Share of preferences taken to be wrong.", "假定标注有误的偏好占比。"),
    "train_dtype": (
        "Precision of the learner; auto is bfloat16 where the processor multiplies it in hardware.",
        "训练端精度；auto 表示处理器硬件支持时用 bfloat16。",
    ),
    "sampling_dtype": ("Precision of the engine; auto as above.", "采样端精度；auto 含义同上。"),
    "filter_groups": (
        "Dynamic sampling: leave out groups of equal scores and sample further prompts in their place.",
        "动态采样：剔除组内得分全部相等的组，并补充采样新的提示词。",
    ),
    "max_num_gen_batches": (
        "Rounds of sampling a step at most, the first included; then it trains on what was found.",
        "每步采样的最多轮数（含首轮）；之后用已得到的组训练。",
    ),
    "overlong_buffer_len": (
        "The last tokens of an answer's limit, in which length costs reward; 0 for none.",
        "回答上限之前按长度扣分的词元数；0 表示不扣。",
    ),
    "overlong_penalty_factor": (
        "What an answer at its limit, or one cut off, loses.",
        "达到上限或被截断的回答扣除的奖励。",
    ),
    "truncation_policy": (
        "Answers cut off by the engine: keep them, penalise them, or mask them out of the loss.",
        "被引擎截断的回答：保留、扣分，或从损失中剔除。",
    ),
    "max_attempts": (
        "Tries of a rollout, and of each reward call, before it has failed.",
        "rollout 及每次奖励调用在判定失败前的尝试次数。",
    ),
    "max_failure_rate": (
        "Share of a step's rollouts that may fail before the run stops; it stops anyway when all did.",
        "单步允许失败的 rollout 占比，超过即停止；全部失败时必然停止。",
    ),
}
"""By name, in the order of the schema."""
