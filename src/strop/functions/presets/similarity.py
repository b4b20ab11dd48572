"""Answer and reference -> how alike two texts are, by well-known measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.functions.presets.answer import Answer, references, text_of
from strop.functions.presets.lengths import words_of
from strop.functions.presets.matching import HowSame
from strop.functions.presets.normalisation import USUAL, normalised

NEEDS = {"text_similarity": ("rapidfuzz", "rouge_score", "sacrebleu")}

Measure = Literal["ratio", "token_sort", "rouge1", "rouge2", "rougeL", "bleu", "chrf"]


def text_similarity(
    answer: str | Answer,
    reference: object,
    *,
    measure: Annotated[
        Measure,
        Field(
            description="`ratio` and `token_sort` of rapidfuzz; ROUGE as F-measure; sentence BLEU and chrF "
            "of sacrebleu. Measures that a longer answer can only raise are left out"
        ),
    ] = "ratio",
    at_least: Annotated[float, Field(ge=0, le=1, description="less is 0")] = 0.0,
    max_characters: Annotated[
        int, Field(ge=1, le=100_000, description="of answer and reference only so many are compared")
    ] = 4000,
    normalise: HowSame = USUAL,
) -> float:
    """0 to 1: how alike answer and reference are; of several references the nearest counts.

    >>> text_similarity("the cat sat", "the cat sat"), text_similarity("", "the cat")
    (1.0, 0.0)
    """
    text = normalised(text_of(answer)[:max_characters], normalise)
    if not text.strip():
        return 0.0
    compare = _MEASURES[measure]
    best = max(compare(text, normalised(one[:max_characters], normalise)) for one in references(reference))
    score = min(max(best, 0.0), 1.0)
    return score if score >= at_least else 0.0


def _ratio(text: str, wanted: str) -> float:
    from rapidfuzz import fuzz

    return fuzz.ratio(text, wanted) / 100


def _token_sort(text: str, wanted: str) -> float:
    from rapidfuzz import fuzz

    return fuzz.token_sort_ratio(text, wanted) / 100


def _rouge(kind: str) -> Callable[[str, str], float]:
    def compare(text: str, wanted: str) -> float:
        from rouge_score import rouge_scorer  # pyright: ignore[reportMissingTypeStubs]

        scorer: Any = rouge_scorer.RougeScorer([kind], tokenizer=_Words())
        return float(scorer.score(wanted, text)[kind].fmeasure)

    return compare


def _bleu(text: str, wanted: str) -> float:
    from sacrebleu.metrics.bleu import BLEU

    # Words of ours: its tokenizers are for one language each.
    plain, want = " ".join(words_of(text)), " ".join(words_of(wanted))
    return BLEU(effective_order=True, tokenize="none").sentence_score(plain, [want]).score / 100


def _chrf(text: str, wanted: str) -> float:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF().sentence_score(text, [wanted]).score / 100


class _Words:
    """ROUGE's own tokenizer knows ASCII only, and would find nothing in Chinese."""

    def tokenize(self, text: str) -> Sequence[str]:
        return words_of(text)


_MEASURES: dict[str, Callable[[str, str], float]] = {
    "ratio": _ratio,
    "token_sort": _token_sort,
    "rouge1": _rouge("rouge1"),
    "rouge2": _rouge("rouge2"),
    "rougeL": _rouge("rougeL"),
    "bleu": _bleu,
    "chrf": _chrf,
}
