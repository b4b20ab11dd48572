"""Messages -> prompt ids, keeping every id that was sampled earlier in the conversation.

The template renders text; ids are made from it only where none exist yet. If the text begins with what an
earlier turn saw and answered, that turn's own ids stand for this part, whatever a tokenizer would make of
the text.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.errors import ModelError
from strop.inference.chat.controls import NOTHING, ControlTokens, Rendered
from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.messages import (
    for_template,
    in_plain_turns,
    is_told,
    left_out_error,
    tools_for_template,
    with_instructions_merged,
)
from strop.locales import msg

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_SHOWN = 60
"""Characters of either text in the warning about a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered request: the template's text, special tokens included, and the ids the engine gets.

    `kept_ids` is False when the conversation goes on from an earlier turn but its ids could not be kept.
    """

    text: str
    token_ids: tuple[int, ...]
    kept_ids: bool = True
    rendered: Rendered = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixEntry:
    """What one turn has settled: a text and the very ids that stand for it. `messages` asked for it."""

    text: str
    token_ids: tuple[int, ...]
    messages: Sequence[dict[str, Any]]
    prompt: Rendered = NOTHING

    def begins(self, rendered: Rendered) -> bool:
        """Whether a rendering continues this one: its text, and the same parts of it written by people."""
        return rendered.text.startswith(self.text) and rendered.agrees(self.prompt)


class Renderer:
    """The chat template and the tokenizer of the policy, probed once for what the template can do."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise ModelError(
                msg("the tokenizer has no chat template, so chat messages cannot become a prompt"),
                fix=msg("use an instruction-tuned model, or add chat_template.jinja to the model's folder"),
            )
        self._tokenizer = tokenizer
        self._controls = ControlTokens(tokenizer)
        self._reserved = frozenset(inspect.signature(tokenizer.apply_chat_template).parameters)
        self._has_tools = self._probe_tools()
        self._raw_arguments = self._probe_arguments()
        self._warned = False

    def prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        known: Sequence[PrefixEntry] = (),
        template_kwargs: dict[str, Any] | None = None,
    ) -> Prompt:
        """Render one request, generation prompt included.

        Raises:
            RequestRefused: 400 for messages that this model's template cannot take.
        """
        rendered = self._rendered(messages, tools, template_kwargs or {})
        start, dropped = _start_of(rendered, messages, known)
        if dropped is not None:
            self._warn(rendered.text, dropped)
        token_ids = (*start.token_ids, *self.encode(rendered.rest(len(start.text))))
        return Prompt(text=rendered.text, token_ids=token_ids, kept_ids=dropped is None, rendered=rendered)

    def after(
        self, prompt: Prompt, completion_ids: Sequence[int], messages: Sequence[dict[str, Any]]
    ) -> PrefixEntry:
        """What is known once a turn is finished: its text with special tokens, the end token if sampled."""
        answer = self._decode(completion_ids)
        return PrefixEntry(
            text=prompt.text + answer,
            token_ids=(*prompt.token_ids, *completion_ids),
            messages=messages,
            prompt=prompt.rendered,
        )

    def answered(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Rendered:
        """A conversation that ends with its answer.

        Raises:
            RequestRefused: as `prompt`.
        """
        return self._rendered(messages, tools, {}, generation_prompt=False)

    def token_text(self, token_id: int) -> str:
        """One token as text; half a character shows as U+FFFD."""
        return self._decode([token_id])

    def _rendered(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        kwargs: dict[str, Any],
        *,
        generation_prompt: bool = True,
    ) -> Rendered:
        """
        Raises:
            RequestRefused: 400 for messages that this model's template cannot take, or would leave out.
        """
        tools = self._controls.hide_in_tools(tools_for_template(tools))
        ready = self._ready(messages, tools)
        text = self._apply(ready, tools, kwargs, generation_prompt=generation_prompt)
        if all(is_told(message, text) for message in ready):
            return self._controls.reveal(text)
        ready = with_instructions_merged(ready, text)
        text = self._apply(ready, tools, kwargs, generation_prompt=generation_prompt)
        if not all(is_told(message, text) for message in ready):
            raise left_out_error(ready, text)
        return self._controls.reveal(text)

    def _ready(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
    ) -> list[dict[str, Any]]:
        """What the template is given; one that knows no tools gets them as text."""
        raw_arguments = self._raw_arguments or not self._has_tools
        ready = self._controls.hide(for_template(messages, raw_arguments=raw_arguments))
        return ready if self._has_tools else in_plain_turns(ready, tools)

    def _apply(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        kwargs: dict[str, Any],
        *,
        generation_prompt: bool = True,
    ) -> str:
        if taken := self._reserved & kwargs.keys():
            raise RequestRefused(
                msg("chat_template_kwargs: {taken} cannot be set by a call", taken=", ".join(sorted(taken))),
                param="chat_template_kwargs",
            )
        try:
            text = self._tokenizer.apply_chat_template(
                messages,
                tools=[*tools] if tools else None,
                tokenize=False,
                add_generation_prompt=generation_prompt,
                **kwargs,
            )
        except Exception as error:
            raise RequestRefused(
                msg("the chat template of this model refused the messages: {error}", error=error),
                param="messages",
            ) from error
        return str(text)

    def encode(self, part: Rendered) -> list[int]:
        """Ids of a part of a rendering, nothing added."""
        return self._controls.encode(part)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(
            self._tokenizer.decode(
                list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def _probe_tools(self) -> bool:
        question = [{"role": "user", "content": "probe"}]
        tool = {"type": "function", "function": {"name": "probe_tool", "description": "", "parameters": {}}}
        try:
            return self._apply(question, [tool], {}) != self._apply(question, None, {})
        except RequestRefused:
            return False

    def _probe_arguments(self) -> bool:
        """Whether the template prints argument text as it is; if it would quote it, it wants the object."""
        arguments = '{"probe":  1}'
        call = {
            "id": "call_probe",
            "type": "function",
            "function": {"name": "probe_tool", "arguments": arguments},
        }
        question = {"role": "user", "content": "probe"}
        try:
            text = self._apply(
                [question, {"role": "assistant", "content": "", "tool_calls": [call]}], None, {}
            )
        except RequestRefused:
            return False
        return arguments in text

    def _warn(self, text: str, known: PrefixEntry) -> None:
        if self._warned:
            return
        self._warned = True
        at = next(
            (i for i, (one, other) in enumerate(zip(known.text, text, strict=False)) if one != other),
            min(len(known.text), len(text)),
        )
        logger.warning(
            "a conversation went on, but its earlier text came back changed, so this turn begins a training "
            "sequence of its own (said once; rerendered_prompts counts). First difference at character %d: "
            "sampled %r, now %r. Usual causes: a template that drops earlier thinking, a stop string, an "
            "agent that rewrites its history.",
            at,
            known.text[at : at + _SHOWN],
            text[at : at + _SHOWN],
        )


_NOTHING = PrefixEntry(text="", token_ids=(), messages=())


def _start_of(
    rendered: Rendered, messages: list[dict[str, Any]], known: Sequence[PrefixEntry]
) -> tuple[PrefixEntry, PrefixEntry | None]:
    """The longest known text that a rendering begins with; and the turn that it continues in other words."""
    fitting = [one for one in known if one.begins(rendered)]
    start = max(fitting, key=lambda one: len(one.text), default=_NOTHING)
    longer = [one for one in known if len(one.messages) > len(start.messages) and _goes_on(messages, one)]
    return start, max(longer, key=lambda one: len(one.messages), default=None)


def _goes_on(messages: list[dict[str, Any]], known: PrefixEntry) -> bool:
    """Whether a request is the same conversation as that of `known`, with the answer and more behind it."""
    length = len(known.messages)
    return (
        len(messages) > length
        and messages[:length] == list(known.messages)
        and messages[length].get("role") == "assistant"
    )
