"""Control tokens that people wrote -> ordinary text: only templates and models speak in control tokens.

A message that quotes `<|im_start|>` must not open a turn. Before a template renders the messages, each text
of a control token in them is replaced by a stand-in; afterwards the stand-ins become text again, and the
tokenizer is kept from making control tokens of them. For `chat.render`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.inference.chat.errors import RequestRefused
from strop.locales import msg

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_STAND_INS = 0xF0000
"""The first of Unicode's private characters: no template and no language has a use for them."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered text and where in it the text of a control token is ordinary text, as (start, end)."""

    text: str
    ordinary: tuple[tuple[int, int], ...] = ()

    def rest(self, start: int) -> Rendered:
        """What stands behind the first `start` characters."""
        return Rendered(
            self.text[start:], tuple((a - start, b - start) for a, b in self.ordinary if a >= start)
        )

    def agrees(self, other: Rendered) -> bool:
        """Whether this text begins with all of `other`, and has the same ordinary text there."""
        if not self.text.startswith(other.text):
            return False
        return tuple(span for span in self.ordinary if span[1] <= len(other.text)) == other.ordinary


NOTHING = Rendered("")


class ControlTokens:
    """The added tokens of a tokenizer that steer: special ones, and those that its template writes."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        template = str(tokenizer.chat_template or "")
        added = [one for one in tokenizer.added_tokens_decoder.values() if one.content.strip()]
        self._special = {one.content for one in added if one.special}
        self._texts = sorted(self._special | {one.content for one in added if one.content in template})
        self._any = _pattern(self._texts)
        self._only_special = _pattern(sorted(self._special))
        self._apart: bool | None = None

    def hide(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages with a stand-in for each control token that stands in their texts.

        An assistant's own thoughts and tool calls stay what they are: `<think>` is its word, `<|im_end|>` is
        not.
        """
        return [self._hidden(message) for message in messages]

    def hide_in_tools(self, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        """Tools with stand-ins in their texts: a description may come from anywhere."""
        return None if tools is None else [self._stood_in(tool, self._any) for tool in tools]

    def reveal(self, text: str) -> Rendered:
        """A rendering with its stand-ins turned into text again."""
        pieces: list[str] = []
        ordinary: list[tuple[int, int]] = []
        at = length = 0
        for found in self._stand_ins(text):
            token = self._texts[ord(found[0]) - _STAND_INS]
            pieces += [text[at : found.start()], token]
            length += found.start() - at
            ordinary.append((length, length + len(token)))
            length += len(token)
            at = found.end()
        return Rendered("".join([*pieces, text[at:]]), tuple(ordinary))

    def encode(self, part: Rendered) -> list[int]:
        """Ids of a part of a rendering, nothing added.

        Raises:
            RequestRefused: this tokenizer cannot write a control token's text as ordinary text.
        """
        if not part.text:
            return []
        if not part.ordinary:
            return self._plain(part.text)
        if not self._encodes_apart():
            start, end = part.ordinary[0]
            raise RequestRefused(
                msg(
                    "a message holds {text!r}, which this model's tokenizer can only read as "
                    "a control token; take it out of the text",
                    text=part.text[start:end],
                ),
                param="messages",
            )
        ids: list[int] = []
        at = 0
        for start, end in self._controls(part):
            ids += self._ordinary(part, at, start)
            ids += self._plain(part.text[start:end])
            at = end
        return ids + self._ordinary(part, at, len(part.text))

    def _hidden(self, message: dict[str, Any]) -> dict[str, Any]:
        own_words = message.get("role") == "assistant"
        changed = self._stood_in(message, self._only_special if own_words else self._any)
        return {**changed, "role": message["role"]} if "role" in message else changed

    def _stood_in(self, value: dict[str, Any], pattern: re.Pattern[str] | None) -> dict[str, Any]:
        """The value with a stand-in for each match in its texts."""
        if pattern is None:
            return value
        numbers = {text: chr(_STAND_INS + number) for number, text in enumerate(self._texts)}
        return _each_text(value, lambda text: pattern.sub(lambda found: numbers[found[0]], text))

    def _stand_ins(self, text: str) -> Iterator[re.Match[str]]:
        if not self._texts or text.isascii():
            return iter(())
        return re.finditer(f"[{chr(_STAND_INS)}-{chr(_STAND_INS + len(self._texts) - 1)}]", text)

    def _controls(self, part: Rendered) -> Iterator[tuple[int, int]]:
        """Where the template's own control tokens stand."""
        if self._any is None:
            return
        for found in self._any.finditer(part.text):
            if not any(found.start() < end and start < found.end() for start, end in part.ordinary):
                yield found.span()

    def _ordinary(self, part: Rendered, start: int, end: int) -> list[int]:
        """Ids of a stretch without control tokens. Added tokens that are not special are broken in two, since
        tokenizers know no other way to read them as text."""
        ids: list[int] = []
        at = start
        for a, b in part.ordinary:
            if start <= a and b <= end and part.text[a:b] not in self._special:
                ids += self._split(part.text[at : a + 1])
                at = a + 1
        return ids + self._split(part.text[at:end])

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, verbose=False)

    def _split(self, text: str) -> list[int]:
        if not text:
            return []
        return self._tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        )

    def _encodes_apart(self) -> bool:
        """Whether stretches between control tokens have the same ids alone as together."""
        if self._apart is None:
            token = next(iter(sorted(self._special)), None)
            whole = "" if token is None else f"user\nWhat is it?{token}\nsystem says"
            parts = [] if token is None else ["user\nWhat is it?", token, "\nsystem says"]
            self._apart = self._plain(whole) == [one for part in parts for one in self._plain(part)]
        return self._apart


def _pattern(texts: list[str]) -> re.Pattern[str] | None:
    """The longest first: one may begin another."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True)))) if texts else None


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed; names of members stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(one, change) for one in value]
    if isinstance(value, dict):
        return {key: _each_text(one, change) for key, one in value.items()}
    return value
