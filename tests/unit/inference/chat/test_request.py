"""Request bodies: no field that would change what is sampled is taken in silence."""

from __future__ import annotations

from typing import Any

import pytest

from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.request import checked_request, parse_request

MESSAGES = [{"role": "user", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"logit_bias": {"5": 1}}, "logit_bias", "would change what is sampled"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "leave frequency_penalty out"),
        ({"presence_penalty": 1}, "presence_penalty", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"min_p": 0.1}, "min_p", "not supported"),
        ({"top_logprobs": 3}, "top_logprobs", "told with logprobs=true only"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "less than or equal to 20"),
        ({"temprature": 0.7}, "temprature", "Unrecognized request argument supplied: temprature"),
        ({"temperature": "0.7"}, "temperature", "temperature: Input should be a valid number"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens", "disagree"),
        ({"stop": ["a", ""]}, "stop", "must not be empty"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"tools": [{"name": "add"}]}, "tools", r"tools\[0\]: expected"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice", "cannot be forced"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "add"}}},
            "tool_choice",
            "cannot be forced",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str, text: str) -> None:
    with pytest.raises(RequestRefused, match=text) as refused:
        checked_request({"messages": MESSAGES, **fields})
    assert refused.value.http_status == 400
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert refused.value.body["error"]["param"] == param


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": None, "n": 1},
        {"response_format": {"type": "text"}, "parallel_tool_calls": True},
        {"user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {"top_logprobs": 0, "logprobs": True, "temperature": 1},
        {"top_logprobs": 20, "logprobs": True},
        {"tools": [], "tool_choice": "auto"},
        {"model": "any name at all"},
    ],
)
def test_neutral_values_and_fields_that_touch_no_token_are_taken(fields: dict[str, Any]) -> None:
    assert checked_request({"messages": MESSAGES, **fields}).messages == MESSAGES


@pytest.mark.parametrize(
    ("body", "text"), [(b"{", "not JSON"), (b"[1]", "found list"), (b"\xff", "not JSON")]
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(RequestRefused, match=text):
        parse_request(body)


def test_one_stop_string_and_several_are_read_alike() -> None:
    assert checked_request({"messages": MESSAGES, "stop": "a"}).stop_strings == ("a",)
    assert checked_request({"messages": MESSAGES, "stop": ["a", "b"]}).stop_strings == ("a", "b")
    assert checked_request({"messages": MESSAGES}).stop_strings == ()


def test_with_tool_choice_none_tools_stay_in_the_prompt_but_are_not_looked_for() -> None:
    request = checked_request({"messages": MESSAGES, "tools": [TOOL], "tool_choice": "none"})
    assert request.tools == [TOOL]
    assert not request.parses_tools
