"""Tool calls as sampled text: read where they can be, left as they are where they cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.inference.chat.tool_calls import MalformedToolCall, ShownText, ToolCall, parse_tool_calls


def test_a_call_keeps_the_argument_text_that_was_sampled() -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a":1,  "b" : [2, "</tool_call>"]}}\n</tool_call>'
    content, calls = parse_tool_calls(text)
    assert content == ""
    assert calls == (ToolCall(name="add", arguments='{"a":1,  "b" : [2, "</tool_call>"]}'),)


def test_content_before_two_calls_in_one_turn() -> None:
    text = (
        'Both.\n<tool_call>{"name":"a","arguments":{}}</tool_call>\n'
        '<tool_call>{"arguments":{"x":1},"name":"b"}</tool_call>'
    )
    assert parse_tool_calls(text) == (
        "Both.",
        (ToolCall(name="a", arguments="{}"), ToolCall(name="b", arguments='{"x":1}')),
    )


def test_arguments_written_as_a_json_string_are_that_string() -> None:
    _, calls = parse_tool_calls('<tool_call>{"name": "a", "arguments": "{\\"x\\": 1,}"}</tool_call>')
    assert calls == (ToolCall(name="a", arguments='{"x": 1,}'),)


@pytest.mark.parametrize("arguments", ["", ', "arguments": ""', ', "arguments": null', ', "arguments": {}'])
def test_a_call_without_arguments_has_an_empty_object(arguments: str) -> None:
    _, calls = parse_tool_calls(f'<tool_call>{{"name": "now"{arguments}}}</tool_call>')
    assert calls == (ToolCall(name="now", arguments="{}"),)


def test_text_without_a_call_is_content_untouched() -> None:
    assert parse_tool_calls("  2 < 3 \n") == ("  2 < 3 \n", ())


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "a", "arguments": {"x": 1,}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": {"x": 1}}',
        '<tool_call>{"name": "a", "argum',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        "<tool_call>{}</tool_call>",
        "<tool_call>[1]</tool_call>",
        "<tool_call></tool_call>",
        '<tool_call>{1: 2, "name": "a", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": ' + "[" * 100_000,
        '<tool_call>{"name":"a","arguments":{}}</tool_call><tool_call>oops',
    ],
)
def test_what_cannot_be_read_is_malformed(text: str) -> None:
    with pytest.raises(MalformedToolCall):
        parse_tool_calls(text)


@given(st.text())
def test_any_text_is_read_or_malformed(text: str) -> None:
    for attempt in (
        text,
        f"<tool_call>{text}",
        f'<tool_call>{{"name": "a", "arguments": {text}}}</tool_call>',
    ):
        try:
            parse_tool_calls(attempt)
        except MalformedToolCall:
            continue


def test_a_stream_shows_text_at_once_and_holds_back_what_may_be_a_call() -> None:
    shown = ShownText(watches_for_tools=True)
    assert shown.feed("Let me") == "Let me"
    assert shown.feed(" see. ") == " see."
    assert shown.feed("\n<tool") == ""
    assert shown.feed("_box> no") == " \n<tool_box> no"
    assert shown.feed("\n<tool_call>{") == ""
    assert shown.feed("}") == ""


def test_a_stream_without_tools_holds_nothing_back() -> None:
    shown = ShownText(watches_for_tools=False)
    assert shown.feed("a \n<tool_call>") == "a \n<tool_call>"


@given(
    st.lists(
        st.sampled_from(
            ["<tool_call>", "<tool", "_call>", '{"name":"a","arguments":{}}', " ", "x", "</tool_call>"]
        )
    )
)
def test_what_a_stream_has_shown_always_begins_the_final_content(parts: list[str]) -> None:
    shown = ShownText(watches_for_tools=True)
    sent = "".join(shown.feed(part) for part in parts)
    whole = "".join(parts)
    try:
        content, _ = parse_tool_calls(whole)
    except MalformedToolCall:
        content = whole
    assert content.startswith(sent)
    assert shown.length == len(sent)
