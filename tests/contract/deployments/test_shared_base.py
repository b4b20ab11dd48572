"""LoRA deployments of one base: one set of replicas, and each deployment as if it had its own."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from fakes.sampler import until
from strop.store.models import register_model

from .conftest import Plane

Hello = Callable[..., dict[str, Any]]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def loras(plane: Plane, tmp_path: Path, base: Path) -> list[str]:
    """Names of three models whose adapters are of one base. Their replicas answer with their names."""
    names = ["cat", "dog", "owl"]
    with plane.database.write() as session:
        for name in names:
            adapter = tmp_path / name / "adapter"
            adapter.mkdir(parents=True)
            (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
            (tmp_path / name / "config.json").write_text("{}")
            register_model(session, name, str(tmp_path / name))
    return names


async def said(client: openai.AsyncOpenAI, arguments: dict[str, Any]) -> str | None:
    return (await client.chat.completions.create(**arguments)).choices[0].message.content


async def test_deployments_of_one_base_are_adapters_of_one_replica(
    plane: Plane, hello: Hello, loras: list[str], base: Path
) -> None:
    names = [await plane.deploy(model_name=one) for one in loras]
    (replica,) = plane.barracks.started
    assert (replica.spec.source, replica.spec.shared) == (str(base), True)
    assert replica.models[1:] == names == ["cat-a", "dog-a", "owl-a"]
    client = plane.client(path="/compatible-mode/v1")
    assert [await said(client, hello(one)) for one in names] == loras
    assert [one.id for one in (await client.models.list()).data] == names
    shown = await plane.output("GET", "/deployments/dog-a")
    assert (shown["status"], shown["capacity"], shown["ready_capacity"]) == ("RUNNING", 1, 1)


async def test_another_workspace_has_a_base_of_its_own(plane: Plane, hello: Hello, loras: list[str]) -> None:
    await plane.deploy(model_name="cat")
    body = {"model_name": "dog", "suffix": "b"}
    made = await plane.call("POST", "/api/v1/deployments", body, key=plane.other_key)
    assert made.status_code == 200
    await until(lambda: plane.fleets.num_ready("dog-b") == 1)
    assert [one.models[1:] for one in plane.barracks.started] == [["cat-a"], ["dog-b"]]
    for key, model in ((plane.key, "dog-b"), (plane.other_key, "cat-a")):
        with pytest.raises(openai.NotFoundError):
            await said(plane.client(key), hello(model))


async def test_answers_under_way_notice_nothing_of_deployments_that_come_and_go(
    plane: Plane, hello: Hello, loras: list[str]
) -> None:
    await plane.deploy(model_name="cat")
    await plane.deploy(model_name="dog")
    (replica,) = plane.barracks.started
    script = replica.adapters["cat"]
    script.answer = lambda ids, params: "one two three"
    script.allow(1)
    stream = await plane.client().chat.completions.create(**hello("cat-a", stream=True))
    text = (await anext(aiter(stream))).choices[0].delta.content or ""
    await plane.deploy(model_name="owl")
    assert await said(plane.client(), hello("owl-a")) == "owl"
    await plane.output("DELETE", "/deployments/dog-a")
    await until(lambda: replica.models[1:] == ["cat-a", "owl-a"])
    with pytest.raises(openai.NotFoundError):
        await said(plane.client(), hello("dog-a"))
    script.allow(1000)
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    assert text == "one two three"
    assert plane.barracks.started == [replica]
    assert not replica.exited.is_set()


async def test_a_deleted_one_finishes_its_answers_and_the_last_one_ends_the_replica(
    plane: Plane, hello: Hello, loras: list[str]
) -> None:
    for one in ("cat", "dog"):
        await plane.deploy(model_name=one)
    (replica,) = plane.barracks.started
    script = replica.adapters["cat"]
    script.allow(0)
    call = asyncio.create_task(said(plane.client(), hello("cat-a")))
    await until(lambda: len(script.submitted) == 1)
    await plane.output("DELETE", "/deployments/cat-a")
    assert await said(plane.client(), hello("dog-a")) == "dog"
    assert replica.models[1:] == ["cat-a", "dog-a"]
    script.allow(1000)
    assert await call == "cat"
    await until(lambda: replica.models[1:] == ["dog-a"])
    await plane.output("DELETE", "/deployments/dog-a")
    await until(lambda: plane.barracks.alive == [])
    assert replica.stopped
    again = await plane.deploy(model_name="cat", suffix="z")
    assert await said(plane.client(), hello(again)) == "cat"
    assert len(plane.barracks.started) == 2


async def test_a_replica_that_died_comes_back_with_every_adapter(
    plane: Plane, hello: Hello, loras: list[str]
) -> None:
    names = [await plane.deploy(model_name=one) for one in loras]
    await plane.barracks.started[0].die()
    await until(
        lambda: all(plane.fleets.num_ready(one) for one in names) and len(plane.barracks.started) == 2
    )
    assert [await said(plane.client(), hello(one)) for one in names] == loras
    await plane.restart()
    await until(lambda: all(plane.fleets.num_ready(one) == 1 for one in names))
    assert sorted(plane.barracks.started[2].models[1:]) == names
    assert len(plane.barracks.started) == 3


async def test_the_base_has_as_many_replicas_as_the_most_that_is_wanted(
    plane: Plane, loras: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    await plane.deploy(model_name="cat")
    await plane.deploy(model_name="dog", capacity=3)
    assert len(plane.barracks.alive) == 3
    assert [one.spec.num_threads for one in plane.barracks.started] == [12, 4, 4]
    await until(lambda: all(one.models[1:] == ["cat-a", "dog-a"] for one in plane.barracks.alive))
    shown = await plane.output("GET", "/deployments/cat-a")
    assert (shown["capacity"], shown["ready_capacity"]) == (1, 1)
    await plane.output("PUT", "/deployments/dog-a/scale", {"capacity": 2})
    await until(lambda: len(plane.barracks.alive) == 2)
    await plane.output("DELETE", "/deployments/dog-a")
    await until(lambda: len(plane.barracks.alive) == 1)
    assert plane.fleets.num_ready("cat-a") == 1


async def test_limits_and_counts_are_each_deployments_own(
    plane: Plane, hello: Hello, loras: list[str]
) -> None:
    await plane.deploy(model_name="cat", rpm_limit=1)
    await plane.deploy(model_name="dog")
    client = plane.client()
    assert await said(client, hello("cat-a")) == "cat"
    with pytest.raises(openai.RateLimitError):
        await said(client, hello("cat-a"))
    assert [await said(client, hello("dog-a")) for _ in range(3)] == ["dog"] * 3

    def calls() -> dict[str, dict[int, int]]:
        return {name: dict(one.traffic.calls) for name, one in plane.fleets.all().items()}

    # A call is counted just after its client has the answer.
    await until(lambda: calls() == {"cat-a": {200: 1}, "dog-a": {200: 3}})


async def test_one_that_its_base_cannot_carry_gets_a_replica_of_its_own(
    plane: Plane, hello: Hello, loras: list[str], tmp_path: Path
) -> None:
    plane.barracks.unusable["dog"] = "this is not its base"
    await plane.deploy(model_name="cat")
    await plane.deploy(model_name="dog")
    shared, own = plane.barracks.alive
    assert (own.spec.shared, own.spec.source) == (False, str(tmp_path / "dog"))
    assert shared.models[1:] == ["cat-a"]
    assert await said(plane.client(), hello("dog-a")) == "hello"
    await plane.output("DELETE", "/deployments/dog-a")
    await until(lambda: plane.barracks.alive == [shared])


async def test_a_base_that_has_gone_leaves_each_model_on_its_own(
    plane: Plane, loras: list[str], base: Path
) -> None:
    await plane.deploy(model_name="cat")
    shutil.rmtree(base)
    plane.barracks.refusals = ["nothing there"] * 3
    await plane.barracks.started[0].die()
    await until(lambda: plane.barracks.started[-1].spec.source.endswith("cat"))
    await plane.until_status("cat-a", "RUNNING")
    await plane.deploy(model_name="dog")
    assert [one.spec.shared for one in plane.barracks.alive] == [False, False]


async def test_one_at_which_its_base_fails_holds_up_no_other(
    plane: Plane, hello: Hello, loras: list[str]
) -> None:
    plane.barracks.broken.add("cat")
    await plane.deploy(model_name="owl")
    await plane.deploy(model_name="cat")
    await plane.deploy(model_name="dog")
    shared, own = plane.barracks.alive
    assert (own.spec.shared, shared.models[1:]) == (False, ["owl-a", "dog-a"])
    assert await said(plane.client(), hello("dog-a")) == "dog"


async def test_an_adapter_that_could_not_be_dropped_at_once_is_dropped_later(
    plane: Plane, loras: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("cat", "dog"):
        await plane.deploy(model_name=one)
    (replica,) = plane.barracks.started
    post, lost = aiohttp.ClientSession.post, list[str]()

    def losing_the_first(self: aiohttp.ClientSession, url: str, **more: Any) -> Any:
        if url.endswith("/unload_lora_adapter") and not lost:
            lost.append(url)
            raise aiohttp.ServerDisconnectedError
        return post(self, url, **more)

    monkeypatch.setattr(aiohttp.ClientSession, "post", losing_the_first)
    monkeypatch.setattr("strop.service.shared_base._AGAIN_S", 0.01)
    await plane.output("DELETE", "/deployments/dog-a")
    await until(lambda: replica.models[1:] == ["cat-a"])
    assert len(lost) == 1
