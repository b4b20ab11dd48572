import json
import stat
from contextlib import closing
from http.client import HTTPConnection

import httpx
import pytest

from strop.schema.access import DEFAULT_WORKSPACE
from strop.store.keys import create_key, ensure_workspace, list_keys, revoke_key


def key_of(server, workspace, name="k"):
    with server.database.write() as session:
        made = ensure_workspace(session, workspace)
        return create_key(session, made.workspace_id, name)


@pytest.mark.parametrize(
    "header", [None, "Bearer ", "Bearer", "Bearer wrong", "Basic abc", "Bearer sk-strop-\xe9"]
)
def test_without_a_good_key_every_reply_is_a_401_in_json(server, header):
    # httpx refuses to send "Bearer " with nothing behind it; DashScope's client does send it.
    headers = {} if header is None else {"authorization": header}
    for method, path in (("GET", "/files"), ("POST", "/fine-tunes"), ("POST", "/files"), ("GET", "/nowhere")):
        with closing(HTTPConnection(server.url.partition("//")[2])) as connection:
            connection.request(method, f"/api/v1{path}", body=b"{broken", headers=headers)
            reply = connection.getresponse()
            body = json.loads(reply.read())
        assert reply.status == 401
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["www-authenticate"] == "Bearer"
        assert body["code"] == "InvalidApiKey"
        assert "DASHSCOPE_API_KEY" in body["message"]
        assert body["request_id"] == reply.headers["x-request-id"]


def test_the_first_key_lies_in_a_file_that_only_its_owner_reads(own_server):
    path = own_server.home / "api_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((own_server.home / "server_secret").stat().st_mode) == 0o600
    assert own_server.http.get("/files").status_code == 200


def test_keys_are_kept_as_hashes_only(server):
    text = server.key.encode()
    files = [path for path in server.home.rglob("strop.db*") if path.is_file()]
    assert files
    assert all(text not in path.read_bytes() for path in files)


def test_a_revoked_key_opens_nothing_from_the_next_request_on(server):
    key, text = key_of(server, DEFAULT_WORKSPACE, name="second")
    with server.client(text) as client:
        assert client.get("/files").status_code == 200
        with server.database.write() as session:
            revoke_key(session, key.key_id)
        reply = client.get("/files")
    assert reply.status_code == 401
    assert "revoked" in reply.json()["message"]


def test_workspaces_do_not_see_each_other(server):
    file_id = server.upload_rows()
    entity = server.register("reward", "Score")
    job_id = server.submit(job_name="quick")
    _, text = key_of(server, "other team", name="other")
    with server.client(text) as other:
        for method, path in (
            ("GET", f"/files/{file_id}"),
            ("DELETE", f"/files/{file_id}"),
            ("GET", f"/functions/{entity}"),
            ("GET", f"/fine-tunes/{job_id}"),
            ("POST", f"/fine-tunes/{job_id}/cancel"),
            ("GET", f"/fine-tunes/{job_id}/logs"),
            ("GET", f"/fine-tunes/{job_id}/stream"),
            ("DELETE", f"/fine-tunes/{job_id}"),
        ):
            reply = other.request(method, path)
            assert (reply.status_code, reply.json()["code"]) == (404, "NotFound"), path
        assert other.get("/files").json()["data"]["total"] == 0
        assert other.get("/fine-tunes").json()["output"]["total"] == 0
        body = server.job_body()
        reply = other.post("/fine-tunes", json=body)
    assert reply.status_code == 400
    assert "rollout: no function" in reply.json()["message"]


def test_a_key_does_not_open_another_workspace_by_its_header(server):
    reply = server.http.get("/files", headers={"X-DashScope-WorkSpace": "llm-other"})
    assert (reply.status_code, reply.json()["code"]) == (403, "AccessDenied")
    assert server.http.get("/files", headers={"X-DashScope-WorkSpace": "default"}).status_code == 200


def test_a_second_start_makes_no_second_key(own_server):
    from strop.service.first_key import ensure_first_key

    again = ensure_first_key(own_server.database, own_server.home)
    assert not again.made
    with own_server.database.read() as session:
        assert [key.name for key in list_keys(session)] == ["first"]


def test_doubled_slashes_are_one(server):
    reply = httpx.get(f"{server.url}/api/v1//files", headers={"authorization": f"Bearer {server.key}"})
    assert (reply.status_code, reply.json()["data"]["page_no"]) == (200, 1)


def test_unknown_routes_and_methods_are_told_in_json(server):
    reply = server.http.get("/nowhere")
    assert (reply.status_code, reply.json()["code"]) == (404, "NotFound")
    assert reply.json()["message"] == "no route GET /api/v1/nowhere"
    reply = server.http.patch("/files")
    assert (reply.status_code, reply.json()["code"]) == (405, "MethodNotAllowed")


def test_bodies_are_bounded_whether_announced_or_not(tmp_path):
    from fakes.server import serving
    from strop.service.settings import Limits
    from strop.store.home import home

    with serving(home(), limits=Limits(body_bytes=1000)) as server:
        headers = {"content-type": "application/json"}
        announced = server.http.post("/fine-tunes", content=b"x" * 2000, headers=headers)
        chunked = server.http.post("/fine-tunes", content=iter([b"x" * 600] * 3), headers=headers)
    for reply in (announced, chunked):
        assert (reply.status_code, reply.json()["code"]) == (413, "PayloadTooLarge")
        assert "1000 bytes" in reply.json()["message"]


def test_health_and_counts_need_no_key(own_server):
    own_server.submit(job_name="quick")
    assert httpx.get(f"{own_server.url}/healthz").json()["status"] == "healthy"
    text = httpx.get(f"{own_server.url}/metrics").text
    assert 'strop_jobs{status="FAILED"} 0' in text
    assert "# TYPE strop_jobs gauge" in text
