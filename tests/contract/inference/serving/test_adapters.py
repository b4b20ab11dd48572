"""A served base that takes adapters while it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from fakes.lora import save_lora_model
from fakes.model import save_tiny_model
from fakes.sampler import FakeSampler
from fakes.serving import Shop, served_model
from fakes.tokenizer import tiny_tokenizer
from strop.inference.chat.sampler import Sampler
from strop.inference.local import Engine, check_base, read_adapter

Hello = Callable[..., dict[str, Any]]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return save_lora_model(save_tiny_model(tmp_path / "base"), tmp_path / "mine", seed=1)


@pytest.fixture
async def sharing(engine: Engine, tmp_path: Path) -> AsyncIterator[Shop]:
    """Serves the tiny model and whatever adapters it is told to."""

    def read(folder: Path) -> Sampler:
        change = read_adapter(folder / "adapter")
        check_base(change, base=tmp_path / "base", merged=folder)
        return engine.adapted(change)

    made = Shop(served_model(engine, tiny_tokenizer(), max_length=200), api_key="right", read=read)
    await made.open()
    yield made
    await made.close()


async def asked(shop: Shop, what: str, body: dict[str, str], *, key: str = "right") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        headers = {"authorization": f"Bearer {key}"}
        return await client.post(f"{shop.address}/v1/{what}_lora_adapter", json=body, headers=headers)


async def last_of(stream: Any) -> Any:
    return [chunk async for chunk in stream][-1]


async def test_an_adapter_is_added_asked_and_taken_away(sharing: Shop, published: Path, hello: Hello) -> None:
    told = {"lora_name": "mine", "lora_path": str(published)}
    assert (await asked(sharing, "load", told)).status_code == 200
    client = sharing.client()
    greedy = {"temperature": 0, "max_tokens": 12, "logprobs": True}
    own, base = [
        (await client.chat.completions.create(**{**hello(**greedy), "model": name}))
        for name in ("mine", "tiny")
    ]
    assert (own.model, base.model) == ("mine", "tiny")
    assert own.choices[0].message.content != base.choices[0].message.content
    assert own.system_fingerprint != base.system_fingerprint
    assert [one.id for one in (await client.models.list()).data] == ["tiny", "mine"]
    assert (await asked(sharing, "load", told)).status_code == 200
    assert (await asked(sharing, "load", {**told, "lora_path": "/"})).status_code == 400
    assert (await asked(sharing, "load", {**told, "lora_name": "tiny"})).status_code == 400
    assert (await asked(sharing, "unload", {"lora_name": "mine"})).status_code == 200
    with pytest.raises(openai.NotFoundError, match="served: 'tiny'"):
        await client.chat.completions.create(**{**hello(), "model": "mine"})
    assert (await asked(sharing, "unload", {"lora_name": "mine"})).status_code == 404


async def test_what_is_not_of_this_base_is_refused_with_the_reason(
    sharing: Shop, published: Path, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path / "base", seed=1)
    refused = await asked(sharing, "load", {"lora_name": "mine", "lora_path": str(published)})
    assert refused.status_code == 400
    assert "is not the base of" in refused.json()["error"]["message"]
    missing = await asked(sharing, "load", {"lora_name": "mine", "lora_path": str(tmp_path / "none")})
    assert "cannot be read" in missing.json()["error"]["message"]
    assert (
        await asked(sharing, "load", {"lora_name": "x", "lora_path": "/"}, key="wrong")
    ).status_code == 401
    assert [one.name for one in sharing.models.all()] == ["tiny"]


async def test_a_model_alone_has_no_such_address(shop: Shop) -> None:
    assert (await asked(shop, "load", {"lora_name": "x", "lora_path": "/"})).status_code == 404


async def test_calls_of_a_model_that_is_taken_away_end_with_an_error_and_others_go_on(
    script: FakeSampler, hello: Hello
) -> None:
    other = FakeSampler(script.tokenizer)
    shop = Shop(served_model(script, script.tokenizer), read=lambda folder: other)
    await shop.open()
    await asked(shop, "load", {"lora_name": "mine", "lora_path": "/"})
    client = shop.client()
    for sampler in (script, other):
        sampler.allow(1)
    going, leaving = [
        await client.chat.completions.create(**{**hello(stream=True), "model": name})
        for name in ("tiny", "mine")
    ]
    await asked(shop, "unload", {"lora_name": "mine"})
    with pytest.raises(openai.APIError, match="is stopping"):
        await last_of(leaving)
    script.allow(1000)
    assert (await last_of(going)).choices[0].finish_reason == "stop"
    await shop.close()
