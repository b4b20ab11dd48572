"""timing/: seconds of the step's phases, and of one rollout."""

from strop.tracing.catalogue.declare import metric

TIMING = (
    metric(
        "timing/s/step",
        "s",
        "Wall time of the step, validation and saving not included.",
        "一步的总时长，不含验证与保存。",
    ),
    metric(
        "timing/s/trainer_fetch_batch",
        "s",
        "Time the trainer waited for samples or groups.",
        "训练端等待样本或轨迹组的时间。",
    ),
    metric(
        "timing/s/rollout",
        "s",
        "Wall time of all rollouts of the step.",
        "本步全部 rollout 的总时长。",
    ),
    metric("timing/s/reward", "s", "Wall time of scoring all rollouts.", "为全部 rollout 打分的总时长。"),
    metric(
        "timing/s/adv",
        "s",
        "Time to compute advantages and pack the batch.",
        "计算优势并打包训练批的时间。",
    ),
    metric(
        "timing/s/old_log_prob",
        "s",
        "Time to recompute the logprobs of the step's start.",
        "重新计算步初对数概率的时间。",
    ),
    metric(
        "timing/s/scores",
        "s",
        "Time to compute policy and reference logprobs for a KL penalty. Only with kl_reward_coef.",
        "为 KL 惩罚计算本步策略与参考对数概率的时间。仅当设置 kl_reward_coef 时存在。",
    ),
    metric(
        "timing/s/values",
        "s",
        "Time of the critic to value every sampled token of the step. Only with a critic.",
        "价值模型评估本步全部采样词元的时间。仅当使用价值模型时存在。",
    ),
    metric(
        "timing/s/update_critic",
        "s",
        "Time of the critic's optimizer updates. Only with a critic.",
        "价值模型优化器更新的时间。仅当使用价值模型时存在。",
    ),
    metric(
        "timing/s/update_actor",
        "s",
        "Time of the optimizer updates: forward, backward and step of every mini-batch.",
        "优化器更新的时间：各小批的前向、反向与更新。",
    ),
    metric(
        "timing/s/param_sync",
        "s",
        "Time to bring the new weights to the engine.",
        "把新权重同步到采样引擎的时间。",
    ),
    metric("timing/s/validation", "s", "Wall time of a validation.", "一次验证的总时长。"),
    metric("timing/s/save", "s", "Time to write a checkpoint.", "写入一个检查点的时间。"),
    metric(
        "timing/s/rollout/agent_loop_latency/avg",
        "s",
        "Time of one trajectory, agent and reward, retries included: mean over the step's trajectories.",
        "单条轨迹（agent 与奖励，含重试）的时间：本步全部轨迹上的平均值。",
    ),
    metric(
        "timing/s/rollout/model_latency/avg",
        "s",
        "Model time of one trajectory, the sum of its last attempt's calls: mean over the step's "
        "trajectories.",
        "单条轨迹中模型调用的时间（最后一次尝试各次调用之和）：本步全部轨迹上的平均值。",
    ),
    metric(
        "timing/s/rollout/reward_latency/avg",
        "s",
        "Reward time of one trajectory: mean over trajectories that a reward function was asked about.",
        "单条轨迹的奖励计算时间：调用过奖励函数的轨迹上的平均值。",
    ),
    metric(
        "timing/ms/gen_per_token",
        "ms/token",
        "Rollout phase divided by the tokens after the prompts, tool tokens included.",
        "rollout 阶段时长除以提示词之后的词元数（含工具词元）。",
    ),
    metric(
        "timing/ms/update_actor_per_token",
        "ms/token",
        "Update phase divided by perf/trained_tokens; verl divides by all tokens of the step, trained "
        "or not.",
        "更新阶段时长除以 perf/trained_tokens；verl 除以本步全部词元，无论是否参与训练。",
    ),
)
