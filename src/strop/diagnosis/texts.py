"""Rule -> what it is called, why it happens, what to do; in English and Chinese.

P1 to P9 are the troubles of a run, the others the ways in which a policy exploits its reward.
"""

from __future__ import annotations

from dataclasses import dataclass

from strop.locales import Message, msg
from strop.schema.finding import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """`severity` is what the rule's findings have."""

    severity: Severity
    title: Message
    cause: Message
    advice: Message


def _text(severity: Severity, *, title: Message, cause: Message, advice: Message) -> RuleText:
    return RuleText(severity=severity, title=title, cause=cause, advice=advice)


_WARNING, _ALARM = Severity.WARNING, Severity.ALARM

RULES: dict[str, RuleText] = {
    "P1": _text(
        _WARNING,
        title=msg("Not converging"),
        cause=msg(
            "The reward stands still and the policy hardly moves: the learning rate is "
            "too small, the reward says the same of every answer, or there is too "
            "little data."
        ),
        advice=msg(
            "Look at group/frac_zero_std first: near 1, the reward does not tell "
            "answers apart, so fix the reward or choose samples that are solved "
            "sometimes. Else raise learning_rate by 1.5 to 2 times."
        ),
    ),
    "P2": _text(
        _WARNING,
        title=msg("Oscillating"),
        cause=msg(
            "The reward swings and the gradient spikes: the learning rate is too "
            "large, the batch too small, or advantages are not normalised."
        ),
        advice=msg("Halve learning_rate and double batch_size; if that does not do, raise n_rollouts."),
    ),
    "P3": _text(
        _ALARM,
        title=msg("KL explosion"),
        cause=msg(
            "Each step carries the policy far from where its samples came from, and clipping rises with it."
        ),
        advice=msg(
            "Raise kl_loss_coef 5 to 10 times (0.001 to 0.01), lower learning_rate, "
            "and take larger ppo_mini_batch_size, so that a step has fewer updates. "
            "Go on from a checkpoint before it."
        ),
    ),
    "P4": _text(
        _ALARM,
        title=msg("Entropy collapse"),
        cause=msg(
            "The policy has become certain within few steps: the reward favours one "
            "way of answering, the KL term is too small, or the temperature too low. A "
            "rise of the reward with it is mostly false."
        ),
        advice=msg(
            "Use the algorithm dapo (clip higher) or raise entropy_coeff or "
            "kl_loss_coef; raise n_rollouts; read the answers of one sample side by "
            "side."
        ),
    ),
    "P5": _text(
        _ALARM,
        title=msg("Reward hacking"),
        cause=msg(
            "The training reward rises while validation stands still or falls, and "
            "answers grow or one part of the reward takes all the gain: the policy "
            "exploits the reward."
        ),
        advice=msg(
            "Read the trajectories named here, find what is rewarded without being "
            "wanted, and fix the reward: normalise by length, lower the weight of the "
            "part that grew."
        ),
    ),
    "P6": _text(
        _ALARM,
        title=msg("Validation collapse"),
        cause=msg("Validation turned down while the training reward still rises: over-fitting."),
        advice=msg(
            "Stop, and publish the checkpoint with the best validation. For another "
            "run: raise kl_loss_coef, lower n_epochs, widen the validation set."
        ),
    ),
    "P7": _text(
        _WARNING,
        title=msg("Training slows down"),
        cause=msg(
            "Steps take far longer than they did. The evidence names the phase that "
            "grew: sampling by longer answers or slow tools, scoring, or the update."
        ),
        advice=msg(
            "Longer answers: see whether the reward pays for length, and limit "
            "max_length. Slow functions: look at the slowest spans, and raise their "
            "concurrency."
        ),
    ),
    "P8": _text(
        _ALARM,
        title=msg("Garbled output"),
        cause=msg(
            "Answers are no longer language: broken characters or scripts mixed within "
            "words. Mostly the policy was torn away by too large updates (P3)."
        ),
        advice=msg("Go on from a checkpoint before it with a lower learning_rate and a higher kl_loss_coef."),
    ),
    "P9": _text(
        _WARNING,
        title=msg("Many answers are cut off"),
        cause=msg(
            "Answers or prompts reach their limit: the limit is too tight for the "
            "task, or the reward pays for length."
        ),
        advice=msg(
            "Raise max_length (or max_prompt_length, for prompts), or shorten the "
            "prompt; see whether longer answers earn more."
        ),
    ),
    "hack_length": _text(
        _ALARM,
        title=msg("Hack: length explosion"),
        cause=msg("Longer answers earn more, and answers grow step by step."),
        advice=msg(
            "Normalise the reward by length, add a length penalty (overlong_buffer), "
            "or set a hard max_length."
        ),
    ),
    "hack_keyword": _text(
        _ALARM,
        title=msg("Hack: keyword stuffing"),
        cause=msg(
            "A few words make up more and more of the answers, and the answers with most of them earn most."
        ),
        advice=msg(
            "Count a keyword once, score meaning instead of words, or let a judge look at the answers."
        ),
    ),
    "hack_format": _text(
        _ALARM,
        title=msg("Hack: format"),
        cause=msg(
            "Markdown, emoji or other marks grow and are paid for, while the rest of "
            "the reward does not grow."
        ),
        advice=msg("Strip marks before scoring, and give style a part of its own with a small weight."),
    ),
    "hack_refusal": _text(
        _ALARM,
        title=msg("Hack: empty answers and refusals"),
        cause=msg("Empty or refusing answers spread and earn as much as others: saying nothing is paid for."),
        advice=msg(
            "Give an empty answer 0, require a smallest length, and score whether the "
            "question was answered at all."
        ),
    ),
    "hack_parroting": _text(
        _ALARM,
        title=msg("Hack: loops and parroting"),
        cause=msg("Answers repeat themselves more and more, and are paid for it."),
        advice=msg("Take points off for repeated n-grams, and watch actor/entropy."),
    ),
    "hack_judge": _text(
        _ALARM,
        title=msg("Hack: one judge is talked round"),
        cause=msg(
            "One part of the reward rises while another that used to agree with it "
            "stands still or falls: a judge is pleased by something that rules or "
            "other judges do not see."
        ),
        advice=msg(
            "Mix rule and judge so that a failed rule gives 0, calibrate the judge on "
            "a gold set, or take one of another family."
        ),
    ),
    "hack_tool": _text(
        _ALARM,
        title=msg("Hack: tools abused or avoided"),
        cause=msg(
            "Tool calls per trajectory multiplied or vanished, and validation or "
            "success did not gain from it."
        ),
        advice=msg(
            "Pay for the result and not for the call: a small cost a call, or a rule "
            "that a needed tool was used."
        ),
    ),
    "hack_entropy": _text(
        _ALARM,
        title=msg("Hack: one template for all"),
        cause=msg(
            "Entropy goes to nothing, and the answers of a group are nearly the same "
            "text: one template is paid for."
        ),
        advice=msg(
            "Raise kl_loss_coef or entropy_coeff, stop early, and let the reward tell templates from answers."
        ),
    ),
}
