"""A request inside the engine: the prompt, how to sample, when to stop, and where the result goes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strop.inference.local.adapter import Adapter
from strop.inference.local.generation import Generation
from strop.inference.local.text import TextStream
from strop.schema.sampling import SamplingParams, TopLogprobs


@dataclass(slots=True, kw_only=True)
class Stops:
    """What ends a sequence besides the model's own end tokens.

    `token_ids` are stop strings that are special tokens. `silent_ids` are all tokens that end a sequence
    and are no text. `text` looks for the other `strings`; None without any.
    """

    strings: tuple[str, ...]
    token_ids: frozenset[int]
    silent_ids: frozenset[int]
    text: TextStream | None

    @property
    def watching(self) -> bool:
        return self.text is not None or bool(self.token_ids)

    def reached(self, token_id: int) -> bool:
        if token_id in self.token_ids:
            return True
        if self.text is None:
            return False
        self.text.push((token_id,))
        return self.text.stopped


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """`limit` is the length, prompt included, at which it ends; `num_pushed` counts tokens streamed.
    `top_logprobs` grows with the sampled tokens, where `params` ask for them."""

    prompt: npt.NDArray[np.int64]
    params: SamplingParams
    seed: int
    limit: int
    stops: Stops
    generation: Generation
    adapter: Adapter | None = None
    num_pushed: int = 0
    top_logprobs: list[TopLogprobs] = field(default_factory=list["TopLogprobs"])

    @property
    def adapter_key(self) -> int:
        return 0 if self.adapter is None else self.adapter.key
