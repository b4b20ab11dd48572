"""actor/ and mismatch/: the policy update. Mini-batches are averaged unless a row says otherwise.

Definitions follow verl's `core_algos` where a name is verl's (arXiv:2409.19256).
"""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import metric

_TOKEN_CLIPPED = ("grpo", "dr_grpo", "dapo", "ppo", "rloo", "reinforce_pp", "reinforce_pp_baseline")

ACTOR = (
    metric(
        "actor/loss",
        "",
        "The loss that was minimised: pg_loss + kl_loss_coef * kl_loss - entropy_coeff * entropy_loss.",
        "实际最小化的损失：pg_loss + kl_loss_coef × kl_loss - entropy_coeff × entropy_loss。",
    ),
    metric(
        "actor/pg_loss",
        "",
        "The policy-gradient part of the loss, the algorithm's surrogate. Near 0; its sign means nothing.",
        "损失中的策略梯度部分，即所选算法的代理目标。通常接近 0，符号没有含义。",
    ),
    metric(
        "actor/entropy",
        "nats",
        "Mean entropy of the policy's next-token distribution, over sampled tokens, at the step's "
        "start and the "
        "sampling temperature.",
        "步初策略在采样温度下的下一词元分布熵，对全部采样词元取平均。",
        healthy={"*": (0.01, None)},
    ),
    metric(
        "actor/ppo_kl",
        "nats/token",
        "Drift within the step: mean of old minus policy logprobs over sampled tokens (k1). Not the "
        "distance to "
        "the start weights; about 0 with one mini-batch a step, and slightly negative at times.",
        "步内漂移：采样词元上旧对数概率减当前对数概率的平均值（k1 估计）。不是与初始权重的距离；"
        "每步只有一个小批时约为 0，偶尔略小于 0。",
        healthy={"*": (None, 0.1)},
    ),
    metric(
        "actor/pg_clipfrac",
        "share",
        "Share of sampled tokens on which clipping changed the loss; for CISPO those outside its bounds, "
        "for SAPO, which does not clip, 0. GSPO clips whole sequences by a ratio a thousand times nearer to "
        "1, so its share is far larger and has no range here.",
        "裁剪改变了损失的采样词元占比；CISPO 为超出上下界的占比，SAPO 不裁剪，恒为 0。GSPO 按整条序列裁剪，"
        "阈值小约千倍，占比会大得多，故不设范围。",
        healthy=dict.fromkeys(_TOKEN_CLIPPED, (0.0, 0.05)),
    ),
    metric(
        "actor/pg_clipfrac_lower",
        "share",
        "Share of sampled tokens with a negative advantage whose loss hit the outer bound of dual "
        "clip; 0 for "
        "losses that have none, as GSPO.",
        "优势为负且损失触及双重裁剪外界的采样词元占比；没有双重裁剪的损失（如 GSPO）恒为 0。",
        healthy=dict.fromkeys(_TOKEN_CLIPPED, (0.0, 0.001)),
    ),
    metric(
        "actor/grad_norm",
        "",
        "Global L2 norm of the gradient before clipping.",
        "裁剪前梯度的全局 L2 范数。",
    ),
    metric(
        "actor/lr",
        "",
        "Learning rate of the step's last update.",
        "本步最后一次更新使用的学习率。",
        how=Aggregation.LAST,
    ),
    metric(
        "actor/kl_loss",
        "nats/token",
        "KL term of the loss, before its coefficient, by the estimator kl_loss_type. The default k2 is half "
        "the squared difference of policy and reference logprobs, whose gradient is that of the true KL. "
        "Only with kl_loss_coef > 0.",
        "损失中的 KL 项（未乘系数），估计方式由 kl_loss_type 决定。默认的 k2 为策略与参考对数概率之差"
        "平方的一半，其梯度等于真实 KL 的梯度。仅当 kl_loss_coef > 0 时存在。",
    ),
    metric(
        "actor/entropy_loss",
        "nats",
        "Entropy as the loss has it, aggregated like the policy loss. Only with entropy_coeff > 0.",
        "损失中的熵，聚合方式与策略损失相同。仅当 entropy_coeff > 0 时存在。",
    ),
    metric(
        "actor/reward_kl_penalty",
        "nats/token",
        "KL to the reference that was taken from the rewards, before its coefficient: mean over sequences of "
        "the mean over their sampled tokens. Only with kl_reward_coef > 0.",
        "从奖励中扣除的与参考模型的 KL（未乘系数）：先对序列内采样词元取平均，再对序列取平均。"
        "仅当 kl_reward_coef > 0 时存在。",
    ),
    metric(
        "actor/reference_kl_k1",
        "nats/token",
        "Drift from the frozen start weights: mean of policy minus reference logprobs over sampled tokens. "
        "Unbiased, may be negative. Without a KL term it is measured on a sample of the step's tokens; "
        "absent with reference_kl off.",
        "与冻结初始权重的距离：采样词元上策略减参考对数概率的平均值；无偏，可为负。没有 KL 项时只在"
        "本步部分词元上测量；关闭 reference_kl 时不存在。",
    ),
    metric(
        "actor/reference_kl_k3",
        "nats/token",
        "Drift from the frozen start weights: mean of exp(-d) - 1 + d with d = policy - reference "
        "logprob. Never negative. Measured as reference_kl_k1 is.",
        "与冻结初始权重的距离：exp(-d) - 1 + d 的平均值，d 为策略减参考对数概率；不为负。测量范围同 "
        "reference_kl_k1。",
    ),
    metric(
        "actor/distillation/loss",
        "nats/token",
        "Reverse KL from student to teacher, estimated on the student's own tokens: mean of old minus "
        "teacher logprobs (k1). Falls towards 0 as the student becomes its teacher. On-policy distillation.",
        "学生到教师的反向 KL，在学生自己采样的词元上估计：旧对数概率减教师对数概率的平均值（k1）。"
        "学生越接近教师越趋于 0。仅用于在策略蒸馏。",
    ),
    metric(
        "actor/num_updates",
        "count",
        "Optimizer updates of the step: one a mini-batch, skipped ones not counted.",
        "本步的优化器更新次数：每个小批一次，不含跳过的。",
        how=Aggregation.SUM,
    ),
    metric(
        "actor/skipped_updates",
        "count",
        "Updates that were not applied because a gradient was not finite.",
        "因梯度非有限值而未执行的更新次数。",
        how=Aggregation.SUM,
        healthy={"*": (0.0, 0.0)},
    ),
    metric(
        "actor/nan_tokens",
        "count",
        "Sampled tokens left out of the loss because a logprob of theirs is not a finite number.",
        "因对数概率非有限值而不计入损失的采样词元数。",
        how=Aggregation.SUM,
        healthy={"*": (0.0, 0.0)},
    ),
    metric(
        "mismatch/truncated_ratio",
        "share",
        "Share of the tokens whose importance weight was cut at rollout_is_threshold; 0 without rollout_is.",
        "重要性权重被 rollout_is_threshold 截断的词元占比；未启用 rollout_is 时为 0。",
    ),
    metric(
        "mismatch/masked_ratio",
        "share",
        "Share of the tokens that rollout_rs dropped from numerator and denominator; 0 without it.",
        "被 rollout_rs 从分子与分母中剔除的词元占比；未启用时为 0。",
    ),
    metric(
        "mismatch/logprob_diff_mean",
        "nats/token",
        "Engine against learner: mean of |old - behaviour logprob| over sampled tokens.",
        "采样引擎与训练端之差：采样词元上 |旧对数概率 - 行为对数概率| 的平均值。",
        healthy={"*": (0.0, 0.1)},
    ),
    metric(
        "mismatch/logprob_diff_max",
        "nats/token",
        "Engine against learner: largest |old - behaviour logprob| of the step.",
        "采样引擎与训练端之差：本步 |旧对数概率 - 行为对数概率| 的最大值。",
        how=Aggregation.MAX,
    ),
    metric(
        "mismatch/kl_k1",
        "nats/token",
        "Engine against learner: mean of behaviour minus old logprob over sampled tokens.",
        "采样引擎与训练端之差：采样词元上行为对数概率减旧对数概率的平均值。",
        healthy={"*": (-0.01, 0.01)},
    ),
    metric(
        "mismatch/kl_k3",
        "nats/token",
        "Engine against learner: mean of exp(x) - 1 - x with x = old - behaviour logprob. Never negative.",
        "采样引擎与训练端之差：exp(x) - 1 - x 的平均值，x 为旧对数概率减行为对数概率；不为负。",
        healthy={"*": (0.0, 0.01)},
    ),
    metric(
        "mismatch/effective_sample_size",
        "share",
        "How many of the sampled tokens count after weighting by w = exp(old - behaviour logprob), as "
        "a share: "
        "(sum w)^2 / (n sum w^2).",
        "按 w = exp(旧 - 行为对数概率) 加权后的有效词元占比：(Σw)²/(n·Σw²)。",
        healthy={"*": (0.9, 1.0)},
    ),
)
