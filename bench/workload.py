"""The work that everyone does: short word problems, answers of 64 tokens, a reward that varies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

PROMPT_TOKENS = 54
NEW_TOKENS = 64
NUM_PROMPTS = 8
NUM_ROLLOUTS = 8
LEARNING_RATE = 1e-6
MAX_GRAD_NORM = 1.0
PROBE_LIMIT_S = 60.0
"""A setting that needs longer for a small piece of the work is none to compare with."""

_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
_THINGS = ("apples", "books", "coins", "stamps", "shells", "pens", "cards", "marbles")
_FILLER = " please"


def prompts(tokenizer: Any) -> list[str]:
    """64 texts of exactly `PROMPT_TOKENS` tokens each, no two alike from the first sentence on.

    Plain text, already in the chat form, so that every program reads the same ids from it.
    """
    texts: list[str] = []
    for index, (name, thing) in enumerate(product(_NAMES, _THINGS)):
        has = f"{name} has {12 + index} {thing} and buys {5 + index} more. Then {name} gives a third away."
        text = f"<|im_start|>user\n{has} How many {thing} are left? Explain each step,"
        end = "<|im_end|>\n<|im_start|>assistant\n"
        missing = PROMPT_TOKENS - len(tokenizer(text + end)["input_ids"])
        if missing < 0:
            raise ValueError(f"{name}'s prompt is {-missing} tokens too long for {PROMPT_TOKENS}")
        text += _FILLER * missing + end
        if len(tokenizer(text)["input_ids"]) != PROMPT_TOKENS:
            raise ValueError(f"the tokenizer does not read {_FILLER!r} as one token")
        texts.append(text)
    return texts


def vowel_share(text: str) -> float:
    """The reward: the share of vowels in the text. Hardly ever equal in a whole group, so none is skipped."""
    return sum(letter in "aeiou" for letter in text.lower()) / max(1, len(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A model folder and its 64 prompts, as text and as token ids."""

    model: str
    texts: list[str]
    prompt_ids: list[list[int]]
