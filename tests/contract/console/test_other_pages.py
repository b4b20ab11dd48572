from __future__ import annotations

import gzip
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx
import pytest

from contract.console.conftest import csrf
from contract.console.test_job_pages import text_of
from fakes.server import FUNCTIONS, ROWS, Server, json_lines
from strop.console import files_pages
from strop.schema.deployment import Deployment, DeploymentStatus
from strop.store.deployments import create_deployment
from strop.store.keys import ensure_workspace


def posted(browser: httpx.Client, path: str, page: str, **values: str) -> httpx.Response:
    reply = browser.post(path, data={"csrf": csrf(browser.get(page).text), **values})
    return browser.get(reply.headers["location"]) if reply.status_code == 303 else reply


@pytest.mark.parametrize("name", ["functions", "files", "models", "deployments", "keys"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_list_stands_in_both_languages_and_says_what_to_do_when_empty(
    browser: httpx.Client, name: str, language: str
):
    reply = browser.get(f"/console/{name}", headers={"accept-language": language})
    assert reply.status_code == 200
    assert ("退出" in reply.text) == (language == "zh")


def test_a_function_is_started_called_by_the_form_and_stopped(server: Server, browser: httpx.Client):
    entity = server.register("reward", "Score", source=FUNCTIONS)
    url = f"/console/functions/{entity}"
    assert entity in browser.get("/console/functions").text
    shown = posted(browser, f"{url}/start", url)
    instance = shown.text.partition('name="instance" value="')[2].partition('"')[0]
    body = '{"ground_truth": "4", "agent_output": {"messages": [{"role": "assistant", "content": "4"}]}}'
    called = posted(browser, f"{url}/call", url, instance=instance, body=body)
    assert '"reward_score": 1.0' in text_of(called.text)
    wrong = posted(browser, f"{url}/call", url, instance=instance, body="{")
    assert "Invalid JSON body" in text_of(wrong.text)
    gauges = text_of(browser.get(f"{url}/gauges", params={"instance": instance}).text)
    assert "workers 1 busy 0 waiting 0 calls 1 " in gauges
    assert re.search(r"latency, p50 / p95 \d+ ms / \d+ ms memory \d", gauges)
    assert f'hx-get="{url}/gauges?instance={instance}"' in called.text
    stopped = posted(browser, f"{url}/stop", url, instance=instance)
    assert "None runs" in text_of(stopped.text)
    after = browser.get(f"{url}/gauges", params={"instance": instance})
    assert (after.status_code, after.text) == (286, "")
    gone = posted(browser, f"{url}/forget", url)
    assert entity not in gone.text


def test_a_file_is_uploaded_previewed_checked_and_deleted(browser: httpx.Client):
    token = csrf(browser.get("/console/files").text)
    hostile = [{"messages": [{"role": "user", "content": "<script>window.hacked = 1</script>"}]}]
    files = {"files": ("rows.jsonl", json_lines([*ROWS, *hostile]))}
    assert browser.post("/console/files", data={"csrf": token}, files=files).status_code == 303
    listed = browser.get("/console/files").text
    file_id = listed.partition("/console/files/")[2].partition('"')[0]
    url = f"/console/files/{file_id}"
    page = posted(browser, url, url, form="reinforcement").text
    assert "17 rows, all in order" in text_of(page)
    assert '"0 + 0?"' in text_of(page)
    assert "<script>window" not in page
    wrong = posted(browser, url, url, form="dpo").text
    assert "17 problems" in text_of(wrong)
    assert "rows.jsonl:1" in wrong
    posted(browser, f"{url}/delete", url)
    assert browser.get(url).status_code == 404


def uploaded(browser: httpx.Client, name: str, content: bytes) -> str:
    """Its page."""
    token = csrf(browser.get("/console/files").text)
    assert browser.post("/console/files", data={"csrf": token}, files={"files": (name, content)}).is_redirect
    listed = browser.get("/console/files").text
    return "/console/files/" + listed.partition("/console/files/")[2].partition('"')[0]


def test_a_check_is_bounded_by_what_a_file_unpacks_to_and_by_its_rows(
    browser: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    rows = json_lines(ROWS)
    url = uploaded(browser, "bomb.jsonl.gz", gzip.compress(rows * 2000))
    assert posted(browser, url, url).status_code == 400
    assert "32000 rows" in text_of(posted(browser, url, url, form="reinforcement").text)
    monkeypatch.setattr(files_pages, "MAX_CHECK_BYTES", 1024**2)
    assert "unpacks to more than 1 MiB" in text_of(posted(browser, url, url, form="reinforcement").text)
    monkeypatch.setattr(files_pages, "MAX_CHECK_ROWS", 15)
    url = uploaded(browser, "many.jsonl", rows)
    assert "Too large to be checked here" in text_of(posted(browser, url, url, form="sft").text)


def test_one_file_is_checked_at_a_time(browser: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> files_pages.Report:
        begun.set()
        assert go_on.wait(30)
        return files_pages.Report(num_rows=16)

    monkeypatch.setattr(files_pages, "check", slow)
    url = uploaded(browser, "slow.jsonl", json_lines(ROWS))
    form = {"csrf": csrf(browser.get(url).text), "form": "sft"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(browser.post, url, data=form)
        assert begun.wait(30)
        second = browser.post(url, data=form)
        go_on.set()
        assert first.result().status_code == 200
    assert (second.status_code, "another file is being checked" in second.text) == (429, True)
    assert browser.post(url, data=form).status_code == 200


def test_a_damaged_gzip_has_a_page_that_says_so(browser: httpx.Client):
    packed = gzip.compress(json_lines(ROWS))
    url = uploaded(browser, "damaged.jsonl.gz", packed[:10] + b"\xff" * 40 + packed[50:])
    assert "No text to show" in browser.get(url).text
    assert "the gzip file is damaged" in text_of(posted(browser, url, url, form="sft").text)


def test_rows_too_deep_to_lay_out_and_half_characters_are_shown_all_the_same(browser: httpx.Client):
    page = browser.get(uploaded(browser, "deep.jsonl", b"[" * 100_000 + b'\n"a \\ud800"\n'))
    assert page.status_code == 200
    assert "[[[[" in page.text
    assert '"a ?"' in text_of(page.text)


def test_a_key_is_shown_once_and_revoked_for_good(server: Server, browser: httpx.Client):
    made = posted(browser, "/console/keys", "/console/keys", name="for-ci")
    text = made.text.partition('id="made">')[2].partition("<")[0]
    assert opens(server, text)
    listed = browser.get("/console/keys").text
    assert text not in listed
    key_id = listed.rpartition("/revoke")[0].rpartition("/console/keys/")[2]
    posted(browser, f"/console/keys/{key_id}/revoke", "/console/keys")
    assert not opens(server, text)


def opens(server: Server, key: str) -> bool:
    with server.client(key) as client:
        return client.get("/files").status_code == 200


def test_the_key_of_the_session_is_not_revoked_by_it(server: Server, browser: httpx.Client):
    own = browser.get("/console/keys").text.partition('class="id">')[2].partition("<")[0]
    reply = posted(browser, f"/console/keys/{own}/revoke", "/console/keys")
    assert reply.status_code == 409


def test_the_bundled_model_has_a_page_and_is_deployed_from_it(browser: httpx.Client):
    assert "smollm2-135m" in browser.get("/console/models").text
    page = posted(browser, "/console/models/smollm2-135m/deploy", "/console/models/smollm2-135m", suffix="x1")
    assert "smollm2-135m-x1" in page.text
    url = "/console/deployments"
    scaled = posted(browser, f"{url}/smollm2-135m-x1/scale", url, capacity="2")
    assert "0/2" in scaled.text
    posted(browser, f"{url}/smollm2-135m-x1/delete", url)
    assert browser.get("/console/models/none").status_code == 404
    bad = posted(browser, "/console/models/none/deploy", "/console/models/smollm2-135m")
    assert bad.status_code == 400


def test_a_model_s_page_names_no_deployment_of_another_workspace(server: Server, browser: httpx.Client):
    now = datetime(2026, 3, 1, tzinfo=UTC)
    with server.database.write() as session:
        other = ensure_workspace(session, "rival")
        for name, workspace_id in (("ours", "default"), ("theirs", other.workspace_id)):
            one = Deployment(
                deployed_model=f"smollm2-135m-{name}", workspace_id=workspace_id, model_name="smollm2-135m",
                base_model="smollm2-135m", source="smollm2-135m", plan="mu", capacity=1,
                status=DeploymentStatus.FAILED, creator="ada", modifier="ada",
                created_at=now, modified_at=now,
            )  # fmt: skip
            create_deployment(session, one)
    page = browser.get("/console/models/smollm2-135m").text
    assert ("smollm2-135m-ours" in page, "smollm2-135m-theirs" in page) == (True, False)


def test_a_gone_checkpoint_is_refused_with_the_reason(browser: httpx.Client):
    page = "/console/jobs/ft-1/output"
    reply = posted(browser, "/console/jobs/ft-1/publish", page, checkpoint="3", model_name="mine")
    assert reply.status_code == 404
    assert "holds no model" in text_of(reply.text)
    reply = posted(browser, "/console/jobs/ft-1/publish", page, checkpoint="3", model_name="../up")
    assert reply.status_code == 400


def test_the_best_checkpoint_is_marked(browser: httpx.Client):
    shown = text_of(browser.get("/console/jobs/ft-1/output").text)
    assert "3 0.75 best v3" in shown
