"""Request + the attempt's own settings -> SamplingParams, and the seeds that make a run repeatable.

While training, the loss divides logits by each token's recorded temperature and assumes that nothing was
cut from the distribution: what would break that is refused, never quietly changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.request import ChatRequest
from strop.locales import msg
from strop.schema.sampling import MIN_TRAINED_TEMPERATURE, SamplingParams, seed_of


def params_for(request: ChatRequest, own: SamplingParams, *, training: bool, room: int) -> SamplingParams:
    """What one choice is sampled with, its seed still to be set.

    The request's settings go before the attempt's `own`, with two exceptions: `max_tokens` never exceeds
    the attempt's or the `room` that is left, and in validation the attempt's temperature stands, so that
    scores of different steps compare (greedy, as jobs have it).

    Units:
        room: tokens between the prompt and the model's maximum length.
    Raises:
        RequestRefused: 400 for settings whose samples could not be trained on.
    """
    asked = request.max_completion_tokens or request.max_tokens or own.max_tokens
    temperature, top_p = request.temperature, request.top_p
    top_k = None if request.top_k is None else max(request.top_k, 0)
    if training:
        _refuse_untrainable(temperature, top_p, top_k)
    return SamplingParams(
        max_tokens=min(asked, own.max_tokens, room),
        temperature=temperature if training and temperature is not None else own.temperature,
        top_p=own.top_p if top_p is None else top_p,
        top_k=own.top_k if top_k is None else top_k,
        stop=request.stop_strings or own.stop,
        top_logprobs=request.top_logprobs or 0,
    )


def check_trainable(own: SamplingParams) -> None:
    """Refuse an attempt whose own settings break what the loss assumes.

    Raises:
        ValueError: the settings come from the program, not from a call.
    """
    if own.temperature < MIN_TRAINED_TEMPERATURE or own.top_p < 1 or own.top_k > 0:
        raise ValueError(
            "training samples from the full distribution: temperature of at least "
            f"{MIN_TRAINED_TEMPERATURE:g}, top_p = 1, top_k = 0; found {own}"
        )


def _refuse_untrainable(temperature: float | None, top_p: float | None, top_k: int | None) -> None:
    why = "the training loss assumes that tokens were sampled from the model's full distribution"
    if temperature == 0:
        raise RequestRefused(
            msg(
                "temperature = 0 is refused while training: {why}, and every rollout would "
                "be the same. Leave temperature out to use the job's, or set it above 0",
                why=why,
            ),
            param="temperature",
        )
    if temperature is not None and temperature < MIN_TRAINED_TEMPERATURE:
        raise RequestRefused(
            msg(
                "temperature = {temperature} is refused while training: below "
                "{min_trained_temperature:g} the loss, which divides by it, drowns in "
                "rounding. Leave temperature out to use the job's",
                temperature=temperature,
                min_trained_temperature=MIN_TRAINED_TEMPERATURE,
            ),
            param="temperature",
        )
    if top_p is not None and top_p < 1:
        raise RequestRefused(
            msg(
                "top_p = {top_p} is refused while training: {why}. Leave top_p out, or set it to 1",
                top_p=top_p,
                why=why,
            ),
            param="top_p",
        )
    if top_k:
        raise RequestRefused(
            msg(
                "top_k = {top_k} is refused while training: {why}. Leave top_k out, or set it to 0",
                top_k=top_k,
                why=why,
            ),
            param="top_k",
        )


def derive_seed(*parts: str | int | None) -> int:
    """63 bits that depend on every part and on nothing else."""
    return seed_of(json.dumps(parts))


def ids_digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(token_ids)).encode()).hexdigest()
