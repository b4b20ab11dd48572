"""Token ids <-> what they mean to the engine: text, ends, stop strings.

Holds a tokenizer of its own, because a fast tokenizer must not be used by one thread while another
configures it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from strop.errors import EngineError
from strop.inference.local.request import Stops
from strop.inference.local.text import TextStream
from strop.locales import msg


class Vocabulary:
    """`size` counts the ids that may be sampled: a head may be padded beyond the tokens that exist.

    `embedded` counts those that a prompt may hold. `eos_ids` are all ends that the generation config, the
    model and the tokenizer name.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)
        self.embedded = int(model.get_input_embeddings().num_embeddings)  # pyright: ignore[reportArgumentType]
        self.size = min(len(tokenizer), self.embedded)
        self.eos_ids = _eos_ids(model, tokenizer)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens."""
        text = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def stream(self, stop: Sequence[str], silent_ids: Collection[int]) -> TextStream:
        return TextStream(self.decode, stop=stop, silent_ids=silent_ids)

    def stops(self, stop: Sequence[str]) -> Stops:
        """Stop strings, those that are special tokens apart: these never show in the text.

        Raises:
            EngineError: an empty stop string.
        """
        if "" in stop:
            raise EngineError(msg("a stop string is empty"), fix=msg("leave it out"))
        special: dict[str, int] = {}
        for text in stop:
            token_id = self._tokenizer.convert_tokens_to_ids(text)
            if text in self._tokenizer.all_special_tokens and isinstance(token_id, int):
                special[text] = token_id
        strings = tuple(text for text in stop if text not in special)
        silent_ids = self.eos_ids | frozenset(special.values())
        return Stops(
            strings=strings,
            token_ids=frozenset(special.values()),
            silent_ids=silent_ids,
            text=self.stream(strings, silent_ids) if strings else None,
        )


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    given: list[Any] = [
        getattr(source, "eos_token_id", None)
        for source in (getattr(model, "generation_config", None), model.config, tokenizer)
    ]
    ids: set[int] = set()
    for entry in given:
        ids.update([entry] if isinstance(entry, int) else entry or [])
    return frozenset(ids)
