"""critic/: rewards and advantages. The prefix is historical: no value model is implied."""

from strop.observability.catalogue.declare import spread

_SCORED = ("the step's scored trajectories", "本步有得分的轨迹")
_TOKENS = (
    "the step's sampled tokens that have one, so that long answers weigh more",
    "本步参与训练的采样词元（回答越长权重越大）",
)

CRITIC = (
    *spread(
        "critic/rewards",
        "score",
        "Reward of a trajectory, the weighted sum of its reward functions",
        "轨迹的奖励，即各奖励函数得分的加权和",
        over=_SCORED,
    ),
    *spread(
        "critic/score",
        "score",
        "Reward of a trajectory before any KL penalty; the KL is a loss term here, so it equals "
        "critic/rewards",
        "扣除 KL 惩罚之前的轨迹奖励；本系统的 KL 属于损失项，故与 critic/rewards 相同",
        over=_SCORED,
    ),
    *spread(
        "critic/advantages",
        "",
        "Advantage: how much better a rollout did than its own group",
        "优势：该 rollout 比同组平均好多少",
        over=_TOKENS,
    ),
    *spread(
        "critic/returns",
        "",
        "Return; equals the advantage, since a rollout is rewarded once, at its end",
        "回报；奖励只在 rollout 结束时给出，故与优势相同",
        over=_TOKENS,
    ),
)
