from __future__ import annotations

from pathlib import Path

import httpx

from contract.console.conftest import csrf
from fakes.server import Server, serving


def test_the_root_leads_to_the_jobs_and_a_stranger_to_the_sign_in(stranger: httpx.Client):
    assert stranger.get("/").headers["location"] == "/console/jobs"
    assert stranger.get("/console").headers["location"] == "/console/jobs"
    asked = stranger.get("/console/jobs?q=x")
    assert asked.headers["location"] == "/console/sign-in?back=%2Fconsole%2Fjobs%3Fq%3Dx"


def test_a_key_opens_a_session_whose_cookie_no_script_and_no_other_site_can_use(
    server: Server, stranger: httpx.Client
):
    reply = stranger.post("/console/sign-in", data={"key": server.key, "back": "/console/keys"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/console/keys")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert server.key not in cookie
    assert stranger.get("/console/jobs").status_code == 200


def test_a_wrong_key_opens_nothing(stranger: httpx.Client):
    reply = stranger.post("/console/sign-in", data={"key": "sk-strop-wrong"})
    assert reply.status_code == 401
    assert "set-cookie" not in reply.headers
    assert "sk-strop-wrong" not in reply.text


def test_a_refusal_is_told_in_the_pages_language(stranger: httpx.Client, browser: httpx.Client):
    chinese = {"accept-language": "zh-CN,zh;q=0.9"}
    page = browser.get("/console/jobs/ft-none", headers=chinese)
    assert page.status_code == 404
    assert "数据库中没有任务 &#39;ft-none&#39;" in page.text
    assert "请检查 id、STROP_HOME 与 STROP_DATABASE_URL" in page.text
    assert "no job &#39;ft-none&#39; in this database" in browser.get("/console/jobs/ft-none").text
    refused = stranger.post("/console/sign-in", data={"key": "sk-strop-wrong"}, headers=chinese)
    assert "API 密钥无效：不属于此服务" in refused.text


def test_signing_out_ends_the_session_for_the_cookie_too(server: Server, browser: httpx.Client):
    token = browser.cookies["strop_session"]
    page = browser.get("/console/jobs").text
    assert browser.post("/console/sign-out", data={"csrf": csrf(page)}).status_code == 303
    again = httpx.get(f"{server.url}/console/jobs", cookies={"strop_session": token})
    assert again.status_code == 401


def test_the_link_of_the_first_start_signs_in_once_and_looking_at_it_uses_nothing_up(
    server: Server, stranger: httpx.Client
):
    link = server.sign_in_link
    assert link is not None
    token = link.partition("link=")[2]
    for _ in range(2):
        assert token in stranger.get(link).text
    assert stranger.post("/console/sign-in", data={"link": "wrong"}).status_code == 401
    assert stranger.post("/console/sign-in", data={"link": token}).status_code == 303
    assert stranger.get("/console/jobs").status_code == 200
    assert stranger.post("/console/sign-in", data={"link": token}).status_code == 401


def test_a_change_needs_the_token_of_the_session_and_this_very_origin(browser: httpx.Client):
    page = browser.get("/console/jobs/ft-1").text
    assert browser.post("/console/jobs/ft-1/pause").status_code == 403
    assert browser.post("/console/jobs/ft-1/pause", data={"csrf": "guess"}).status_code == 403
    elsewhere = {"origin": "https://elsewhere.example"}
    reply = browser.post("/console/jobs/ft-1/pause", data={"csrf": csrf(page)}, headers=elsewhere)
    assert reply.status_code == 403
    cross = {"sec-fetch-site": "cross-site"}
    assert browser.post("/console/sign-in", data={"key": "x"}, headers=cross).status_code == 403
    # With both it is asked for, and refused for what it is: nobody's server looks after that run.
    asked = browser.post("/console/jobs/ft-1/pause", data={"csrf": csrf(page)})
    assert (asked.status_code, "Ctrl-C" in asked.text) == (409, True)


def test_a_form_may_stand_at_the_public_address_though_a_proxy_rewrites_the_host(tmp_path: Path):
    public = "https://strop.example.com"
    with serving(tmp_path / "home", supervise=False, public_url=public) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            signed = {origin: sign_in(client, server.key, origin) for origin in (public, server.url)}
            assert signed == {public: 303, server.url: 303}
            for origin in (
                "https://strop.example.com.evil.example",
                "https://evil.example",
                "null",
                "http://[",
            ):
                assert sign_in(client, server.key, origin) == 403


def sign_in(client: httpx.Client, key: str, origin: str) -> int:
    return client.post("/console/sign-in", data={"key": key}, headers={"origin": origin}).status_code


def test_every_reply_says_that_nothing_inline_and_nothing_foreign_is_run(browser: httpx.Client):
    for path in ("/console/sign-in", "/console/jobs", "/console/jobs/none", "/console/static/page.js"):
        policy = browser.get(path).headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy


def test_pages_are_kept_by_nobody_and_files_for_good(browser: httpx.Client):
    assert browser.get("/console/jobs").headers["cache-control"] == "no-store"
    assert "immutable" in browser.get("/console/static/console.css").headers["cache-control"]


def test_language_follows_the_browser_until_one_is_chosen(browser: httpx.Client):
    assert 'lang="en"' in browser.get("/console/jobs").text
    assert 'lang="zh-CN"' in browser.get("/console/jobs", headers={"accept-language": "zh-CN,en;q=0.5"}).text
    chosen = browser.get("/console/look?language=zh&theme=dark&back=/console/keys")
    assert chosen.headers["location"] == "/console/keys"
    page = browser.get("/console/jobs").text
    assert 'lang="zh-CN" data-theme="dark"' in page
    assert browser.get("/console/look?language=en&back=//evil.example").headers["location"] == "/console/jobs"
