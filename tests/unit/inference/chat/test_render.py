"""Prompts keep sampled ids, whatever a tokenizer would make of their text."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.tokenizer import CHATML_DROPS_THINKING, CHATML_TOOLS, tiny_tokenizer
from strop.errors import ModelError
from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.render import PrefixEntry, Renderer

USER = {"role": "user", "content": "What is 12 plus 30?"}
TOOL = {
    "type": "function",
    "function": {"name": "calculator", "parameters": {"type": "object", "properties": {}}},
}


def answer(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_a_first_prompt_is_the_template_tokenised_with_the_generation_prompt() -> None:
    tokenizer = tiny_tokenizer()
    prompt = Renderer(tokenizer).prompt([USER], None)
    assert prompt.text == "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
    assert list(prompt.token_ids) == tokenizer.encode(prompt.text, add_special_tokens=False)
    assert prompt.token_ids[0] == 1
    assert prompt.kept_ids


def test_a_non_canonical_tokenisation_survives_into_the_next_prompt() -> None:
    tokenizer = tiny_tokenizer()
    renderer = Renderer(tokenizer)
    split = [*tokenizer.encode("H"), *tokenizer.encode("aving"), tokenizer.eos_token_id]
    assert tokenizer.encode("Having") != split[:2]
    first = renderer.prompt([USER], None)
    known = renderer.after(first, split, [USER])
    second = renderer.prompt([USER, answer("Having"), USER], None, [known])
    rest = "\n<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
    assert second.token_ids == (*first.token_ids, *split, *tokenizer.encode(rest))
    assert second.kept_ids


def test_an_answer_cut_at_its_token_limit_is_continued_by_the_end_token_of_the_template() -> None:
    tokenizer = tiny_tokenizer()
    renderer = Renderer(tokenizer)
    first = renderer.prompt([USER], None)
    cut = tokenizer.encode("Having")
    second = renderer.prompt([USER, answer("Having"), USER], None, [renderer.after(first, cut, [USER])])
    assert second.token_ids[: len(first.token_ids) + len(cut) + 1] == (*first.token_ids, *cut, 2)


def test_the_longest_known_turn_is_kept() -> None:
    tokenizer = tiny_tokenizer()
    renderer = Renderer(tokenizer)
    first = renderer.prompt([USER], None)
    short = renderer.after(first, tokenizer.encode("H"), [USER])
    long = renderer.after(first, [*tokenizer.encode("H"), *tokenizer.encode("aving"), 2], [USER])
    second = renderer.prompt([USER, answer("Having"), USER], None, [long, short])
    assert second.token_ids[: len(long.token_ids)] == long.token_ids


def test_a_template_that_drops_thinking_renders_anew_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tiny_tokenizer(CHATML_DROPS_THINKING)
    renderer = Renderer(tokenizer)
    said = "<think>Having</think>\n42"
    first = renderer.prompt([USER], None)
    known = renderer.after(first, [*tokenizer.encode(said), 2], [USER])
    messages = [USER, answer(said), USER]
    with caplog.at_level(logging.WARNING):
        second = renderer.prompt(messages, None, [known])
        renderer.prompt(messages, None, [known])
    assert list(second.token_ids) == tokenizer.encode(second.text)
    assert "<think>" not in second.text
    assert not second.kept_ids
    assert len(caplog.records) == 1
    assert "sampled '<think>Having</think>\\n42<|im_end|>', now '42<|im_end|>\\n" in caplog.messages[0]


def test_another_conversation_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tiny_tokenizer()
    renderer = Renderer(tokenizer)
    known = renderer.after(renderer.prompt([USER], None), [5, 2], [USER])
    other = renderer.prompt([{"role": "user", "content": "hello"}], None, [known])
    assert other.kept_ids
    assert caplog.records == []


def test_tool_calls_sent_back_as_they_came_keep_their_ids() -> None:
    tokenizer = tiny_tokenizer(CHATML_TOOLS)
    renderer = Renderer(tokenizer)
    arguments = '{"a":12,   "b":30}'
    said = f'Having.\n<tool_call>\n{{"name": "calculator", "arguments": {arguments}}}\n</tool_call>'
    first = renderer.prompt([USER], [TOOL])
    sampled = [*tokenizer.encode(said), 2]
    call = {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": arguments}}
    messages = [
        USER,
        {"role": "assistant", "content": "Having.", "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]
    second = renderer.prompt(messages, [TOOL], [renderer.after(first, sampled, [USER])])
    assert second.token_ids[: len(first.token_ids) + len(sampled)] == (*first.token_ids, *sampled)
    assert second.text.endswith("<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n")


def test_a_template_that_would_quote_argument_text_gets_the_object() -> None:
    quoting = CHATML_TOOLS.replace(
        "{% if call.function.arguments is string %}{{ call.function.arguments }}"
        "{% else %}{{ call.function.arguments | tojson }}{% endif %}",
        "{{ call.function.arguments | tojson }}",
    )
    assert quoting != CHATML_TOOLS
    call = {"id": "1", "type": "function", "function": {"name": "calculator", "arguments": '{"a":1}'}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, {**USER, "role": "tool"}]
    prompt = Renderer(tiny_tokenizer(quoting)).prompt(messages, [TOOL])
    assert '"arguments": {"a": 1}}' in prompt.text


def test_a_template_without_tools_gets_them_in_the_system_message() -> None:
    system = {"role": "system", "content": "Be brief."}
    text = Renderer(tiny_tokenizer()).prompt([system, USER], [TOOL]).text
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert f"<tools>\n{json.dumps(TOOL)}\n</tools>" in text
    without = Renderer(tiny_tokenizer()).prompt([USER], [TOOL]).text
    assert without.startswith("<|im_start|>system\n# Tools\n\n")
    assert Renderer(tiny_tokenizer()).prompt([USER], None).text.startswith("<|im_start|>user\n")


def test_calls_and_results_keep_their_ids_also_where_the_template_knows_no_tools() -> None:
    tokenizer = tiny_tokenizer()
    renderer = Renderer(tokenizer)
    arguments = '{"a":12,   "b":30}'
    said = f'Having.\n<tool_call>\n{{"name": "calculator", "arguments": {arguments}}}\n</tool_call>'
    first = renderer.prompt([USER], [TOOL])
    sampled = [*tokenizer.encode(said), 2]
    call = {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": arguments}}
    messages = [
        USER,
        {"role": "assistant", "content": "Having.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        {"role": "tool", "tool_call_id": "call_2", "content": "error: none"},
    ]
    second = renderer.prompt(messages, [TOOL], [renderer.after(first, sampled, [USER])])
    assert second.token_ids[: len(first.token_ids) + len(sampled)] == (*first.token_ids, *sampled)
    results = "<tool_response>\n42\n</tool_response>\n<tool_response>\nerror: none\n</tool_response>"
    assert second.text.endswith(f"<|im_start|>user\n{results}<|im_end|>\n<|im_start|>assistant\n")


def test_text_parts_are_joined_and_developer_is_system() -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]}
    ]
    assert (
        Renderer(tiny_tokenizer())
        .prompt(messages, None)
        .text.startswith("<|im_start|>system\nBe\nbrief.<|im_end|>")
    )


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"role": "narrator", "content": "x"}, r"messages\[0\]\.role: expected one of .* found 'narrator'"),
        ({"content": "x"}, r"messages\[0\]\.role: .* found None"),
        ({"role": "user", "content": 3}, r"messages\[0\]\.content: expected text"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            r"messages\[0\]\.content\[0\]: this model reads text only, found a part of type 'image_url'",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {}}]},
            r"tool_calls\[0\]\.function\.name is missing",
        ),
        ({"role": "assistant", "tool_calls": {"a": 1}}, r"messages\[0\]\.tool_calls: expected a list"),
    ],
)
def test_a_message_no_template_can_take_is_named(message: dict[str, Any], found: str) -> None:
    with pytest.raises(RequestRefused, match=found) as refused:
        Renderer(tiny_tokenizer()).prompt([message], None)
    assert refused.value.http_status == 400


def test_what_a_template_raises_is_told_to_the_caller() -> None:
    strict = "{{ raise_exception('Conversation roles must alternate') if messages | length > 1 }}x"
    with pytest.raises(RequestRefused, match="Conversation roles must alternate"):
        Renderer(tiny_tokenizer(strict)).prompt([USER, USER], None)


def test_template_arguments_of_a_call_reach_the_template_but_not_its_machinery() -> None:
    renderer = Renderer(
        tiny_tokenizer("{{ messages[0].content }} {{ 'thinks' if enable_thinking else 'answers' }}")
    )
    assert renderer.prompt([USER], None, (), {"enable_thinking": True}).text.endswith(" thinks")
    assert renderer.prompt([USER], None).text.endswith(" answers")
    with pytest.raises(RequestRefused, match="chat_template_kwargs: tokenize cannot be set by a call"):
        renderer.prompt([USER], None, (), {"tokenize": True})


def test_a_tokenizer_without_a_chat_template_is_refused_at_the_start() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        Renderer(tokenizer)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_sampled_id_returns_in_the_next_prompt_of_its_conversation(data: st.DataObject) -> None:
    """Random ids, also halves of characters: an agent sends the text back, the prompt holds the ids."""
    tokenizer = tiny_tokenizer()
    renderer = Renderer(tokenizer)
    ordinary = st.integers(3, len(tokenizer) - 1)
    messages: list[dict[str, Any]] = [USER]
    known: list[PrefixEntry] = []
    expected: tuple[int, ...] = ()
    for _ in range(data.draw(st.integers(1, 4))):
        prompt = renderer.prompt(messages, None, known)
        assert prompt.kept_ids
        assert prompt.token_ids[: len(expected)] == expected
        sampled = data.draw(st.lists(ordinary, min_size=1, max_size=6)) + data.draw(
            st.sampled_from([[], [2]])
        )
        known.append(renderer.after(prompt, sampled, list(messages)))
        expected = (*prompt.token_ids, *sampled)
        text = str(tokenizer.decode(sampled, skip_special_tokens=True))
        messages += [answer(text), {"role": "user", "content": data.draw(st.text(max_size=8))}]
