import math
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from strop.store.columns import (
    PackedFloats,
    PackedInts,
    Written,
    pack_floats,
    pack_ints,
    pack_json,
    unpack_json,
)

DIALECT = sqlite.dialect()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(min_value=-(2**63), max_value=2**63 - 1)))
def test_integers_come_back_as_they_went(values):
    assert PackedInts().process_result_value(pack_ints(values), DIALECT) == tuple(values)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(allow_nan=False)))
def test_floats_come_back_bit_for_bit(values):
    back = PackedFloats().process_result_value(pack_floats(values), DIALECT)
    assert struct.pack(f"{len(values)}d", *back) == struct.pack(f"{len(values)}d", *values)


def test_logprobs_that_are_not_finite_come_back_too():
    back = PackedFloats().process_result_value(pack_floats([math.nan, -math.inf, -0.0]), DIALECT)
    assert math.isnan(back[0])
    assert back[1] == -math.inf
    assert math.copysign(1.0, back[2]) == -1.0


def test_float32_logprobs_take_four_bytes_and_small_ids_two():
    logprobs = array("f", [-0.1, -2.3, -0.7]).tolist()
    assert len(pack_floats(logprobs)) == 1 + 3 * 4
    assert len(pack_floats([-0.1, -2.3, -0.7])) == 1 + 3 * 8
    assert len(pack_ints([1, 2, 49151])) == 1 + 3 * 2
    assert len(pack_ints([3] * 64)) == 1 + 64


@settings(deadline=None, max_examples=50)
@given(JSON)
def test_json_comes_back_whatever_strings_and_numbers_it_holds(value):
    assert unpack_json(pack_json(value)) == value


def test_json_keeps_nan_where_orjson_would_write_null():
    assert math.isnan(unpack_json(pack_json({"latency": math.nan, "tool": None}))["latency"])


def test_long_json_is_compressed():
    messages = [{"role": "user", "content": "What is 12 + 30?"}] * 50
    assert len(pack_json(messages)) < 200
    assert unpack_json(pack_json(messages)) == messages


@pytest.mark.parametrize(
    ("text", "stored"), [("a\0b", "a\ufffdb"), ("\ud83d!", "\ufffd\ufffd\ufffd!"), ("价格 ✓", "价格 ✓")]
)
def test_text_that_databases_refuse_is_made_readable(text, stored):
    assert Written().process_bind_param(text, DIALECT) == stored
