"""Sampled token ids -> their text, coloured by how sure the policy was.

Needs the tokenizer's file from a checkpoint or a model's folder, and the `tokenizers` library; without either
the ids themselves are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from strop.schema.job import Job
from strop.schema.trajectory import Turn
from strop.store.checkpoints import list_checkpoints
from strop.store.models import find_model

LEVELS = (0.9, 0.5, 0.2, 0.05, 0.01)
"""Probabilities at which the colour changes; the last colour is of everything below."""

_FILE = "tokenizer.json"
_MAX_OPEN = 8
"""Tokens that may wait for the end of a letter. One has four bytes at most; a policy that falls apart samples
parts of letters without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`level` 0 is the surest. `probability` is of the distribution sampled from."""

    text: str
    token_id: int
    logprob: float
    probability: float
    level: int
    version: int


def tokens_of(turn: Turn, tokenizer: Path | None) -> list[Token]:
    pieces = decoded(turn.completion_ids, tokenizer)
    columns = zip(pieces, turn.completion_ids, turn.behaviour_logprobs, turn.policy_versions, strict=False)
    return [
        Token(
            text=text,
            token_id=token_id,
            logprob=logprob,
            probability=(probability := math.exp(min(0.0, logprob)) if math.isfinite(logprob) else 0.0),
            level=level_of(probability),
            version=version,
        )
        for text, token_id, logprob, version in columns
    ]


def level_of(probability: float) -> int:
    """
    >>> level_of(1.0), level_of(0.5), level_of(0.001)
    (0, 1, 5)
    """
    return next((level for level, bound in enumerate(LEVELS) if probability >= bound), len(LEVELS))


def decoded(token_ids: Sequence[int], tokenizer: Path | None) -> list[str]:
    """A text a token. A letter that several tokens make stands at the last of them; ids where none comes."""
    reader = _reader(str(tokenizer), tokenizer.stat().st_mtime_ns) if tokenizer is not None else None
    if reader is None:
        return [_shown(token_id) for token_id in token_ids]
    pieces: list[str] = []
    start, told, num_open = 0, "", 0
    for position in range(len(token_ids)):
        text = reader.decode(list(token_ids[start : position + 1]), skip_special_tokens=False)
        if text.endswith("\ufffd"):
            pieces.append("")
            num_open += 1
            if num_open == _MAX_OPEN:
                pieces[-num_open:] = [
                    _shown(one) for one in token_ids[position + 1 - num_open : position + 1]
                ]
                start, told, num_open = position + 1, "", 0
            continue
        pieces.append(text[len(told) :])
        start = position  # with the token before, so that a leading space is seen
        told, num_open = reader.decode([token_ids[position]], skip_special_tokens=False), 0
    return pieces


def _shown(token_id: int) -> str:
    return f"⟨{token_id}⟩"


def tokenizer_of(session: Session, job: Job, home: Path) -> Path | None:
    """Where a job's tokenizer lies on this machine, if it does."""
    folders = [checkpoint.folder for checkpoint in reversed(list_checkpoints(session, job.job_id))]
    named = find_model(session, job.model)
    if named is not None:
        folders.append(Path(named.source))
    folders += [home / "models" / job.model, Path(job.model)]
    return next((folder / _FILE for folder in folders if (folder / _FILE).is_file()), None)


@lru_cache(maxsize=4)
def _reader(path: str, _changed: int) -> Any:
    try:
        from tokenizers import Tokenizer  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError:  # a server that trains elsewhere
        return None
    return Tokenizer.from_file(path)
