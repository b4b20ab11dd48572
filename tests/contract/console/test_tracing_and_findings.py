from __future__ import annotations

import re
from datetime import UTC, datetime

import httpx
import pytest

from contract.console.test_job_pages import keys_of, text_of
from fakes.console import HOSTILE
from fakes.server import Server
from strop.console.job_tracing import traces_of
from strop.locales import FromOldStore
from strop.schema.finding import Curve, Evidence, Finding, Severity, Text, Witness
from strop.schema.job import Event
from strop.schema.span import CALLER_SCOPE, GATEWAY_SCOPE, Span, SpanKind, SpanStatus, arrange
from strop.store.events import record_event
from strop.store.findings import record_finding
from strop.store.spans import record_spans

ROLLOUT = "1-train-0-r1"


def span(name: str, kind: SpanKind, parent: str | None, start: int, took: int, **more: object) -> Span:
    values = {
        "trace_id": "t1", "span_id": name, "parent_span_id": parent, "name": name, "kind": kind,
        "status": SpanStatus.OK, "start_ns": start * 10**9, "duration_ns": took * 10**9,
        "rollout_id": ROLLOUT,
    }  # fmt: skip
    return Span(**{**values, **more})  # type: ignore[arg-type]


SPANS = [
    span("entry", SpanKind.ROLLOUT, None, 100, 8),
    span("chat", SpanKind.LLM, "entry", 101, 2, attributes={"gen_ai.output.messages": HOSTILE}),
    span("add", SpanKind.TOOL, "entry", 104, 4, status=SpanStatus.ERROR, message="no such number",
         attributes={"gen_ai.tool.call.arguments": '{"a": 2}'}),
]  # fmt: skip


def test_a_span_lies_in_the_waterfall_where_and_as_long_as_it_took():
    ((entry, chat, add),) = traces_of(arrange(SPANS))
    assert [(row.label, row.depth, row.x, row.width) for row in (entry, chat, add)] == [
        ("ENTRY:ROLLOUT", 0, 0.0, 100.0),
        ("LLM", 1, 12.5, 25.0),
        ("TOOL", 1, 50.0, 50.0),
    ]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tracing_shows_the_tree_with_arguments_and_errors_and_escapes_them(
    server: Server, browser: httpx.Client, language: str
):
    with server.database.write() as session:
        record_spans(session, "ft-1", SPANS)
    (key,) = keys_of(browser.get(f"/console/jobs/ft-1/rollouts?rollout={ROLLOUT}").text)
    page = browser.get(
        f"/console/jobs/ft-1/trajectories/{key}/tracing", headers={"accept-language": language}
    ).text
    shown = text_of(page)
    assert re.search(r"entry .*chat .*add ✕ no such number", shown)
    assert '{ "a": 2 }' in shown
    assert HOSTILE in shown
    assert "<script>window" not in page
    assert re.findall(r'<td class="(d\d)">', page) == ["d0", "d1", "d1"]


def test_without_spans_the_page_says_how_to_get_them(browser: httpx.Client):
    (key,) = keys_of(browser.get("/console/jobs/ft-2/rollouts?rollout=1-train-0-r0").text)
    assert "trace_client" in browser.get(f"/console/jobs/ft-2/trajectories/{key}/tracing").text


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "P1 · Not converging steps 2 – now flat reward Why:"),
        ("zh", "P1 · 不收敛 步 2 – 至今 奖励不动 原因"),
    ],
)
def test_findings_stand_on_the_job_s_page_with_cause_advice_and_evidence(
    server: Server, browser: httpx.Client, language: str, words: str
):
    now = datetime.now(UTC)
    found = Finding(
        job_id="ft-1", rule="P1", severity=Severity.WARNING, first_step=2, last_step=3,
        summary=Text(en="flat reward", zh="奖励不动"), created_at=now, updated_at=now,
        evidence=Evidence(
            curves=[
                Curve(name="critic/rewards/mean", points=[(2, 0.2), (3, 0.2)]),
                Curve(name="actor/ppo_kl", points=[(1, 0.0), (2, 0.05), (3, 0.2)], healthy=(None, 0.1)),
            ],
            trajectories=[Witness(rollout_id=ROLLOUT, step=1, note=HOSTILE)],
            numbers={"slope": 0.0},
        ),
    )  # fmt: skip
    noted = FromOldStore("a finding began", "诊断开始")
    event = Event(job_id="ft-1", kind="finding", message=noted, created_at=now)
    with server.database.write() as session:
        record_finding(session, found)
        record_event(session, event)
    page = browser.get("/console/jobs/ft-1", headers={"accept-language": language}).text
    shown = text_of(page)
    assert words in shown
    assert {"en": "a finding began", "zh": "诊断开始"}[language] in shown
    assert {"zh": "a finding began", "en": "诊断开始"}[language] not in shown
    assert "2: 0.2, 3: 0.2" in shown
    assert (
        '<rect y="50.0" width="100" height="50.0"/><polyline points="0.0,100.0 50.0,75.0 100.0,0.0"/>' in page
    )
    assert f"rollouts?step=1&amp;rollout={ROLLOUT}" in page
    assert "<script>window" not in page


CALLS = [
    span("root", SpanKind.CHAIN, None, 100, 8, scope=GATEWAY_SCOPE),
    span("call", SpanKind.LLM, "root", 102, 2, scope=GATEWAY_SCOPE),
    span("invoke_rollout Agent", SpanKind.ROLLOUT, "root", 101, 6, scope=CALLER_SCOPE),
    span("invoke_reward Right", SpanKind.REWARD, "root", 108, 2, scope=CALLER_SCOPE),
    span("invoke_reward Brief", SpanKind.GROUP_REWARD, "group", 110, 1, trace_id="t2", scope=CALLER_SCOPE),
]  # fmt: skip


def test_a_function_without_decorators_has_its_entry_reward_and_group_reward_in_the_waterfall():
    mine, group = traces_of(arrange(CALLS))
    assert [(row.label, row.depth, row.x, row.width) for row in mine] == [
        ("CHAIN", 0, 0.0, 80.0),
        ("ENTRY:ROLLOUT", 1, 10.0, 60.0),
        ("LLM", 2, 20.0, 20.0),
        ("REWARD", 1, 80.0, 20.0),
    ]
    assert [(row.label, row.depth) for row in group] == [("GROUP_REWARD", 0)]
