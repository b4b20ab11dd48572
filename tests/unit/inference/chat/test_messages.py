"""Nothing that was said is left out of a prompt, and tools read the same however they are written."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.tokenizer import CHATML_TOOLS, tiny_tokenizer
from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.render import Renderer

FIRST_SYSTEM_ONLY = (
    "{% if messages[0]['role'] == 'system' %}"
    "{{ '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{% if message['role'] in ['user', 'assistant'] %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}"
)
"""As the templates of several models have it: `system` counts at the beginning, `tool` never."""

JSON_RESULTS = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'tool' %}{{ message['content'] | tojson }}"
    "{% else %}{{ message['content'] }}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}"
)


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_an_instruction_that_the_template_drops_joins_the_first_system_message() -> None:
    renderer = Renderer(tiny_tokenizer(FIRST_SYSTEM_ONLY))
    text = renderer.prompt(
        [said("system", "Be brief."), said("developer", "Use French."), said("user", "Hi")], None
    )
    assert text.text == (
        "<|im_start|>system\nBe brief.\n\nUse French.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


def test_a_late_instruction_without_a_system_message_before_it_joins_the_first_question() -> None:
    renderer = Renderer(tiny_tokenizer(FIRST_SYSTEM_ONLY))
    messages = [
        said("user", "Hi"),
        said("assistant", "Hello"),
        said("system", "Use French."),
        said("user", "Bye"),
    ]
    assert renderer.prompt(messages, None).text.startswith(
        "<|im_start|>user\nUse French.\n\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
    )


def test_a_tool_result_that_the_template_drops_is_refused_by_its_place() -> None:
    renderer = Renderer(tiny_tokenizer(FIRST_SYSTEM_ONLY))
    with pytest.raises(RequestRefused) as caught:
        renderer.prompt([said("user", "Hi"), said("tool", "42"), said("user", "So?")], None)
    assert caught.value.param == "messages[1]"


@pytest.mark.parametrize("result", ['{"a": 1}', "two\nlines", 'a "word"', "größer"])
def test_a_result_that_the_template_writes_as_json_counts_as_said(result: str) -> None:
    renderer = Renderer(tiny_tokenizer(JSON_RESULTS))
    assert renderer.prompt([said("user", "Hi"), said("tool", result)], None).text.count("<|im_start|>") == 2


@pytest.mark.parametrize(
    "function",
    [
        {"name": "now"},
        {"name": "now", "parameters": None},
        {"name": "now", "parameters": {}},
        {"name": "now", "parameters": {"type": "object"}},
        {"name": "now", "parameters": {"type": "object", "properties": {}}},
    ],
)
@pytest.mark.parametrize("template", [None, CHATML_TOOLS])
def test_a_tool_without_parameters_renders_as_its_spelled_out_schema(
    function: dict[str, Any], template: str | None
) -> None:
    renderer = Renderer(tiny_tokenizer(template) if template else tiny_tokenizer())
    text = renderer.prompt([said("user", "Hi")], [{"type": "function", "function": function}]).text
    assert '"parameters": {"type": "object", "properties": {}}' in text


@pytest.mark.parametrize(
    "function", [{"name": "now"}, *({"name": "now", "arguments": no} for no in ("", None, {}))]
)
@pytest.mark.parametrize("template", [None, CHATML_TOOLS])
def test_a_call_without_arguments_renders_as_an_empty_object(
    function: dict[str, Any], template: str | None
) -> None:
    renderer = Renderer(tiny_tokenizer(template) if template else tiny_tokenizer())
    call = {"id": "call_1", "type": "function", "function": function}
    messages = [
        said("user", "Hi"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        said("tool", "12:00"),
    ]
    assert '{"name": "now", "arguments": {}}' in renderer.prompt(messages, None).text


def test_arguments_given_as_an_object_are_json_where_the_template_concatenates_them() -> None:
    renderer = Renderer(
        tiny_tokenizer(CHATML_TOOLS.replace("{% else %}{{ call.function.arguments | tojson }}", ""))
    )
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": {"a": True, "b": "é"}},
    }
    messages = [
        said("user", "Hi"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        said("tool", "1"),
    ]
    assert '"arguments": {"a": true, "b": "é"}}' in renderer.prompt(messages, None).text
