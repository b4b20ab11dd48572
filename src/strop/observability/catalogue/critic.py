"""critic/: rewards and advantages. The prefix is historical: no value model is implied."""

from strop.observability.catalogue.declare import metric, spread

_SCORED = ("the step's scored trajectories", "本步有得分的轨迹")
_TOKENS = (
    "the step's sampled tokens that have one, so that long answers weigh more",
    "本步参与训练的采样词元（回答越长权重越大）",
)

CRITIC = (
    *spread(
        "critic/rewards",
        "score",
        "Reward of a trajectory as it is trained on: the weighted sum of its reward functions, less what "
        "an overlong answer costs",
        "参与训练的轨迹奖励：各奖励函数得分的加权和，再扣除过长回答的惩罚",
        over=_SCORED,
    ),
    *spread(
        "critic/score",
        "score",
        "Score of a trajectory before any shaping: the weighted sum of its reward functions",
        "整形之前的轨迹得分：各奖励函数得分的加权和",
        over=_SCORED,
    ),
    metric(
        "critic/overlong_penalty/mean",
        "score",
        "What length took off the reward, 0 or below (mean over the scored trajectories trained on).",
        "因长度从奖励中扣除的部分，小于等于 0（参与训练且有得分的轨迹上的平均值）。",
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
