"""Whose settings a call is sampled with, and what is refused while training."""

from __future__ import annotations

from typing import Any

import pytest

from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.request import checked_request
from strop.inference.chat.sampling import check_trainable, derive_seed, params_for
from strop.schema.sampling import SamplingParams

OWN = SamplingParams(max_tokens=64, temperature=0.9)
GREEDY = SamplingParams(max_tokens=64, temperature=0.0)


def settle(own: SamplingParams, *, training: bool = True, room: int = 1000, **fields: Any) -> SamplingParams:
    request = checked_request({"messages": [{"role": "user", "content": "x"}], **fields})
    return params_for(request, own, training=training, room=room)


def test_a_call_that_sets_nothing_gets_the_settings_of_its_attempt() -> None:
    assert settle(OWN) == OWN


def test_a_temperature_above_zero_is_honoured_while_training() -> None:
    assert settle(OWN, temperature=0.3).temperature == 0.3


@pytest.mark.parametrize(("field", "value"), [("temperature", 0), ("top_p", 0.9), ("top_k", 20)])
def test_a_cut_distribution_is_refused_while_training_and_says_what_to_do(field: str, value: Any) -> None:
    with pytest.raises(
        RequestRefused, match=f"{field} = {value} is refused while training.*Leave {field} out"
    ) as refused:
        settle(OWN, **{field: value})
    assert refused.value.http_status == 400
    assert refused.value.param == field


@pytest.mark.parametrize("field", [{"top_p": 1}, {"top_k": 0}, {"top_k": -1}])
def test_settings_that_cut_nothing_are_taken(field: dict[str, Any]) -> None:
    assert settle(OWN, **field) == OWN


def test_validation_honours_all_but_the_temperature_which_stays_that_of_the_job() -> None:
    settled = settle(GREEDY, training=False, temperature=0.7, top_p=0.5, top_k=3, stop=["a", "b"])
    assert settled == SamplingParams(max_tokens=64, temperature=0.0, top_p=0.5, top_k=3, stop=("a", "b"))


@pytest.mark.parametrize(
    ("fields", "room", "expected"),
    [
        ({}, 1000, 64),
        ({"max_tokens": 5}, 1000, 5),
        ({"max_completion_tokens": 6}, 1000, 6),
        ({"max_tokens": 500}, 1000, 64),
        ({"max_tokens": 500}, 7, 7),
        ({}, 7, 7),
    ],
)
def test_max_tokens_is_clipped_to_the_room_and_to_the_attempt(
    fields: dict[str, Any], room: int, expected: int
) -> None:
    assert settle(OWN, room=room, **fields).max_tokens == expected


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 5}])
def test_an_attempt_to_train_on_must_sample_the_full_distribution(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="training samples from the full distribution"):
        check_trainable(SamplingParams(max_tokens=1, **change))


def test_a_seed_depends_on_each_of_its_parts() -> None:
    seeds = {derive_seed(1, "a", 2), derive_seed(1, "a", 3), derive_seed(1, "b", 2), derive_seed(2, "a", 2)}
    assert len(seeds) == 4
    assert derive_seed(1, "a", 2) == 7206417918070876358
    assert all(0 <= seed < 2**63 for seed in seeds)
