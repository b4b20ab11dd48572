"""One line of JSON -> what it teaches, still as text, or everything that is wrong with it.

Three forms of row: a conversation whose answers are taught (SFT), a conversation with answers of which some
are better (DPO), a text (continued pre-training). For `data.examples`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

from strop.data.row_json import BadLine, parse_line
from strop.data.rows import (
    ANSWERABLE,
    Row,
    id_problems,
    kind_of,
    message_problems,
    one_message,
    strange_keys,
    tool_problems,
)
from strop.errors import Problem
from strop.locales import msg
from strop.schema.training import TrainingType

WEIGHTS = ("weight", "loss_weight")
"""OpenAI's name for what a message weighs in the loss, and Bailian's and Ark's."""

MAX_CANDIDATES = 5

_COLUMNS = {
    TrainingType.SFT: ("messages", "tools", "sample_id"),
    TrainingType.DPO: ("messages", "tools", "sample_id", "chosen", "rejected"),
    TrainingType.CPT: ("text", "sample_id"),
}


_EXAMPLES = {
    TrainingType.SFT: '{"messages": [{"role": "user", ...}, {"role": "assistant", ...}]}',
    TrainingType.DPO: '{"messages": [{"role": "user", ...}], "chosen": "It is 4.", "rejected": "No idea."}',
    TrainingType.CPT: '{"text": "..."}',
}
_ANSWER_EXAMPLE = 'a text, or {"role": "assistant", "content": "It is 4."}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One answer among several. `lm_weight`: what its tokens weigh in the loss of plain imitation."""

    message: Row
    score: float
    lm_weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRow:
    """A row that can be used. `weights` holds one for each assistant message, by its index.

    DPO rows have `candidates` to answer `messages`; rows of plain text have `text` and no messages.
    """

    row_id: str
    row: int = 0
    messages: list[Row]
    tools: list[Row] | None = None
    weights: dict[int, float]
    candidates: tuple[Candidate, ...] = ()
    text: str = ""


def read_offline_row(
    line: bytes, place: str, *, row: int, file_stem: str, form: TrainingType
) -> tuple[OfflineRow | None, list[Problem], list[str]]:
    """Check one row.

    Returns:
        The row, or None if it is bad; its problems; keys that nothing reads.
    """
    try:
        value = parse_line(line)
    except BadLine as error:
        return None, [Problem(place=place, message=str(error), fix=error.fix)], []
    if not isinstance(value, dict):
        message = f"expected a JSON object, found {kind_of(value)}"
        return None, [Problem(place=place, message=message, fix=_EXAMPLES[form])], []
    record = cast("Row", value)
    typos, unread = strange_keys(record, place, _COLUMNS[form])
    own_id = record.get("sample_id")
    row_id = f"{file_stem}-{row}" if own_id is None else str(own_id)
    read = {TrainingType.SFT: _conversation, TrainingType.DPO: _preference}.get(form, _text)
    made, problems = read(record, place, row_id)
    problems = [*problems, *id_problems(record, place), *typos]
    return (None, problems, []) if problems else (replace(made, row=row), [], unread)


def _text(record: Row, place: str, row_id: str) -> tuple[OfflineRow, list[Problem]]:
    text = record.get("text")
    if not isinstance(text, str):
        found = f"expected text, found {kind_of(text)}" if "text" in record else "missing"
        return _nothing(row_id), [
            Problem(place=place, message=msg("text: {found}", found=found), fix='{"text": "A paragraph."}')
        ]
    if not text.strip():
        return _nothing(row_id), [Problem(place=place, message=msg("text: empty"), fix=msg("remove the row"))]
    return OfflineRow(row_id=row_id, messages=[], weights={}, text=text), []


def _conversation(record: Row, place: str, row_id: str) -> tuple[OfflineRow, list[Problem]]:
    problems = [
        *message_problems(record, place, last=("assistant",)),
        *tool_problems(record.get("tools"), place),
    ]
    if problems:
        return _nothing(row_id), problems
    weights: dict[int, float] = {}
    messages: list[Row] = []
    for index, message in enumerate(cast("list[Row]", record["messages"])):
        weight, complaint = _weight(message, f"messages[{index}]", place)
        problems += complaint
        if message["role"] == "assistant":
            weights[index] = weight
        messages.append({key: value for key, value in message.items() if key not in WEIGHTS})
    if not problems and not any(weights.values()):
        message = "messages: every answer has weight 0, so nothing is learned"
        problems.append(
            Problem(place=place, message=message, fix=msg("remove the row, or give one a weight"))
        )
    tools = record.get("tools") or None
    return OfflineRow(row_id=row_id, messages=messages, tools=tools, weights=weights), problems


def _weight(message: Row, field: str, place: str) -> tuple[float, list[Problem]]:
    """What a message weighs: 1 for answers unless it says so; others have none."""
    given = [name for name in WEIGHTS if name in message]
    if not given:
        return 1.0, []
    if len(given) > 1:
        text = f"{field}: 'weight' and 'loss_weight' are the same setting"
        return 1.0, [Problem(place=place, message=text, fix=msg("keep one of them"))]
    value = message[given[0]]
    if not _is_number(value, 0.0, 1.0):
        text = f"{field}.{given[0]}: expected a number from 0 to 1, found {kind_of(value)}"
        return 1.0, [Problem(place=place, message=text)]
    if message["role"] != "assistant" and value:
        text = (
            f"{field}.{given[0]}: only answers of the assistant are taught, this is from {message['role']!r}"
        )
        return 1.0, [Problem(place=place, message=text, fix=msg("remove it"))]
    return float(value), []


def _preference(record: Row, place: str, row_id: str) -> tuple[OfflineRow, list[Problem]]:
    """Take the answers out of a row, in whichever of the forms it has them, and check what is left."""
    prompt = dict(record)
    messages = record.get("messages")
    entries = cast("list[object]", messages) if isinstance(messages, list) else []
    last = cast("Row", entries[-1]) if entries and isinstance(entries[-1], dict) else {}
    if "chosen" in record or "rejected" in record:
        candidates, problems = _pair(record, "", place)
    elif last.get("role") == "assistant":
        prompt["messages"] = entries[:-1]
        field = f"messages[{len(entries) - 1}]"
        if "chosen" in last or "rejected" in last:
            candidates, problems = _pair(last, f"{field}.", place)
        else:
            candidates, problems = _scored(last, field, place)
    else:
        fix = 'e.g. "chosen": "It is 4.", "rejected": "No idea."'
        candidates, problems = (), [Problem(place=place, message=msg("chosen: missing"), fix=fix)]
    problems = [
        *message_problems(prompt, place, last=ANSWERABLE),
        *tool_problems(record.get("tools"), place),
        *problems,
    ]
    if problems:
        return _nothing(row_id), problems
    made = OfflineRow(
        row_id=row_id,
        messages=cast("list[Row]", prompt["messages"]),
        tools=record.get("tools") or None,
        weights={},
        candidates=candidates,
    )
    return made, []


def _pair(holder: Row, field: str, place: str) -> tuple[tuple[Candidate, ...], list[Problem]]:
    """`chosen` and `rejected`: each a text, or an assistant message."""
    problems: list[Problem] = []
    candidates: list[Candidate] = []
    for name, score in (("chosen", 1.0), ("rejected", 0.0)):
        message, complaints = _answer(holder.get(name), f"{field}{name}", place)
        problems += complaints
        candidates.append(Candidate(message=message, score=score))
    if not problems and candidates[0].message == candidates[1].message:
        text = f"{field}chosen: equals rejected, so neither is preferred"
        problems.append(Problem(place=place, message=text, fix=msg("remove the row")))
    return tuple(candidates), problems


def _answer(value: object, field: str, place: str) -> tuple[Row, list[Problem]]:
    if value is None:
        return {}, [Problem(place=place, message=msg("{field}: missing", field=field), fix=_ANSWER_EXAMPLE)]
    entry: object = value
    if isinstance(value, str):
        entry = {"role": "assistant", "content": value}
    elif isinstance(value, dict):
        entry = {"role": "assistant", **cast("Row", value)}
    problems = one_message(entry, field, place, example=_ANSWER_EXAMPLE)
    message = cast("Row", entry) if not problems else {}
    if message and message["role"] != "assistant":
        text = f"{field}.role: expected 'assistant', found {message['role']!r}"
        problems = [Problem(place=place, message=text)]
    return message, problems


def _scored(last: Row, field: str, place: str) -> tuple[tuple[Candidate, ...], list[Problem]]:
    """Ark's candidates: `choices` of messages, or a `content` list of texts, each with a score."""
    name = "choices" if "choices" in last else "content"
    entries = last.get(name)
    if not isinstance(entries, list):
        fix = f"give it chosen and rejected, or choices: 2 to {MAX_CANDIDATES} answers with scores"
        return (), [
            Problem(
                place=place, message=msg("{field}: a single answer is not a preference", field=field), fix=fix
            )
        ]
    items = cast("list[object]", entries)
    if not 2 <= len(items) <= MAX_CANDIDATES:
        text = f"{field}.{name}: expected 2 to {MAX_CANDIDATES} candidates, found {len(items)}"
        return (), [Problem(place=place, message=text)]
    candidates: list[Candidate] = []
    problems: list[Problem] = []
    for index, item in enumerate(items):
        candidate, complaints = _candidate(item, f"{field}.{name}[{index}]", place)
        candidates.append(candidate)
        problems += complaints
    return tuple(candidates), problems


def _candidate(item: object, field: str, place: str) -> tuple[Candidate, list[Problem]]:
    nothing = Candidate(message={}, score=0.0)
    if not isinstance(item, dict):
        text = f"{field}: expected an object, found {kind_of(item)}"
        return nothing, [Problem(place=place, message=text, fix='{"content": "...", "score": 0.7}')]
    values = dict(cast("Row", item))
    unscored = "score" not in values
    score: Any = values.pop("score", 0.0)
    mask: Any = values.pop("lm_loss_mask", 0)
    weight: Any = values.pop("loss_weight", 1)
    if "text" in values:
        values["content"] = values.pop("text")
    message, problems = _answer(values, field, place)
    if unscored or not _is_number(score, 0.0, 1.0):
        found = "missing" if unscored else f"expected a number from 0 to 1, found {kind_of(score)}"
        problems.append(Problem(place=place, message=msg("{field}.score: {found}", field=field, found=found)))
    if mask not in (0, 1):
        text = f"{field}.lm_loss_mask: expected 0 or 1, found {kind_of(mask)}"
        problems.append(Problem(place=place, message=text))
    if not _is_number(weight, 0.0, 1.0):
        text = f"{field}.loss_weight: expected a number from 0 to 1, found {kind_of(weight)}"
        problems.append(Problem(place=place, message=text))
    if problems:
        return nothing, problems
    return Candidate(message=message, score=float(score), lm_weight=float(mask * weight)), []


def _is_number(value: Any, low: float, high: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
    )


def _nothing(row_id: str) -> OfflineRow:
    return OfflineRow(row_id=row_id, messages=[], weights={})
