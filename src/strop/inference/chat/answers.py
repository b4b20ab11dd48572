"""Chat rows and plain text -> the very tokens that are taught, with the context they are taught in.

What an answer's tokens are is asked of the chat template, by prefix: the conversation up to the answer, ready
to be answered, is its context; what the template adds when the answer is there is what the model has to say.
No text is ever searched for, so an answer that quotes the question or the template cannot shift a mask.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.render import PrefixEntry, Renderer
from strop.locales import msg
from strop.schema.example import Answer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TextTokens:
    """The tokenizer and chat template of a model. `end_ids` end a turn when they are sampled."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, end_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = frozenset(end_ids)

    @cached_property
    def _renderer(self) -> Renderer:
        """Made when first needed: plain text asks no model for a chat template."""
        return Renderer(self._tokenizer)

    def answers(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> list[Answer]:
        """Every assistant message as tokens, in order.

        A context keeps the ids of earlier answers wherever the template renders them unchanged, as serving
        does. What the template puts after the token that ends a turn is not the model's to say.

        Raises:
            RequestRefused: messages the template cannot take, or a template whose prompt is not how it
                renders an answered conversation.
            ModelError: the tokenizer has no chat template.
        """
        found: list[Answer] = []
        known: list[PrefixEntry] = []
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._renderer.prompt(messages[:index], tools, known)
            answered = self._renderer.answered(messages[: index + 1], tools)
            text = answered.text
            if not answered.agrees(prompt.rendered):
                raise RequestRefused(
                    msg(
                        "messages[{index}]: the chat template asks for an answer in other "
                        "words than those it renders one with ({text!r} is not in "
                        "{text2!r}), so its tokens cannot be told",
                        index=index,
                        text=prompt.text[-40:],
                        text2=text[-160:],
                    )
                )
            if not prompt.token_ids:
                raise RequestRefused(
                    msg("messages[{index}]: the chat template puts nothing before this answer", index=index)
                )
            said = text[len(prompt.text) :]
            completion_ids = self._up_to_the_end(self._renderer.encode(answered.rest(len(prompt.text))))
            whole = all(part in said for part in _spoken(message))
            found.append(
                Answer(index=index, prompt_ids=prompt.token_ids, completion_ids=completion_ids, whole=whole)
            )
            known = [self._renderer.after(prompt, completion_ids, ())]
        return found

    def text(self, text: str) -> tuple[int, ...]:
        """A document: begun as the tokenizer begins one, ended by the end-of-text token, each once."""
        ids: list[int] = self._tokenizer.encode(text, verbose=False)
        begin, end = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        if isinstance(begin, int) and ids[:2] == [begin, begin]:
            ids = ids[1:]
        return (*ids, end) if isinstance(end, int) and ids[-1:] != [end] else tuple(ids)

    def _up_to_the_end(self, ids: list[int]) -> tuple[int, ...]:
        ends = [at for at, token in enumerate(ids) if token in self._end_ids]
        return tuple(ids[: ends[-1] + 1] if ends else ids)


def _spoken(message: dict[str, Any]) -> list[str]:
    """The texts of a message that should be found in its rendering; a template may strip them."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts] + [message.get("reasoning_content")]
    return [text.strip() for text in texts if isinstance(text, str)]
