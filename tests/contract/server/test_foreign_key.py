"""Every route of the OpenAPI document with a good key of another workspace, and the ids of this one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.replicas import Barracks
from fakes.server import ROWS, Server, json_lines, serving
from strop.schema.model import ModelKind, NamedModel
from strop.store.keys import create_key, ensure_workspace
from strop.store.models import record_model

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "api" / "openapi.json").read_text(encoding="utf-8")
)

OWN_SECRET = re.compile(r"^(/uploads/|/functions/)")
"""Addresses that ask for a signature or a token of their own instead of a key."""

WITHOUT_IDS = frozenset(path for path in DOCUMENT["paths"] if "{" not in path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    barracks = Barracks()
    with serving(tmp_path_factory.mktemp("server") / "home", make_replica=barracks.make) as made:
        yield made


@pytest.fixture(scope="module")
def foreign(served: Server) -> Iterator[httpx.Client]:
    with served.database.write() as session:
        _, text = create_key(session, ensure_workspace(session, "others").workspace_id, "theirs")
    with httpx.Client(headers={"authorization": f"Bearer {text}"}, base_url=served.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def ids(served: Server) -> dict[str, str]:
    """One of everything that this workspace can have, by the name that the paths know it by."""
    job_id = served.submit(job_name="quick")
    served.becomes(job_id, "SUCCEEDED")
    served.print_lines(job_id, 3)
    entity_id = served.register("reward", "Score")
    instance = served.post(f"/fine-tunes/online/faas/jobId-1/{entity_id}", {})
    with served.database.write() as session:
        record_model(
            session,
            NamedModel(
                name="ours", kind=ModelKind.PUBLISHED, source="/nowhere", workspace_id="default",
                created_at=datetime.now(UTC),
            ),
        )  # fmt: skip
    served.post("/deployments", {"model_name": "ours", "suffix": "a"})
    (checkpoint,) = served.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]
    file_id = served.upload_rows()
    measured = {"model": "ours", "datasets": [{"file_id": file_id}], "rewards": [{"reward_id": entity_id}]}
    return {
        "job_id": job_id,
        "file_id": file_id,
        "evaluation_id": served.post("/evaluations", {**measured, "name": "quick"})["evaluation_id"],
        "entity_id": entity_id,
        "instance_id": instance["instanceId"],
        "deployed_model": "ours-a",
        "name": "ours",
        "job_ref": "jobId-1",
        "checkpoint": checkpoint["checkpoint_id"],
        "rollout_id": "r-1",
        "workspace_id": "default",
        "unique_key": "reward-1",
        "layer_code": served.post("/fine-tunes/create/faas/layer", {"requirements_content": ""})[
            "layer_code"
        ],
    }


def routes() -> list[tuple[str, str]]:
    return [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]


def body_of(method: str, path: str) -> dict[str, Any] | None:
    """One that the route takes, so that only whose things they are can be wrong."""
    if method in ("GET", "DELETE"):
        return None
    if path.endswith("/scale"):
        return {"capacity": 1}
    return {}


def query_of(method: str, path: str, ids: dict[str, str]) -> dict[str, str]:
    """What the route asks for besides."""
    asked = DOCUMENT["paths"][path][method.lower()].get("parameters", [])
    names = [one["name"] for one in asked if one["in"] == "query" and one["required"]]
    return {name: ids.get(name, "stolen") for name in names}


@pytest.mark.parametrize(("method", "path"), [one for one in routes() if "{" in one[1]])
def test_no_route_gives_a_foreign_key_what_an_id_names(
    served: Server, foreign: httpx.Client, ids: dict[str, str], method: str, path: str
) -> None:
    unknown = set(re.findall(r"{(\w+)}", path)) - set(ids)
    assert unknown == set(), "this test does not know what this parameter names: give it one"
    reply = foreign.request(
        method, path.format(**ids), json=body_of(method, path), params=query_of(method, path, ids)
    )
    expected = 401 if OWN_SECRET.match(path) else 404
    assert reply.status_code == expected, (method, path, reply.status_code, reply.text)
    message = reply.json()["message"]
    for word in ("Score", "quick", "train.jsonl", str(served.home)):
        assert word not in message
    never = foreign.request(
        method,
        path.format(**{name: value[:-3] + "zzz" for name, value in ids.items()}),
        json=body_of(method, path),
        params=query_of(method, path, ids),
    )
    assert never.status_code == expected, "what is another's and what is nobody's are told apart"
    assert _without_ids(never.json()["message"], ids) == _without_ids(message, ids)


def test_routes_without_ids_list_nothing_of_another_workspace(
    served: Server, foreign: httpx.Client, ids: dict[str, str]
) -> None:
    open_to_all = {"/healthz", "/metrics"}
    for method, path in routes():
        if path in WITHOUT_IDS - open_to_all and method == "GET":
            reply = foreign.get(path, params={"layer_code": ids["layer_code"]})
            assert reply.status_code in (200, 404), path
            for name in ("job_id", "file_id", "entity_id", "instance_id", "deployed_model"):
                assert ids[name] not in reply.text, (path, name)
            assert '"ours"' not in reply.text, path


def test_bodies_that_name_anothers_things_are_refused(
    served: Server, foreign: httpx.Client, ids: dict[str, str]
) -> None:
    made = foreign.post("/api/v1/files", files={"files": ("a.jsonl", json_lines(ROWS))}).json()
    own_file = made["data"]["uploaded_files"][0]["file_id"]
    rewards = [{"reward_id": ids["entity_id"]}]
    jobs: list[tuple[dict[str, Any], str]] = [
        ({"training_datasets": [{"file_id": ids["file_id"]}], "rewards": rewards}, "no file"),
        ({"training_datasets": [{"file_id": own_file}], "rewards": rewards}, "no function"),
        ({"training_datasets": [{"file_id": own_file}], "model": "ours"}, "there is no model 'ours'"),
        ({"training_datasets": [{"file_id": own_file}], "teacher_model": "ours"}, "there is no model 'ours'"),
        (
            {
                "training_datasets": [{"file_id": own_file}],
                "rewards": [{"reward_id": "x", "layer_code": ids["layer_code"]}],
            },
            "no function",
        ),
    ]
    for changes, words in jobs:
        reply = foreign.post("/api/v1/fine-tunes", json={"model": "smollm2-135m", **changes})
        assert reply.status_code == 400, reply.text
        assert words in reply.json()["message"]
    deployed = foreign.post("/api/v1/deployments", json={"model_name": "ours"})
    assert (deployed.status_code, "no model 'ours'" in deployed.json()["message"]) == (400, True)
    asked = foreign.post("/v1/chat/completions", json={"model": "ours-a", "messages": []})
    assert (asked.status_code, "ours-a" in asked.json()["error"]["message"]) == (404, True)
    assert "deployed: none" in asked.json()["error"]["message"]
    key = {"name": "functions.py", "unique_key": "reward-1", "func": "Score"}
    assert foreign.post("/api/v1/fine-tunes/create/reward", json=key).status_code == 400


def test_the_owner_still_has_everything(served: Server, ids: dict[str, str]) -> None:
    """Last in this file: none of the calls above has changed a thing."""
    assert served.job(ids["job_id"])["status"] == "SUCCEEDED"
    assert served.http.get(f"/files/{ids['file_id']}").status_code == 200
    assert served.http.get(f"/functions/{ids['entity_id']}").status_code == 200
    assert served.get("/deployments/ours-a")["capacity"] == 1
    assert served.http.get("/models/ours").status_code == 200
    assert served.http.get("/models/stolen").status_code == 404


def _without_ids(message: str, ids: dict[str, str]) -> str:
    for value in ids.values():
        message = message.replace(value, "ID").replace(value[:-3] + "zzz", "ID")
    return message
