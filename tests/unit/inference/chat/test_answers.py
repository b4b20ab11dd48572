"""Which tokens of a conversation are the model's to say: asked of real chat templates."""

import pytest

from fakes.tokenizer import CHATML, CHATML_TOOLS, tiny_tokenizer
from strop.errors import ModelError
from strop.inference.chat.answers import TextTokens
from strop.inference.chat.errors import RequestRefused

CHATML_DROPS_EARLIER_THINKING = CHATML.replace(
    "message['content'] +",
    "(message['content'].split('</think>')[-1] if not loop.last else message['content']) +",
)
"""As Qwen3: the answer being given keeps its thinking, those before lose theirs."""


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def said(text: str) -> dict:
    return {"role": "assistant", "content": text}


def tokens(template: str = CHATML) -> TextTokens:
    return TextTokens(tiny_tokenizer(template), end_ids={2})


def text(ids) -> str:
    return tiny_tokenizer().decode(list(ids))


def test_an_answer_is_what_follows_the_generation_prompt_up_to_the_token_that_ends_the_turn() -> None:
    one, two = tokens().answers([user("hello"), said("42."), user("again"), said("43.")], None)
    assert text(one.prompt_ids) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert text(one.completion_ids) == "42.<|im_end|>"
    assert (one.index, two.index, one.whole, two.whole) == (1, 3, True, True)
    assert text(two.completion_ids) == "43.<|im_end|>"
    grown = (*one.prompt_ids, *one.completion_ids)
    assert two.prompt_ids[: len(grown)] == grown
    assert (
        text(two.prompt_ids[len(grown) :]) == "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_answer_that_quotes_the_question_or_the_template_does_not_shift_the_mask() -> None:
    quoting = "assistant\nhello<|im_end|> hello"
    [one] = tokens().answers([user("hello"), said(quoting)], None)
    assert text(one.completion_ids) == f"{quoting}<|im_end|>"
    assert text(one.prompt_ids).endswith("<|im_start|>assistant\n")


def test_where_earlier_thinking_is_dropped_each_answer_has_the_context_it_is_asked_in() -> None:
    messages = [user("1"), said("<think>so</think>2"), user("3"), said("<think>oh</think>4")]
    one, two = tokens(CHATML_DROPS_EARLIER_THINKING).answers(messages, None)
    assert text(one.completion_ids) == "<think>so</think>2<|im_end|>"
    assert text(two.completion_ids) == "<think>oh</think>4<|im_end|>"
    assert "so" not in text(two.prompt_ids)
    assert text(two.prompt_ids).startswith(
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>"
    )
    assert (one.whole, two.whole) == (True, True)


def test_an_answer_that_the_template_shortens_is_told() -> None:
    shortens = CHATML.replace("message['content'] +", "message['content'].split('</think>')[-1] +")
    [one] = tokens(shortens).answers([user("1"), said("<think>so</think>2")], None)
    assert text(one.completion_ids) == "2<|im_end|>"
    assert not one.whole


def test_tool_calls_are_answers_and_their_results_are_not() -> None:
    call = {"type": "function", "function": {"name": "calculator", "arguments": '{"a": 1}'}}
    messages = [
        user("1?"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "2"},
        said("2"),
    ]
    tool = {"type": "function", "function": {"name": "calculator", "parameters": {}}}
    one, two = tokens(CHATML_TOOLS).answers(messages, [tool])
    assert text(one.completion_ids) == (
        '<tool_call>\n{"name": "calculator", "arguments": {"a": 1}}\n</tool_call><|im_end|>'
    )
    assert text(two.completion_ids) == "2<|im_end|>"
    assert text(one.prompt_ids).startswith("<|im_start|>system\n# Tools\n")


def test_a_template_that_asks_otherwise_than_it_renders_is_refused() -> None:
    thinks = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>")
    with pytest.raises(RequestRefused, match="in other words than those it renders one with"):
        tokens(thinks).answers([user("1"), said("2")], None)


def test_a_text_ends_with_the_end_token_and_needs_no_chat_template() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    plain = TextTokens(tokenizer, end_ids={2})
    ids = plain.text("Having a calculator")
    assert text(ids) == "Having a calculator<|im_end|>"
    with pytest.raises(ModelError, match="no chat template"):
        plain.answers([user("1"), said("2")], None)
