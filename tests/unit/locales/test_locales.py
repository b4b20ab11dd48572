from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from strop.errors import DataError, Problem, TrainingError, told_of
from strop.locales import (
    FromOldStore,
    Message,
    as_json,
    environment_language,
    joined,
    kept,
    msg,
    plural,
    rendered,
)
from strop.schema.job import Event

NOTE = msg("step {step}", step=18)
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def chinese(text: str) -> str:
    return rendered(text, "zh")


def test_it_is_the_english_sentence_for_whoever_knows_nothing_of_languages():
    assert NOTE == "step 18"
    assert json.dumps([NOTE, f"{NOTE}."]) == '["step 18", "step 18."]'
    assert type(str(NOTE)) is str


def test_it_comes_back_whole_from_where_it_was_copied_sent_or_kept():
    for again in (
        copy.deepcopy(NOTE),
        pickle.loads(pickle.dumps(NOTE)),
        kept(str(NOTE), as_json(NOTE)),
    ):
        assert (again, chinese(again)) == ("step 18", "第 18 步")


def test_messages_in_messages_are_said_in_the_reader_s_language_and_kept():
    outer = msg("{title} has ended", title=NOTE) + ", " + plural("{count} row", "{count} rows", count=1)
    assert outer == "step 18 has ended, 1 row"
    assert chinese(kept(str(outer), as_json(outer))) == "第 18 步：已结束, 1 row"
    assert chinese(joined("; ", NOTE, "Traceback")) == "第 18 步; Traceback"


def test_what_has_no_chinese_stands_as_it_is():
    assert (chinese("Traceback"), as_json("Traceback"), as_json(None)) == ("Traceback", None, None)
    assert (chinese(msg("no such sentence")), chinese(msg(""))) == ("no such sentence", "")


@pytest.mark.parametrize("value", [None, [1, "a"], {"a": 1.5}, "text", 3, True, Path("/a"), Decimal("1.5")])
def test_parameters_are_formatted_as_the_code_would_have(value: object):
    assert msg("found {value}", value=value) == f"found {value}"


def test_a_parameter_that_is_a_dict_comes_back_from_a_store():
    for value in ({"a": 1}, {"params": 3}, {"id": "{x}"}):
        told = msg("step {step}", step=value)
        assert kept(str(told), as_json(told)) == f"step {value}"
        assert chinese(kept(str(told), as_json(told))) == f"第 {value} 步"


def test_what_an_older_store_kept_in_chinese_is_still_told():
    for stored in ("共 18 步", '"18"', "{}"):
        old = kept("18 steps", stored)
        assert isinstance(old, FromOldStore)
        assert (old, chinese(old), rendered(old, "fr")) == ("18 steps", stored, "18 steps")


def test_an_event_keeps_its_parameters_and_gives_the_sentence_that_is_asked_for():
    event = Event(job_id="ft-1", kind="planned", message=NOTE, created_at=NOW)
    assert (event.message_in("en"), event.message_in("zh")) == ("step 18", "第 18 步")
    assert Event.model_validate(event.model_dump()) == event
    old = Event(job_id="ft-1", kind="planned", message="18 steps", created_at=NOW)
    assert old.message_in("zh") == "18 steps"


def test_an_error_is_told_with_its_fix():
    told = told_of(TrainingError(NOTE, fix=msg("lower critic_warmup")))
    assert told == "step 18\n  fix: lower critic_warmup"
    assert chinese(told) == "第 18 步\n  修正：减小 critic_warmup"
    assert isinstance(told, Message)
    refused = told_of(DataError("rows.jsonl", [Problem(place="1", message=NOTE, fix="no")]))
    assert refused == "rows.jsonl: 1 problem\n  1: step 18 (no)"
    assert chinese(refused) == "rows.jsonl：1 个问题\n  1：第 18 步（no）"
    assert (told_of(ValueError("3")), told_of(ValueError())) == ("3", "ValueError")


@pytest.mark.parametrize(
    ("set_", "language"),
    [({"LANG": "zh_CN.UTF-8"}, "zh"), ({"STROP_LANG": "en", "LANG": "zh_CN"}, "en"), ({}, "en")],
)
def test_the_language_of_a_terminal_is_the_environment_s(monkeypatch, set_, language):
    for name in ("STROP_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    assert environment_language() == language
