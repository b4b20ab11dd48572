from __future__ import annotations

import html
import re
from datetime import UTC, datetime

import aiohttp
import httpx
import pytest
import yaml

from contract.console.conftest import csrf
from fakes.console import HOSTILE, record_job
from fakes.server import Server
from strop.locales import FromOldStore
from strop.schema.job import TARGET_REACHED_EVENT, Event, JobStatus, Progress
from strop.store.events import record_event, record_progress
from strop.store.keys import create_key, ensure_workspace

PAGES = (
    "/console/jobs",
    "/console/jobs/ft-1",
    "/console/jobs/ft-1/trajectories",
    "/console/jobs/ft-1/samples",
    "/console/jobs/ft-1/samples?sample=train-0",
    "/console/jobs/ft-1/rollouts",
    "/console/jobs/ft-1/metrics",
    "/console/jobs/ft-1/metrics?naming=ark",
    "/console/jobs/ft-1/logs",
    "/console/jobs/ft-1/output",
    "/console/compare?job=ft-1&job=ft-2",
)


def text_of(page: str) -> str:
    """What a reader sees."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


def keys_of(page: str) -> list[int]:
    return [int(key) for key in dict.fromkeys(re.findall(r"/trajectories/(\d+)\"", page))]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("path", PAGES)
def test_every_page_stands_in_both_languages_and_escapes_what_it_is_told(
    browser: httpx.Client, path: str, language: str
):
    reply = browser.get(path, headers={"accept-language": language})
    assert reply.status_code == 200, text_of(reply.text)
    assert "<script>window" not in reply.text
    assert "<img src=x" not in reply.text
    assert ("退出" in reply.text) == (language == "zh")
    assert not re.search(r'\sstyle="|\son[a-z]+="', reply.text), "inline style or handler"


def test_the_list_finds_by_words_and_status_and_tells_progress(browser: httpx.Client):
    page = browser.get("/console/jobs?q=second&status=RUNNING").text
    assert ("ft-2" in page, "ft-1" in page) == (True, False)
    assert "3/10" in page
    assert "No job fits" in browser.get("/console/jobs?q=second&status=FAILED").text


def test_time_left_is_the_pace_of_the_last_steps_times_those_that_remain(browser: httpx.Client):
    # 7 steps of 2 s each.
    assert "about 14 s left" in text_of(browser.get("/console/jobs/ft-1/state-and-progress").text)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", ("converting m", "validating 12/40", "updating")),
        ("zh", ("转换 m", "验证 12/40", "更新")),
    ],
)
def test_a_job_s_pages_tell_what_it_is_busy_with(
    browser: httpx.Client, server: Server, language: str, said: tuple[str, ...]
):
    job_id, database = f"ft-busy-{language}", server.database
    record_job(database, job_id, num_steps=0, name=job_id)
    preparing = Event(
        job_id=job_id,
        kind="preparing",
        message=FromOldStore("converting m", "转换 m"),
        created_at=datetime.now(UTC),
    )
    notes: list[Event | Progress] = [
        preparing,
        Progress(job_id=job_id, step=0, phase="validation", done=12, total=40),
        Progress(job_id=job_id, step=1, phase="update", done=0, total=1),
        Progress(job_id=job_id, step=1, phase="update", done=1, total=1),
    ]
    shown: list[str] = []
    for note in notes:
        with database.write() as session:
            if isinstance(note, Event):
                record_event(session, note)
            else:
                record_progress(session, note)
        path = f"/console/jobs/{job_id}/state-and-progress"
        shown.append(text_of(browser.get(path, headers={"accept-language": language}).text))
    assert [words in text for words, text in zip(said, shown, strict=False)] == [True] * 3
    assert not any(words in shown[-1] for words in said)


def test_a_run_that_ended_early_says_so_in_both_languages(browser: httpx.Client, server: Server):
    record_job(server.database, "ft-early", name="early", status=JobStatus.SUCCEEDED)
    places = ("/console/jobs/ft-early/state-and-progress", "/console/jobs?q=early")
    for path in places:
        assert "target reached" not in browser.get(path).text
    text = "stopped after step 3 of 10: validation reached its target (0.92, target 0.9)"
    with server.database.write() as session:
        told = Event(job_id="ft-early", kind=TARGET_REACHED_EVENT, message=text, created_at=datetime.now(UTC))
        record_event(session, told)
    for path in places:
        for language, words in (("en", "stopped: target reached"), ("zh", "已停止：达到目标")):
            assert words in text_of(browser.get(path, headers={"accept-language": language}).text)


def test_details_tell_configuration_with_origins_history_cost_and_events(browser: httpx.Client):
    shown = text_of(browser.get("/console/jobs/ft-1").text)
    assert "1e-06 job.yaml:10 Peak of the learning rate." in shown
    assert "Tokens in all 300" in shown
    assert "pending" in shown
    assert HOSTILE in shown


def test_a_clone_has_what_was_set_and_no_defaults_and_no_secrets(browser: httpx.Client):
    told = browser.get("/console/jobs/ft-1/job.yaml").text
    assert told.startswith("# ft-1\n")
    assert yaml.safe_load(told) == {
        "name": "tiny",
        "model": {"name": "smollm2-135m"},
        "datasets": [{"type": "training", "file_name": "data/train.jsonl"}],
        "functions": [{"type": "rollout", "name": "agent", "fcmodel": {"classpath": "agent.py:Agent"},
                       "runtime": {"env": {"TOKEN": "***"}}}],
        "training": {"hyper_parameters": {"algorithm": "grpo", "learning_rate": 1e-6}},
    }  # fmt: skip
    assert "a secret that is not kept" in told


def test_a_switch_shows_the_curves_that_ark_has_under_its_names(browser: httpx.Client):
    own, arks = (browser.get(f"/console/jobs/ft-1/metrics{query}").text for query in ("", "?naming=ark"))
    assert 'href="/console/jobs/ft-1/metrics?naming=ark"' in own
    assert 'data-names="validation/data/reward/mean@1" data-title="test/reward/final_rewards"' in arks
    assert "test/reward/final_rewards" not in own
    assert "timing/s/step" not in arks
    rows = browser.get("/console/jobs/ft-1/metrics.csv?naming=ark").text.splitlines()
    assert rows[0] == "metric,step,value"
    assert {row.split("/")[0] for row in rows[1:]} <= {"train", "test"}
    assert browser.get("/console/jobs/ft-1/metrics?naming=other").status_code == 400


def test_curves_come_as_columns_thinned_to_the_points_asked_for(browser: httpx.Client):
    url = "/console/curves?job=ft-1&names=critic/rewards/mean,actor/ppo_kl,none"
    told = browser.get(url).json()
    assert told == {
        "job": "ft-1",
        "last": 3,
        "curves": {
            "critic/rewards/mean": {"steps": [1, 2, 3], "mean": [0.1, 0.2, 0.3]},
            "actor/ppo_kl": {"steps": [1, 2, 3], "mean": [0.01, None, 0.01]},
        },
    }
    assert browser.get(f"{url}&since=3").json()["curves"]["actor/ppo_kl"] == {"steps": [3], "mean": [0.01]}


def test_all_values_can_be_taken_away_as_csv(browser: httpx.Client):
    rows = browser.get("/console/jobs/ft-1/metrics.csv").text.splitlines()
    assert rows[0] == "metric,step,value"
    assert "actor/entropy,2,0.5" in rows
    assert len(rows) == 1 + 9 * 3


def test_the_metrics_tab_has_every_curve_once_in_its_group_with_its_explanation(browser: httpx.Client):
    page = browser.get("/console/jobs/ft-1/metrics").text
    names = re.findall(r'<figure class="chart" data-names="([^"]+)"', page)
    assert "critic/rewards/mean,critic/rewards/min,critic/rewards/max" in names
    assert names.count("perf/total_num_tokens") == 1
    assert "策略" in browser.get("/console/jobs/ft-1/metrics", headers={"accept-language": "zh"}).text


def test_the_step_view_shows_distribution_and_groups(browser: httpx.Client):
    page = browser.get("/console/jobs/ft-1/trajectories?step=2").text
    shown = text_of(page)
    # Rewards 0, 1 and 0.2; one of four failed.
    assert "mean reward 0.4" in shown
    assert "succeeded 75 %" in shown
    assert page.count('class="chip ') == 4
    assert "← 1" in shown
    assert "3 →" in shown


def test_a_sample_is_followed_across_the_steps(browser: httpx.Client):
    page = browser.get("/console/jobs/ft-1/samples?sample=train-1").text
    assert page.count('class="chip ') == 6
    assert browser.get("/console/jobs/ft-1/samples?sample=nobody").status_code == 404


@pytest.mark.parametrize(
    ("query", "num"),
    [
        ("", 12),
        ("step=2", 4),
        ("status=failed", 3),
        ("low=0.25&high=0.9", 1),
        ("sample=train-0&step=1", 2),
        ("rollout=1-train-0-r1", 1),
        ("tool=add", 3),
        ("text=window.hacked", 6),
        ("text=IT%20IS%204", 3),
        ("tool=subtract", 0),
    ],
)
def test_rollouts_are_found_by_every_filter(browser: httpx.Client, query: str, num: int):
    page = browser.get(f"/console/jobs/ft-1/rollouts?{query}").text
    assert page.count('name="key"') == num


def test_a_trajectory_reads_as_a_conversation(browser: httpx.Client):
    (key,) = keys_of(browser.get("/console/jobs/ft-1/rollouts?rollout=2-train-0-r1").text)
    page = browser.get(f"/console/jobs/ft-1/trajectories/{key}").text
    shown = text_of(page)
    assert 'add call-1 { "a": 2, "b": 2 } result { "sum": 4 }' in shown
    assert "It is 4." in shown
    assert "policy v1–2" in shown
    assert "score / hit 1" in shown
    # exp(-0.01) is above 0.9, exp(-2.5) = 0.082 above 0.05.
    assert re.findall(r'<span class="(p\d)" title="p ([\d.]+)', page)[:2] == [
        ("p0", "0.99"),
        ("p3", "0.0821"),
    ]


def test_a_failed_rollout_tells_its_error_and_those_of_earlier_tries(browser: httpx.Client):
    (key,) = keys_of(browser.get("/console/jobs/ft-1/rollouts?rollout=2-train-1-r1").text)
    shown = text_of(browser.get(f"/console/jobs/ft-1/trajectories/{key}").text)
    assert "RuntimeError: no" in shown
    assert "Earlier try a1 timeout" in shown


def test_two_trajectories_stand_side_by_side(browser: httpx.Client):
    keys = keys_of(browser.get("/console/jobs/ft-1/rollouts?step=1").text)
    page = browser.get(f"/console/jobs/ft-1/side-by-side?key={keys[0]}&key={keys[1]}").text
    assert page.count('<ol class="chat">') == 2
    assert browser.get(f"/console/jobs/ft-1/side-by-side?key={keys[0]}").status_code == 303


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("", 6),
        ("level=error", 2),
        ("level=warning", 3),
        ("component=trainer", 4),
        ("q=STEP", 2),
        ("component=engine&q=step", 1),
    ],
)
def test_logs_are_filtered_by_component_level_and_word(browser: httpx.Client, query: str, lines: int):
    page = browser.get(f"/console/jobs/ft-1/logs?{query}").text
    log = page.partition('<ol class="log"')[2]
    assert log.count("<li") == lines


def test_the_last_error_stands_on_top_with_its_traceback(browser: httpx.Client):
    page = browser.get("/console/jobs/ft-1/logs").text
    top = text_of(page.partition('<ol class="log"')[0])
    assert 'Traceback (most recent call last): File "loop.py", line 3 ValueError' in top


def test_the_log_s_tail_comes_as_events_and_goes_on_after_what_was_seen(
    server: Server, browser: httpx.Client
):
    page = browser.get("/console/jobs/ft-1/logs?component=trainer").text
    url = html.unescape(re.search(r'data-stream="([^"]+)"', page)[1])  # type: ignore[index]
    server.print_lines("ft-1", 2)
    with browser.stream("GET", url) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        told = next(line for line in reply.iter_lines() if line.startswith("data:"))
    assert '"line 001"' in told
    assert '"line 002"' in told
    assert '"step 1"' not in told


@pytest.mark.parametrize("last", [b"\xb2", b"9" * 5000, b"-1"])
def test_a_line_s_number_that_is_none_is_not_followed(browser: httpx.Client, last: bytes):
    with browser.stream("GET", "/console/jobs/ft-1/logs/stream", headers={b"last-event-id": last}) as reply:
        assert reply.status_code == 200
        told = next(line for line in reply.iter_lines() if line.startswith("data:"))
    assert '"step 1"' in told


def test_the_log_s_tail_ends_with_the_session(browser: httpx.Client):
    token = csrf(browser.get("/console/jobs").text)
    with browser.stream("GET", "/console/jobs/ft-1/logs/stream", timeout=10) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("id:")
        assert browser.post("/console/sign-out", data={"csrf": token}).status_code == 303
        assert not [line for line in lines if line.startswith("event: end")]


async def test_log_tails_are_bounded_as_all_streams_of_a_workspace_are(server: Server, browser: httpx.Client):
    url = f"{server.url}/console/jobs/ft-1/logs/stream"
    headers = {"cookie": f"strop_session={browser.cookies['strop_session']}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        streams = [await session.get(url) for _ in range(100)]
        assert {one.status for one in streams} == {200}
        async with session.get(url) as refused:
            assert (refused.status, "100 event streams" in await refused.text()) == (429, True)
        for one in streams:
            one.close()


@pytest.mark.parametrize(
    "path",
    [
        "jobs/ft-1?before={}",
        "jobs/ft-1/trajectories?step={}",
        "jobs/ft-1/rollouts?before={}",
        "jobs/ft-1/trajectories/{}",
        "jobs/ft-1/trajectories/{}/raw",
        "jobs/ft-1/trajectories/{}/tracing",
        "jobs/ft-1/side-by-side?key={}&key=1",
        "jobs/ft-1/logs?before={}",
        "jobs/ft-1/logs/stream?after={}",
        "curves?job=ft-1&names=actor/loss&since={}",
    ],
)
def test_numbers_that_no_database_holds_are_refused(browser: httpx.Client, path: str):
    for number in (2**63, "9" * 5000):
        assert browser.get(f"/console/{path.format(number)}").status_code == 400


def test_another_workspace_sees_nothing(server: Server, stranger: httpx.Client):
    with server.database.write() as session:
        workspace = ensure_workspace(session, "other")
        _, key = create_key(session, workspace.workspace_id, "eve")
    record_job(server.database, "ft-eve", name="own", workspace_id=workspace.workspace_id)
    stranger.post("/console/sign-in", data={"key": key})
    page = stranger.get("/console/jobs").text
    assert ("ft-eve" in page, "ft-1" in page) == (True, False)
    for path in (
        "",
        "/trajectories",
        "/metrics",
        "/logs",
        "/output",
        "/job.yaml",
        "/logs/stream",
        "/metrics.csv",
    ):
        assert stranger.get(f"/console/jobs/ft-1{path}").status_code == 404
    assert stranger.get("/console/curves?job=ft-1&names=actor/loss").status_code == 404
    key_of_mine = keys_of(stranger.get("/console/jobs/ft-eve/rollouts").text)[0]
    assert stranger.get(f"/console/jobs/ft-eve/trajectories/{key_of_mine - 12}").status_code == 404
