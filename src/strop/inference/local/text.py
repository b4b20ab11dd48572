"""Token ids, one after another -> text that is certain: whole characters, and no start of a stop string.

Used by the engine to find stop strings and by a generation to stream. One object a sequence; not shared by
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

Decode = Callable[[Sequence[int]], str]

UNFINISHED = "\ufffd"
"""What decoders give for the bytes of a character that is not complete."""


class TextStream:
    """Text of a growing sequence.

    `silent_ids` are end tokens, which are never text. `text` is what has been decoded so far, cut before a
    stop string; `certain` is how much of it may be shown.
    """

    def __init__(self, decode: Decode, *, stop: Sequence[str] = (), silent_ids: Collection[int] = ()) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._silent_ids = silent_ids
        self._ids: list[int] = []
        self._context = 0
        self._read = 0
        self._shown = 0
        self.text = ""
        self.stopped = False

    def push(self, token_ids: Iterable[int]) -> str:
        """Add tokens; returns the text that has become certain since the last call."""
        for token_id in token_ids:
            if self.stopped:
                break
            if token_id not in self._silent_ids:
                self._ids.append(token_id)
                self._extend(final=False)
        return self._show(len(self.text) if self.stopped else len(self.text) - self._held())

    def finish(self) -> str:
        """No more tokens will come: returns the rest, a broken character at the end included."""
        if not self.stopped:
            self._extend(final=True)
        return self._show(len(self.text))

    def _extend(self, *, final: bool) -> None:
        # Decoding from a little before the new tokens gives what they add in that context: some decoders
        # treat the first token apart (a leading space), and a character may be spread over several tokens.
        known = self._decode(self._ids[self._context : self._read])
        whole = self._decode(self._ids[self._context :])
        if len(whole) <= len(known) or (whole.endswith(UNFINISHED) and not final):
            return
        begin = len(self.text)
        self.text += whole[len(known) :]
        self._context, self._read = self._read, len(self._ids)
        self._cut(begin)

    def _cut(self, begin: int) -> None:
        found = [
            place
            for stop in self._stop
            if (place := self.text.find(stop, max(0, begin - len(stop) + 1))) >= 0
        ]
        if found:
            self.text = self.text[: min(found)]
            self.stopped = True

    def _held(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self.text)), longest, -1):
                if self.text.endswith(stop[:length]):
                    longest = length
                    break
        return longest

    def _show(self, end: int) -> str:
        shown, self._shown = self._shown, max(self._shown, end)
        return self.text[shown : self._shown]
