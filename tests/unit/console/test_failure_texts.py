"""Refusals of the server in the page's language."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import strop
from strop.console.failure_texts import SENTENCES, translated
from strop.console.words import say_in

SAID = [
    ("no job 'ft-1' in this database", "数据库中没有任务 'ft-1'"),
    ("no file 'file-9'", "没有文件 'file-9'"),
    ("no file in the request", "请求中没有文件"),
    (
        "job 'ft-1' is RUNNING; only a job that has ended can be deleted",
        "任务 'ft-1' 为 RUNNING；只能删除已结束的",
    ),
    ("job 'a b' is FAILED and cannot be paused", "任务 'a b' 处于 FAILED，不能暂停"),
    ("job 'ft-1' has no trajectory 'a' at step 3", "任务 'ft-1' 在第 3 步没有轨迹 'a'"),
    ("the API key has been revoked", "API 密钥已吊销"),
    ("from PENDING it can go to: QUEUING, CANCELED", "从 PENDING 可以变为：QUEUING, CANCELED"),
    ("there is no model 'x' in the table", "there is no model 'x' in the table（服务原文）"),
    ("the disk is full", "the disk is full（服务原文）"),
    ("", ""),
]


@pytest.mark.parametrize(("english", "chinese"), SAID)
def test_a_refusal_is_told_in_the_pages_language_or_marked_as_the_servers_words(english: str, chinese: str):
    assert translated(english, say_in("zh")) == chinese
    assert translated(english, say_in("en")) == english


def test_every_sentence_of_the_catalogue_is_one_that_the_server_says():
    root = Path(strop.__file__).parent
    said = {
        skeleton
        for folder in ("store", "doors", "service", "workers", "console")
        for path in (root / folder).rglob("*.py")
        if path.name != "failure_texts.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (skeleton := _skeleton(node)) is not None
    }
    assert {english for english in SENTENCES if re.sub(r"{\w+}", "{}", english) not in said} == set()


def test_a_translation_names_what_its_sentence_names():
    for english, chinese in SENTENCES.items():
        assert set(re.findall(r"{(\w+)}", chinese)) <= set(re.findall(r"{(\w+)}", english)), english


def _skeleton(node: ast.AST) -> str | None:
    """A text of the code with `{}` for what it names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None
