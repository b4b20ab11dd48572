"""Deployments through the API: made, listed, scaled, deleted, and found again."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx
import pytest

from fakes.sampler import until
from strop.schema.model import Lineage, ModelKind, NamedModel
from strop.store.models import record_model

from .conftest import Plane


async def test_a_deployment_is_pending_then_deploying_and_runs_when_a_replica_answers(plane: Plane) -> None:
    plane.barracks.may_start.clear()
    made = await plane.output(
        "POST", "/deployments", {"model_name": "tiny", "capacity": 2, "suffix": "a", "plan": "mu"}
    )
    assert made["deployed_model"] == "tiny-a"
    assert made["status"] == "PENDING"
    assert (made["capacity"], made["ready_capacity"], made["base_capacity"]) == (2, 0, 1)
    assert (made["model_name"], made["base_model"], made["creator"]) == ("tiny", "tiny", "ada")
    await plane.until_status("tiny-a", "DEPLOYING")
    plane.barracks.may_start.set()
    shown = await plane.until_status("tiny-a", "RUNNING")
    await until(lambda: plane.fleets.num_ready("tiny-a") == 2)
    assert "error_message" not in shown
    assert plane.barracks.started[0].spec.source == "/models/tiny"


async def test_without_a_suffix_names_differ_and_with_a_taken_one_it_is_409(plane: Plane) -> None:
    names = {
        (await plane.output("POST", "/deployments", {"model_name": "tiny"}))["deployed_model"] for _ in "ab"
    }
    assert len(names) == 2
    await plane.deploy(suffix="x")
    refused = await plane.call("POST", "/api/v1/deployments", {"model_name": "tiny", "suffix": "x"})
    assert (refused.status_code, refused.json()["code"]) == (409, "Conflict")


async def test_the_bundled_model_may_be_deployed_by_each_of_its_names(plane: Plane) -> None:
    body = {"model_name": "HuggingFaceTB/SmolLM2-135M-Instruct", "suffix": "a"}
    made = await plane.output("POST", "/deployments", body)
    assert (made["deployed_model"], made["model_name"]) == ("smollm2-135m-a", "smollm2-135m")


async def test_what_a_client_sends_and_this_server_has_no_use_for_is_said(plane: Plane) -> None:
    body = {"model_name": "tiny", "capacity": None, "suffix": None, "plan": "Lora", "template_id": "t1"}
    made = await plane.output("POST", "/deployments", body)
    assert made["message"] == "without effect on this server: template_id"
    assert (made["plan"], made["capacity"]) == ("lora", 1)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"model_name": "qwen9"}, "there is no model 'qwen9'; there are: smollm2-135m, tiny"),
        ({}, "model_name"),
        ({"model_name": "tiny", "capacity": 0}, "capacity"),
        ({"model_name": "tiny", "capacity": 65}, "capacity"),
        ({"model_name": "tiny", "capacity": "two"}, "capacity"),
        ({"model_name": "tiny", "suffix": "../up"}, "suffix"),
        ({"model_name": "tiny", "model_version": "2"}, "give it as model_name, such as NAME-v2"),
        ({"model_name": "tiny", "plan": "gold"}, "expected one of mu, cu, lora, ptu"),
        ({"model_name": "tiny", "rpm_limit": 0}, "rpm_limit"),
        ({"model_name": "tiny", "colour": "red"}, "colour"),
        ({"model_name": "/etc"}, "there is no model '/etc'"),
    ],
)
async def test_what_cannot_be_deployed_is_400_with_the_reason(plane: Plane, body: dict, told: str) -> None:
    refused = await plane.call("POST", "/api/v1/deployments", body)
    assert refused.status_code == 400
    assert told in refused.json()["message"]
    assert plane.barracks.started == []


async def test_lists_are_pages_of_the_own_workspace_newest_first(plane: Plane) -> None:
    for suffix in "abc":
        await plane.deploy(suffix=suffix)
    listed = await plane.output("GET", "/deployments?page_no=1&page_size=2")
    assert [one["deployed_model"] for one in listed["deployments"]] == ["tiny-c", "tiny-b"]
    assert (listed["page_no"], listed["page_size"], listed["total"]) == (1, 2, 3)
    other = await plane.call("GET", "/api/v1/deployments", key=plane.other_key)
    assert other.json()["output"]["deployments"] == []
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/stream"),
        ("PUT", "/scale"),
        ("PUT", "/update"),
    ):
        body = {"capacity": 1} if path == "/scale" else {} if path == "/update" else None
        hidden = await plane.call(method, f"/api/v1/deployments/tiny-a{path}", body, key=plane.other_key)
        assert (hidden.status_code, hidden.json()["code"]) == (404, "NotFound")


async def test_scaling_starts_and_ends_replicas(plane: Plane) -> None:
    name = await plane.deploy()
    scaled = await plane.output("PUT", f"/deployments/{name}/scale", {"deployed_model": name, "capacity": 3})
    assert scaled["capacity"] == 3
    await until(lambda: plane.fleets.num_ready(name) == 3)
    await plane.output("PUT", f"/deployments/{name}/scale", {"capacity": 1})
    await until(lambda: len(plane.barracks.alive) == 1)
    refused = await plane.call("PUT", f"/api/v1/deployments/{name}/scale", {"capacity": 0})
    assert refused.status_code == 400


async def test_a_deleted_deployment_ends_its_replicas_and_is_gone(plane: Plane) -> None:
    name = await plane.deploy(capacity=2)
    assert (await plane.output("DELETE", f"/deployments/{name}"))["status"] == "success"
    await until(lambda: plane.barracks.alive == [])
    assert all(one.stopped for one in plane.barracks.started)
    while (await plane.call("GET", f"/api/v1/deployments/{name}")).status_code != 404:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (await plane.call("DELETE", f"/api/v1/deployments/{name}")).status_code == 404


async def test_one_that_cannot_start_has_failed_and_says_why_and_scaling_tries_again(plane: Plane) -> None:
    plane.barracks.refusals = ["the model in '/models/tiny' cannot be loaded"] * 3
    made = await plane.output("POST", "/deployments", {"model_name": "tiny", "suffix": "a"})
    failed = await plane.until_status(made["deployed_model"], "FAILED")
    assert (
        failed["error_message"] == "a replica could not start: the model in '/models/tiny' cannot be loaded"
    )
    await plane.output("PUT", "/deployments/tiny-a/scale", {"capacity": 1})
    assert "error_message" not in await plane.until_status("tiny-a", "RUNNING")


async def test_a_server_that_starts_again_starts_its_deployments(plane: Plane) -> None:
    name = await plane.deploy(capacity=2, rpm_limit=7)
    await plane.restart()
    await until(lambda: plane.fleets.num_ready(name) == 2)
    shown = await plane.until_status(name, "RUNNING")
    assert (shown["capacity"], shown["rpm_limit"]) == (2, 7)
    assert len(plane.barracks.started) == 4


async def test_the_stream_tells_its_states_until_it_runs(plane: Plane) -> None:
    plane.barracks.may_start.clear()
    await plane.output("POST", "/deployments", {"model_name": "tiny", "suffix": "a"})
    states: list[str] = []
    headers = {"authorization": f"Bearer {plane.key}"}
    async with httpx.AsyncClient(timeout=20) as client:
        async with client.stream(
            "GET", f"{plane.url}/api/v1/deployments/tiny-a/stream", headers=headers
        ) as told:
            assert told.headers["content-type"].startswith("text/event-stream")
            async for line in told.aiter_lines():
                if line:
                    assert line.startswith("data:{")
                    states.append(json.loads(line.removeprefix("data:"))["status"])
                    plane.barracks.may_start.set()
    assert states[-1] == "RUNNING"
    assert set(states) <= {"PENDING", "DEPLOYING", "RUNNING"}


async def test_models_lists_what_may_be_deployed(plane: Plane) -> None:
    listed = await plane.output("GET", "/models?page_no=1&page_size=1")
    assert (listed["total"], [one["model_name"] for one in listed["models"]]) == (2, ["tiny"])
    second = await plane.output("GET", "/models?page_no=2&page_size=1")
    assert [one["model_name"] for one in second["models"]] == ["smollm2-135m"]
    assert (await plane.output("GET", "/deployments/models?model_source=custom"))["models"] == []
    assert (await plane.output("GET", "/models/tiny"))["model_source"] == "base"
    assert (await plane.call("GET", "/api/v1/models/other")).status_code == 404
    assert (await plane.call("DELETE", "/api/v1/models/tiny")).status_code == 403


async def test_a_published_model_is_not_removed_while_it_is_deployed(plane: Plane) -> None:
    lineage = Lineage(
        job_id="job-1", step=3, checkpoint_id="job-1-step-3", policy_version=3, base_model="tiny", digest="d"
    )
    model = NamedModel(
        name="mine",
        kind=ModelKind.PUBLISHED,
        source="/models/mine",
        workspace_id="default",
        lineage=lineage,
        created_at=datetime.now(UTC),
    )
    with plane.database.write() as session:
        record_model(session, model)
    hidden = await plane.call("POST", "/api/v1/deployments", {"model_name": "mine"}, key=plane.other_key)
    assert hidden.status_code == 400
    name = await plane.deploy(model_name="mine")
    assert (await plane.output("GET", f"/deployments/{name}"))["base_model"] == "tiny"
    refused = await plane.call("DELETE", "/api/v1/models/mine")
    assert (refused.status_code, refused.json()["code"]) == (409, "Conflict")
    assert f"deployed as {name}" in refused.json()["message"]
    await plane.output("DELETE", f"/deployments/{name}")
    while (await plane.call("DELETE", "/api/v1/models/mine")).status_code != 200:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (await plane.call("GET", "/api/v1/models/mine")).status_code == 404
