"""Pydantic's error -> one sentence a field, for texts that go to people and logs."""

from __future__ import annotations

from pydantic import ValidationError


def validation_text(error: ValidationError, *, show_values: bool) -> str:
    """Name each field and what is wrong with it, joined with `; `.

    With `show_values=False` nothing of the input is repeated: an input holds API keys.
    """
    sentences: list[str] = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        place = ".".join(str(part) for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ")
        if not show_values and detail["type"] == "value_error":
            message = message.partition(", found")[0]
        sentences.append(f"{place}: {message}" if place else message)
    return "; ".join(sentences)
