"""Tokens -> certain text: whole characters, no start of a stop string, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tokenizer import tiny_tokenizer
from strop.inference.local.text import TextStream

TOKENIZER = tiny_tokenizer()


def _decode(ids):
    return TOKENIZER.decode(ids, skip_special_tokens=True)


def _bytes_of(text: str) -> list[int]:
    """One id a byte: the most broken way to write a text."""
    from tokenizers import pre_tokenizers

    table = TOKENIZER.get_vocab()
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return [table[letter] for piece, _ in pieces for letter in piece]


def test_a_character_of_several_tokens_appears_when_it_is_whole():
    stream = TextStream(_decode)
    parts = [stream.push([token_id]) for token_id in _bytes_of("né💡")]
    assert parts == ["n", "", "é", "", "", "", "💡"]


def test_a_character_that_never_becomes_whole_is_shown_at_the_end():
    stream = TextStream(_decode)
    assert stream.push(_bytes_of("a💡")[:3]) == "a"
    assert stream.finish() == "\ufffd"


def test_a_stop_string_over_token_borders_cuts_the_text_before_it():
    stream = TextStream(_decode, stop=("END", "\n\n"))
    shown = [stream.push([token_id]) for token_id in _bytes_of("go\nE.ENDING")]
    assert stream.stopped
    assert stream.text == "go\nE."
    assert "".join(shown) == "go\nE."
    # "\n" may begin "\n\n", "E" and "EN" may begin "END": none of it is shown before that is decided.
    assert shown == ["g", "o", "", "\n", "E.", "", "", "", "", "", ""]


def test_of_two_stop_strings_the_one_that_begins_first_cuts():
    stream = TextStream(_decode, stop=("cd", "bcde"))
    stream.push(_bytes_of("abc"))
    stream.push(_bytes_of("d"))
    assert (stream.text, stream.stopped) == ("ab", True)


def test_what_was_held_back_is_shown_at_the_end():
    stream = TextStream(_decode, stop=("END",))
    assert stream.push(_bytes_of("the EN")) == "the "
    assert stream.finish() == "EN"
    assert not stream.stopped


def test_end_tokens_are_no_text_even_where_the_decoder_shows_them():
    stream = TextStream(lambda ids: "".join(chr(i) for i in ids), silent_ids={ord("$")})
    assert stream.push([ord(letter) for letter in "ab$"]) == "ab"


def test_a_decoder_that_treats_the_first_token_apart_keeps_its_spaces():
    words = {1: "one", 2: "two", 3: "three"}
    stream = TextStream(lambda ids: " ".join(words[i] for i in ids))
    assert [stream.push([i]) for i in (1, 2, 3)] == ["one", " two", " three"]


@given(st.text(alphabet="abE\n é💡", max_size=30), st.lists(st.sampled_from(["ab", "bE", "\n\n", "é"])))
def test_shown_parts_join_to_the_text_before_the_first_stop_string(text, stop):
    stream = TextStream(_decode, stop=stop)
    shown = "".join(stream.push([token_id]) for token_id in _bytes_of(text)) + stream.finish()
    ends = [text.find(one) for one in stop if one in text]
    if not ends:
        assert shown == text
    else:
        # Stopping happens at the first string that completes, which may begin later than one that never did.
        assert stream.stopped
        assert text.startswith(shown)
        assert not any(one in shown for one in stop)
        assert any(text.startswith(one, len(shown)) for one in stop)


@pytest.mark.parametrize("text", ["Having a calculator 12 plus 30", "  spaces\n\nand é"])
def test_tokens_of_any_split_give_the_decoded_text(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    stream = TextStream(_decode)
    assert "".join(stream.push([i]) for i in ids) + stream.finish() == text
