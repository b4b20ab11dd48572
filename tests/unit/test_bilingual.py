from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from strop.bilingual import both, chinese, chinese_of, environment_language
from strop.cli.offline_session import refuse_too_long
from strop.errors import DataError, ModelError, Problem, TrainingError, told_of
from strop.schema.job import Event

NOTE = both("18 steps", "共 18 步")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def test_it_is_the_english_sentence_for_whoever_knows_nothing_of_languages():
    assert NOTE == "18 steps"
    assert json.dumps([NOTE, f"{NOTE}."]) == '["18 steps", "18 steps."]'
    assert type(str(NOTE)) is str


def test_it_comes_back_whole_from_where_it_was_copied_or_sent():
    for again in (copy.deepcopy(NOTE), pickle.loads(pickle.dumps(NOTE))):
        assert (again, again.zh) == ("18 steps", "共 18 步")


def test_what_has_no_chinese_stands_as_it_is():
    assert (chinese("Traceback"), chinese_of("Traceback"), chinese_of(None)) == ("Traceback", None, None)
    longer = both("it failed: ", "失败：") + "Traceback"
    assert (longer, longer.zh) == ("it failed: Traceback", "失败：Traceback")


def test_an_event_keeps_both_and_gives_the_one_that_is_asked_for():
    event = Event(job_id="ft-1", kind="planned", message=NOTE, created_at=NOW)
    assert (event.message_in("en"), event.message_in("zh")) == ("18 steps", "共 18 步")
    assert Event.model_validate(event.model_dump()) == event
    old = Event(job_id="ft-1", kind="planned", message="18 steps", created_at=NOW)
    assert old.message_in("zh") == "18 steps"


def test_an_error_is_told_in_both_languages_with_its_fix():
    told = told_of(TrainingError(both("it failed", "失败"), fix=both("mend it", "修正它")))
    assert (told, chinese(told)) == ("it failed\n  fix: mend it", "失败\n  修正：修正它")
    assert chinese_of(told_of(DataError("rows.jsonl", [Problem(place="1", message="no")]))) is None
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


def test_a_model_that_is_made_for_shorter_texts_is_refused_in_both_languages():
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=64))
    refuse_too_long(model, 64)
    with pytest.raises(ModelError) as refused:
        refuse_too_long(model, 65)
    assert chinese(told_of(refused.value)) == (
        "max_length 65 超出模型支持的 64 个位置\n  修正：把 max_length 设为不超过 64"
    )
