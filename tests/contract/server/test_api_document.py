import json
from pathlib import Path

import httpx

from strop.cli.api_document import api_document

PAGE = Path(__file__).parents[3] / "docs" / "api" / "openapi.json"


def test_the_kept_document_is_the_one_of_the_code():
    assert PAGE.read_text(encoding="utf-8") == api_document(), "run: make docs"


def test_every_route_says_what_it_does_and_api_routes_ask_for_a_key():
    document = json.loads(PAGE.read_text(encoding="utf-8"))
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert route["summary"], (method, path)
            assert ("security" in route) == path.startswith("/api/"), (method, path)


def test_the_page_shows_every_route_and_loads_nothing_from_elsewhere(server):
    reply = httpx.get(f"{server.url}/docs")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    for path in json.loads(PAGE.read_text(encoding="utf-8"))["paths"]:
        assert f"<code>{path}</code>" in reply.text
    assert "http://" not in reply.text
    assert "https://" not in reply.text


def test_the_routes_of_the_wire_are_there():
    paths = json.loads(PAGE.read_text(encoding="utf-8"))["paths"]
    wanted = {
        ("post", "/api/v1/fine-tunes/generate/faas/upload/url"),
        ("post", "/api/v1/fine-tunes/create/faas/layer"),
        ("post", "/api/v1/fine-tunes/create/rollout"),
        ("post", "/api/v1/fine-tunes/create/reward"),
        ("post", "/api/v1/fine-tunes/create/group-reward"),
        ("get", "/api/v1/fine-tunes/query/faas/layer/status"),
        ("post", "/api/v1/fine-tunes/online/faas/{job_ref}/{entity_id}"),
        ("post", "/api/v1/fine-tunes/query/faas/{instance_id}"),
        ("post", "/api/v1/fine-tunes/query/faas/log/{instance_id}"),
        ("post", "/api/v1/fine-tunes/delete/faas/{instance_id}"),
        ("post", "/api/v1/files"),
        ("delete", "/api/v1/files/{file_id}"),
        ("post", "/api/v1/fine-tunes"),
        ("post", "/api/v1/fine-tunes/{job_id}/cancel"),
        ("delete", "/api/v1/fine-tunes/{job_id}"),
        ("get", "/api/v1/fine-tunes/{job_id}/logs"),
        ("get", "/api/v1/fine-tunes/{job_id}/stream"),
        ("put", "/uploads/{workspace_id}/{unique_key}"),
    }
    assert wanted <= {(method, path) for path, methods in paths.items() for method in methods}
