"""Rule -> what it is called, why it happens, what to do; in English and Chinese.

P1 to P9 are the troubles of a run, the others the ways in which a policy exploits its reward.
"""

from __future__ import annotations

from dataclasses import dataclass

from strop.schema.finding import Severity, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """`severity` is what the rule's findings have."""

    severity: Severity
    title: Text
    cause: Text
    advice: Text


def _text(
    severity: Severity, *, title: tuple[str, str], cause: tuple[str, str], advice: tuple[str, str]
) -> RuleText:
    def both(pair: tuple[str, str]) -> Text:
        return Text(en=pair[0], zh=pair[1])

    return RuleText(severity=severity, title=both(title), cause=both(cause), advice=both(advice))


_WARNING, _ALARM = Severity.WARNING, Severity.ALARM

RULES: dict[str, RuleText] = {
    "P1": _text(
        _WARNING,
        title=("Not converging", "不收敛"),
        cause=(
            "The reward stands still and the policy hardly moves: the learning rate is too small, the reward "
            "says the same of every answer, or there is too little data.",
            "奖励停滞且策略几乎不动：学习率过小、奖励对所有回答都一样，或数据太少。",
        ),
        advice=(
            "Look at group/frac_zero_std first: near 1, the reward does not tell answers apart, so fix the reward or "
            "choose samples that are solved sometimes. Else raise learning_rate by 1.5 to 2 times.",
            "先看 group/frac_zero_std：接近 1 说明奖励无法区分回答，应修正奖励或换成有时能做对的样本；否则将 "
            "learning_rate 提高 1.5～2 倍。",
        ),
    ),
    "P2": _text(
        _WARNING,
        title=("Oscillating", "震荡"),
        cause=(
            "The reward swings and the gradient spikes: the learning rate is too large, the batch too small, or "
            "advantages are not normalised.",
            "奖励大幅摆动且梯度尖峰：学习率过大、批量过小或优势未归一化。",
        ),
        advice=(
            "Halve learning_rate and double batch_size; if that does not do, raise n_rollouts.",
            "learning_rate 减半、batch_size 加倍；仍不行再提高 n_rollouts。",
        ),
    ),
    "P3": _text(
        _ALARM,
        title=("KL explosion", "KL 爆炸"),
        cause=(
            "Each step carries the policy far from where its samples came from, and clipping rises with it.",
            "每一步都使策略远离采样时的分布，裁剪占比随之上升。",
        ),
        advice=(
            "Raise kl_loss_coef 5 to 10 times (0.001 to 0.01), lower learning_rate, and take larger "
            "ppo_mini_batch_size, so that a step has fewer updates. Go on from a checkpoint before it.",
            "将 kl_loss_coef 提高 5～10 倍（0.001 → 0.01），降低 learning_rate，增大 ppo_mini_batch_size 以减少每步更新次数；"
            "从爆炸之前的检查点继续。",
        ),
    ),
    "P4": _text(
        _ALARM,
        title=("Entropy collapse", "熵骤降"),
        cause=(
            "The policy has become certain within few steps: the reward favours one way of answering, the KL term is too "
            "small, or the temperature too low. A rise of the reward with it is mostly false.",
            "策略在很少的步数内变得过于确定：奖励偏爱单一答法、KL 太小或温度太低。此时奖励上升多为假象。",
        ),
        advice=(
            "Use the algorithm dapo (clip higher) or raise entropy_coeff or kl_loss_coef; raise n_rollouts; read the answers "
            "of one sample side by side.",
            "改用 dapo（clip-higher），或提高 entropy_coeff、kl_loss_coef；提高 n_rollouts；并排查看同一样本的回答。",
        ),
    ),
    "P5": _text(
        _ALARM,
        title=("Reward hacking", "奖励被利用"),
        cause=(
            "The training reward rises while validation stands still or falls, and answers grow or one part of the reward "
            "takes all the gain: the policy exploits the reward.",
            "训练奖励上升而验证停滞或下降，同时回答变长或某个奖励分量独占增益：策略在钻奖励的空子。",
        ),
        advice=(
            "Read the trajectories named here, find what is rewarded without being wanted, and fix the reward: normalise by "
            "length, lower the weight of the part that grew.",
            "阅读此处列出的轨迹，找出不该得分却得分的行为并修正奖励：按长度归一、降低独占增益的分量权重。",
        ),
    ),
    "P6": _text(
        _ALARM,
        title=("Validation collapse", "验证集崩塌"),
        cause=(
            "Validation turned down while the training reward still rises: over-fitting.",
            "训练奖励仍升而验证已拐头向下：过拟合。",
        ),
        advice=(
            "Stop, and publish the checkpoint with the best validation. For another run: raise kl_loss_coef, lower n_epochs, "
            "widen the validation set.",
            "停止并发布验证最佳的检查点；再训练时提高 kl_loss_coef、减少 n_epochs、扩大验证集。",
        ),
    ),
    "P7": _text(
        _WARNING,
        title=("Training slows down", "训练变慢"),
        cause=(
            "Steps take far longer than they did. The evidence names the phase that grew: sampling by longer answers or slow "
            "tools, scoring, or the update.",
            "单步耗时远超以往。证据中列出了变慢的阶段：采样（回答变长或工具变慢）、打分或更新。",
        ),
        advice=(
            "Longer answers: see whether the reward pays for length, and limit max_length. Slow functions: look at the slowest "
            "spans, and raise their concurrency.",
            "回答变长：检查奖励是否鼓励长度，限制 max_length；函数变慢：查看最慢的 span 并提高并发。",
        ),
    ),
    "P8": _text(
        _ALARM,
        title=("Garbled output", "输出乱码"),
        cause=(
            "Answers are no longer language: broken characters or scripts mixed within words. Mostly the policy was torn "
            "away by too large updates (P3).",
            "回答已不成语言：出现损坏字符或单词内混杂多种文字；多由更新过大（P3）引起。",
        ),
        advice=(
            "Go on from a checkpoint before it with a lower learning_rate and a higher kl_loss_coef.",
            "从出现之前的检查点继续，并降低 learning_rate、提高 kl_loss_coef。",
        ),
    ),
    "P9": _text(
        _WARNING,
        title=("Many answers are cut off", "截断率高"),
        cause=(
            "Answers or prompts reach their limit: the limit is too tight for the task, or the reward pays for length.",
            "回答或提示词触及上限：上限对任务太紧，或奖励鼓励长输出。",
        ),
        advice=(
            "Raise max_length (or max_prompt_length, for prompts), or shorten the prompt; see whether longer answers earn more.",
            "提高 max_length（提示词则为 max_prompt_length）或缩短提示词；检查更长的回答是否得分更高。",
        ),
    ),
    "hack_length": _text(
        _ALARM,
        title=("Hack: length explosion", "利用：长度膨胀"),
        cause=(
            "Longer answers earn more, and answers grow step by step.",
            "更长的回答得分更高，回答逐步变长。",
        ),
        advice=(
            "Normalise the reward by length, add a length penalty (overlong_buffer), or set a hard max_length.",
            "奖励按长度归一、加入长度惩罚（overlong_buffer）或设定硬性 max_length。",
        ),
    ),
    "hack_keyword": _text(
        _ALARM,
        title=("Hack: keyword stuffing", "利用：关键词堆砌"),
        cause=(
            "A few words make up more and more of the answers, and the answers with most of them earn most.",
            "少数词在回答中占比越来越高，且堆得越多得分越高。",
        ),
        advice=(
            "Count a keyword once, score meaning instead of words, or let a judge look at the answers.",
            "同一关键词只计一次，按语义而非词面打分，或引入评审模型。",
        ),
    ),
    "hack_format": _text(
        _ALARM,
        title=("Hack: format", "利用：格式"),
        cause=(
            "Markdown, emoji or other marks grow and are paid for, while the rest of the reward does not grow.",
            "Markdown、表情等标记不断增多并换得分数，而其余得分没有增长。",
        ),
        advice=(
            "Strip marks before scoring, and give style a part of its own with a small weight.",
            "打分前去除格式标记，风格单独成维度并给予较小权重。",
        ),
    ),
    "hack_refusal": _text(
        _ALARM,
        title=("Hack: empty answers and refusals", "利用：空回答与拒答"),
        cause=(
            "Empty or refusing answers spread and earn as much as others: saying nothing is paid for.",
            "空回答或拒答越来越多且得分不低：什么都不说也有分。",
        ),
        advice=(
            "Give an empty answer 0, require a smallest length, and score whether the question was answered at all.",
            "空回答记 0 分、要求最短长度，并单独考察是否作答。",
        ),
    ),
    "hack_parroting": _text(
        _ALARM,
        title=("Hack: loops and parroting", "利用：循环与复读"),
        cause=(
            "Answers repeat themselves more and more, and are paid for it.",
            "回答内部重复越来越多，且因此得分。",
        ),
        advice=(
            "Take points off for repeated n-grams, and watch actor/entropy.",
            "对重复 n-gram 扣分，并关注 actor/entropy。",
        ),
    ),
    "hack_judge": _text(
        _ALARM,
        title=("Hack: one judge is talked round", "利用：评审被说服"),
        cause=(
            "One part of the reward rises while another that used to agree with it stands still or falls: a judge is "
            "pleased by something that rules or other judges do not see.",
            "一个奖励分量上升，而原先与之一致的另一个停滞或下降：某个评审被规则或其他评审看不到的东西取悦。",
        ),
        advice=(
            "Mix rule and judge so that a failed rule gives 0, calibrate the judge on a gold set, or take one of another family.",
            "规则与评审混合（规则失败即 0）、用金标集校准评审，或换用另一系列的评审模型。",
        ),
    ),
    "hack_tool": _text(
        _ALARM,
        title=("Hack: tools abused or avoided", "利用：滥用或回避工具"),
        cause=(
            "Tool calls per trajectory multiplied or vanished, and validation or success did not gain from it.",
            "每条轨迹的工具调用成倍增加或消失，而验证或成功率并未受益。",
        ),
        advice=(
            "Pay for the result and not for the call: a small cost a call, or a rule that a needed tool was used.",
            "奖励结果而非调用：每次调用少量扣分，或规定必须使用的工具。",
        ),
    ),
    "hack_entropy": _text(
        _ALARM,
        title=("Hack: one template for all", "利用：千篇一律"),
        cause=(
            "Entropy goes to nothing, and the answers of a group are nearly the same text: one template is paid for.",
            "熵趋近于零，组内回答几乎同文：单一模板即可得分。",
        ),
        advice=(
            "Raise kl_loss_coef or entropy_coeff, stop early, and let the reward tell templates from answers.",
            "提高 kl_loss_coef 或 entropy_coeff，尽早停止，并让奖励能区分模板与真正的回答。",
        ),
    ),
}
