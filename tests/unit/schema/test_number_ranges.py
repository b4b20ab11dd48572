"""Every number that a job can set has two ends: found by walking the schema, so that no new one escapes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from strop.client.tuning import FunctionComponentRuntime
from strop.config.function import RuntimeSizes
from strop.config.job import JobConfig
from strop.doors.dashscope.runtime_request import InstanceRuntimeRequest
from strop.schema.sampling import SamplingParams

NOT_FINITE = (math.nan, math.inf, -math.inf, 1e308, -1e308)
HUGE = (10**30, -(10**30))


def leaves(annotation: Any) -> Iterator[Any]:
    """The plain types in an annotation; `dict[str, float]` stands for its values."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from leaves(one)
    elif origin is Annotated or origin is tuple:
        yield from leaves(get_args(annotation)[0])
    elif origin is dict:
        yield ("by name", get_args(annotation)[1])
    elif annotation is not NoneType:
        yield annotation


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and every section below it."""
    yield model
    for info in model.model_fields.values():
        for leaf in leaves(info.annotation):
            if isinstance(leaf, type) and issubclass(leaf, BaseModel):
                yield from sections(leaf)


def numbers_of(model: type[BaseModel]) -> Iterator[tuple[str, type, bool]]:
    """(field, int or float, whether it is a value by a user's own name)."""
    for name, info in model.model_fields.items():
        for leaf in leaves(info.annotation):
            by_name = isinstance(leaf, tuple)
            for kind in leaves(leaf[1]) if by_name else (leaf,):
                if kind in (int, float):
                    yield name, kind, by_name


RANGES = sorted(
    {
        (model, *found)
        for top in (JobConfig, InstanceRuntimeRequest, FunctionComponentRuntime)
        for model in sections(top)
        for found in numbers_of(model)
        if found[0] not in ("env", "params")  # a user's own
    },
    key=str,
)


def refuses(model: type[BaseModel], name: str, value: object, *, by_name: bool) -> bool:
    try:
        model.model_validate({name: {"part": value} if by_name else value})
    except ValidationError as error:
        return any(one["loc"][0] == name for one in error.errors())
    return False


def test_the_walk_finds_the_ranges_of_every_section():
    found = {(model.__name__, name) for model, name, *_ in RANGES}
    assert len(found) > 60
    assert {
        ("HyperParameters", "lora_alpha"),
        ("FunctionConfig", "timeout"),
        ("FunctionConfig", "reward_metric_weight"),
        ("FunctionRuntime", "concurrency"),
        ("InstanceRuntimeRequest", "cpu"),
        ("FunctionComponentRuntime", "max_capacity"),
        ("Resources", "mtu_capacity"),
    } <= found


@pytest.mark.parametrize(
    ("model", "name", "kind", "by_name"), RANGES, ids=[f"{m.__name__}.{n}" for m, n, *_ in RANGES]
)
def test_a_number_is_refused_where_it_is_none_or_beyond_all_bounds(model, name, kind, by_name):
    for value in (*NOT_FINITE, *(HUGE if kind is int else ())):
        assert refuses(model, name, value, by_name=by_name), value


@pytest.mark.parametrize("name", ["learning_rate", "temperature", "kl_loss_coef", "lam", "gamma"])
def test_a_number_that_float32_loses_is_refused(name):
    for value in (1e-45, 1e-300, 5e-324):
        assert any(refuses(model, name, value, by_name=False) for model in sections(JobConfig)), value


def test_the_numbers_of_sampling_have_two_ends_too():
    numbers = [one.name for one in dataclasses.fields(SamplingParams) if one.type not in ("tuple[str, ...]",)]
    assert numbers == ["max_tokens", "temperature", "top_p", "top_k", "seed", "top_logprobs"]
    for name in numbers:
        for value in HUGE if name in ("max_tokens", "top_k", "seed", "top_logprobs") else NOT_FINITE:
            with pytest.raises(ValueError, match=f"^{name} must"):
                SamplingParams(**{"max_tokens": 1, name: value})
    for value in (1e-45, 1e-21, 100.1):
        with pytest.raises(ValueError, match=r"0 \(greedy\) or lie in \[1e-20, 100\]"):
            SamplingParams(max_tokens=1, temperature=value)
    for value in (0, 1e-8):  # which clients write for greedy
        assert SamplingParams(max_tokens=1, temperature=value).temperature == value


def test_the_sizes_of_a_function_have_one_range_at_every_edge():
    names = set(RuntimeSizes.model_fields) | {"concurrency"}
    for edge in (InstanceRuntimeRequest, FunctionComponentRuntime):
        own = set(edge.__annotations__) & set(RuntimeSizes.model_fields)
        assert not own, "declared a second time"
        assert names <= set(edge.model_fields)
    for name, bad in (("memory_size", 63), ("concurrency", 10_001), ("capacity", 100_001), ("cpu", 1025)):
        for edge in (InstanceRuntimeRequest, FunctionComponentRuntime):
            assert refuses(edge, name, bad, by_name=False), (edge, name)
