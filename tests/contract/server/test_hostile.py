"""Every route against what a confused or hostile client sends: always a reply in JSON, never a 5xx."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import httpx

DOCUMENT = json.loads(
    (Path(__file__).parents[3] / "docs" / "api" / "openapi.json").read_text(encoding="utf-8")
)

IDS = (
    "unknown", "..", "%2e%2e", "a" * 3000, "' OR 1=1 --", "\x00", "数据", "a/b", "%00", "-1", "{}",
    "ft-1;drop", "\U0001f600", "con", "~", "*",
)  # fmt: skip

VALUES = (
    None, True, -1, 0, 1e308, 2**70, "", "x" * 10_000, "\x00", "\ud800", [], [[]], {}, {"a": {"b": []}},
    [None], "../../etc/passwd", "NaN",
)  # fmt: skip

QUERIES = (
    {"page_no": "-1"}, {"page_no": "9" * 40}, {"page_size": "0"}, {"offset": "x"}, {"line": "1e9"},
    {"after": "x"}, {"after": "9" * 18}, {"limit": "99999"}, {"step": "-5"}, {"status": "x"}, {"kind": "'"},
    {"min_reward": "nan"}, {"names": "\x00"}, {"layer_code": "\x00" * 50}, {"purpose": "\x00"},
)  # fmt: skip

JSON = {"content-type": "application/json"}


def routes():
    for path, methods in DOCUMENT["paths"].items():
        for method, route in methods.items():
            yield method.upper(), path, route


def fields_of(route):
    schema = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return list(schema.get("properties", {}))


def checked(reply: httpx.Response, what: object) -> None:
    assert reply.status_code < 500, (what, reply.status_code, reply.text[:500])
    if reply.status_code >= 400 and "/functions/{instance_id}" not in str(what):
        assert reply.headers["content-type"].startswith("application/json"), what
        assert reply.json().get("message") or reply.json().get("error"), what


def test_no_id_breaks_a_route(server):
    with httpx.Client(headers={"authorization": f"Bearer {server.key}"}, timeout=60) as client:
        for method, path, _ in routes():
            for identity in IDS if "{" in path else ():
                filled = "/".join(
                    quote(identity, safe="%") if "{" in part else part for part in path.split("/")
                )
                reply = client.request(method, server.url + filled, json={} if method == "POST" else None)
                checked(reply, (method, path, identity[:40]))


def test_no_query_breaks_a_route(server):
    job_id = server.submit(job_name="quick")
    server.becomes(job_id, "SUCCEEDED")
    with httpx.Client(headers={"authorization": f"Bearer {server.key}"}, timeout=60) as client:
        for method, path, _ in routes():
            if method == "GET":
                filled = path.replace("{job_id}", job_id)
                for query in QUERIES:
                    checked(client.get(server.url + filled, params=query), (path, query))


def test_no_body_breaks_a_route(server, monkeypatch):
    monkeypatch.setenv(
        "PIP_NO_INDEX", "1"
    )  # some of the layers asked for here would be looked for on the network
    with httpx.Client(headers={"authorization": f"Bearer {server.key}"}, timeout=60) as client:
        for method, path, route in routes():
            if method not in ("POST", "PUT"):
                continue
            bodies = [*VALUES, *({field: value} for field in fields_of(route) for value in VALUES)]
            for body in bodies:
                content = json.dumps(body).encode()
                reply = client.request(method, server.url + path, content=content, headers=JSON)
                checked(reply, (method, path, str(body)[:80]))


def test_no_field_of_a_job_breaks_its_creation(server):
    good = server.job_body()
    with httpx.Client(headers={"authorization": f"Bearer {server.key}"}, timeout=60) as client:
        for field in (*good, "validation_datasets", "resource_config", "teacher_model", "tuned_model_name"):
            for value in VALUES:
                content = json.dumps(good | {field: value}).encode()
                reply = client.post(f"{server.api}/fine-tunes", content=content, headers=JSON)
                checked(reply, (field, str(value)[:80]))
        for section in ("rollout", "hyper_parameters"):
            for key in (
                "name",
                "timeout",
                "env",
                "layer_code",
                "batch_size",
                "learning_rate",
                "algorithm",
                "\x00",
            ):
                for value in VALUES:
                    content = json.dumps(good | {section: good[section] | {key: value}}).encode()
                    reply = client.post(f"{server.api}/fine-tunes", content=content, headers=JSON)
                    checked(reply, (section, key, str(value)[:80]))
