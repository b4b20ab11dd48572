from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from strop.console.tokens import decoded

ALPHABET = sorted(ByteLevel.alphabet())
A, FIRST, SECOND = (ALPHABET.index(letter) for letter in "aÃ©")
"""A letter of one byte, and the two bytes of é."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token a byte."""
    path = tmp_path_factory.mktemp("bytes") / "tokenizer.json"
    made = Tokenizer(BPE(vocab={letter: number for number, letter in enumerate(ALPHABET)}, merges=[]))
    made.decoder = decoders.ByteLevel()
    made.save(str(path))
    return path


def test_a_letter_of_several_tokens_stands_at_the_last_of_them(tokenizer: Path) -> None:
    assert decoded([A, FIRST, SECOND, A], tokenizer) == ["a", "", "é", "a"]


def test_parts_of_letters_without_end_are_shown_as_ids(tokenizer: Path) -> None:
    pieces = decoded([A, *[FIRST] * 16, A, FIRST, SECOND], tokenizer)
    assert pieces == ["a", *[f"⟨{FIRST}⟩"] * 16, "a", "", "é"]
