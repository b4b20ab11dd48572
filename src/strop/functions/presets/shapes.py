"""Answer -> 1 or 0 for its form alone: tags, JSON, and whether it answers at all."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import Field

from strop.functions.presets.answer import Answer, Scored, text_of

NEEDS = {"json_schema": ("jsonschema",)}

REFUSALS = (
    "i cannot",
    "i can't",
    "i can not",
    "i am unable",
    "i'm unable",
    "i am not able",
    "i'm not able",
    "i'm sorry",
    "i am sorry",
    "sorry, ",
    "as an ai",
    "抱歉",
    "对不起",
    "很遗憾",
    "我不能",
    "我无法",
    "作为一个ai",
    "作为一个人工智能",
    "作为人工智能",
)
"""How refusals begin, in small letters."""


def format_match(
    answer: str | Answer,
    *,
    tags: Annotated[
        Sequence[str],
        Field(description="`[think, answer]`: exactly these, once each, in order, filled, nothing outside"),
    ] = (),
    pattern: Annotated[
        str | None, Field(min_length=1, description="instead of tags: what the whole answer must match")
    ] = None,
    limit_s: Annotated[float, Field(gt=0, le=60, description="seconds of matching; past them it is 0")] = 1.0,
) -> float:
    """1 for an answer of the given form, whatever it says.

    >>> format_match("<think>2+2</think> <answer>4</answer>", tags=["think", "answer"])
    1.0
    >>> format_match("<answer>4</answer><answer>5</answer>", tags=["answer"])
    0.0
    """
    text = text_of(answer).strip()
    if pattern is None:
        return float(_is_tagged(text, tags))
    import regex

    try:
        return float(bool(text) and regex.fullmatch(pattern, text, regex.DOTALL, timeout=limit_s) is not None)
    except TimeoutError:
        return Scored(0.0, timed_out=1.0)


def check_format_match(params: dict[str, Any]) -> str | None:
    """What is wrong with the parameters beyond their types."""
    tags, pattern = cast("Sequence[str]", params["tags"]), params["pattern"]
    if bool(tags) == (pattern is not None):
        return "tags: give tags or a pattern, one of them"
    for tag in tags:
        if not tag.replace("_", "").replace("-", "").isalnum():
            return f"tags: {tag!r} is no name; write it without brackets"
    if pattern is not None:
        import regex

        try:
            regex.compile(pattern)
        except regex.error as error:
            return f"pattern: no regular expression: {error}"
    return None


def json_schema(
    answer: str | Answer,
    *,
    schema: Annotated[dict[str, Any], Field(description="JSON Schema, draft 2020-12")],
    fenced: Annotated[
        bool, Field(description="the JSON may stand in a ``` block; else it is the whole answer")
    ] = True,
) -> float:
    """1 for an answer that is JSON and fits the schema.

    >>> json_schema('```json\\n{"a": 1}\\n```', schema={"type": "object", "required": ["a"]})
    1.0
    """
    from jsonschema import Draft202012Validator, ValidationError
    from referencing import Registry

    try:
        value = _parsed(_unfenced(text_of(answer)) if fenced else text_of(answer))
        # Without a registry a $ref to an address would be fetched.
        Draft202012Validator(schema, registry=Registry()).validate(value)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    except (ValueError, ValidationError, RecursionError):
        return 0.0
    return 1.0


def check_json_schema(params: dict[str, Any]) -> str | None:
    """What is wrong with the parameters beyond their types."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(params["schema"])
    except SchemaError as error:
        return f"schema: no JSON Schema: {error.message}"
    return None


def answered(
    answer: str | Answer,
    *,
    least: Annotated[int, Field(ge=1, description="letters and digits that an answer has at least")] = 1,
    refusals: Annotated[
        Sequence[str], Field(description="beginnings, in any letter case, that make it a refusal")
    ] = REFUSALS,
) -> float:
    """1 for an answer, 0 for none: empty, only marks and spaces, or a refusal.

    >>> answered("Paris"), answered(" \\u200b…!"), answered("I'm sorry, but no"), answered("抱歉，我不能")
    (1.0, 0.0, 0.0, 0.0)
    """
    text = unicodedata.normalize("NFKC", text_of(answer)).casefold().replace("’", "'")
    written = sum(unicodedata.category(letter)[0] in "LN" for letter in text)
    begins = text.lstrip(" \t\r\n*#>_`\"'“‘")
    refused = any(begins.startswith(one.casefold()) for one in refusals)
    return float(written >= least and not refused)


def _is_tagged(text: str, tags: Sequence[str]) -> bool:
    position = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        begin, end = text.index(opening), text.index(closing)
        inside = text[begin + len(opening) : end]
        outside = text[position:begin]
        if end < begin or outside.strip() or not inside.strip():
            return False
        if any(f"<{other}>" in inside or f"</{other}>" in inside for other in tags):
            return False
        position = end + len(closing)
    return bool(tags) and not text[position:].strip()


def _unfenced(text: str) -> str:
    """The one block of a text; the text itself where there is none, or where there are several."""
    parts = text.split("```")
    if len(parts) != 3:
        return text
    first, newline, rest = parts[1].partition("\n")
    return rest if newline and first.strip().lower() in ("", "json") else parts[1]


def _parsed(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
