"""`strop serve MODEL`: one model behind an OpenAI address, in one process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli.text import t
from strop.errors import ConfigError, Problem, StropError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from strop.inference.chat.sampler import Sampler
    from strop.inference.local import Engine
    from strop.inference.serving.models import ServedModel, ServedModels

LOOPBACK = ("127.0.0.1", "localhost", "::1")
DEFAULT_LENGTH = 4096
"""Tokens. What a model was made for may be far more than this machine has memory for."""


def serve(
    model: Annotated[
        str,
        typer.Argument(help=t("A published model's name, a checkpoint's folder, or any model.")),
    ],
    name: Annotated[
        str | None,
        typer.Option(help=t("What clients call it; MODEL if not given.")),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help=t("Address; others than loopback need a key.")),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help=t("0 takes a free one."))] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="STROP_SERVE_API_KEY",
            help=t("Key that clients must send. Prefer the environment: arguments show in process lists."),
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=2,
            envvar="STROP_SERVE_MAX_LENGTH",
            help=t(
                "Tokens of prompt and answer; if not given {default_length}, or what the model was made for.",
                default_length=DEFAULT_LENGTH,
            ),
        ),
    ] = None,
    max_sequences: Annotated[
        int,
        typer.Option(
            min=1,
            envvar="STROP_SERVE_MAX_SEQUENCES",
            help=t("Answers sampled together."),
        ),
    ] = 64,
    max_waiting: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="STROP_SERVE_MAX_WAITING",
            help=t("Answers that may wait; beyond it 429."),
        ),
    ] = 256,
    kv_memory: Annotated[
        float,
        typer.Option(
            min=0.001,
            envvar="STROP_SERVE_KV_MEMORY",
            help=t("GiB for keys and values at most."),
        ),
    ] = 2.0,
    channel: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """"""
    report, told = _supervised(channel)
    try:
        name = name or model
        api_key = told.get("api_key") or api_key or None
        refuse_open_door(host, api_key)
        from strop.inference.chat.endpoint import bind

        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        with bind(host, port) as listener:
            if report is None:
                typer.echo(t("loading {name} ...", name=name), err=True)
            served, engine = open_model(
                model,
                name,
                max_length=max_length,
                max_sequences=max_sequences,
                max_waiting=max_waiting,
                kv_memory_bytes=int(kv_memory * 2**30),
            )
            with engine:
                _answer(_models(served, engine, told.get("base")), listener, host, api_key, report)
    except StropError as error:
        if report is None:
            raise
        report(event="error", text=str(error))
        raise typer.Exit(1) from None


def _supervised(channel: int | None) -> tuple[Callable[..., None] | None, dict[str, Any]]:
    """A server's child reads what no process list should show from its channel, and ends with the server."""
    if channel is None:
        return None, {}
    from strop.processes.child import open_channel

    report, text = open_channel(channel)
    return report, json.loads(text)


def refuse_open_door(host: str, api_key: str | None) -> None:
    """Raises:
    ConfigError: anyone on the network could ask.
    """
    if api_key is None and host not in LOOPBACK:
        raise ConfigError(
            "strop serve",
            [
                Problem(
                    place="--host",
                    message=t("{host} is reachable from other machines", host=host),
                    fix=t("set STROP_SERVE_API_KEY, or leave --host out"),
                )
            ],
        )


def open_model(
    source: str,
    name: str,
    *,
    max_length: int | None,
    max_sequences: int,
    max_waiting: int,
    kv_memory_bytes: int,
) -> tuple[ServedModel, Engine]:
    """Load `source` into an engine that is not started yet, and make it ready to be asked.

    Raises:
        ModelError, EngineError: it cannot be loaded or sampled here.
    """
    from strop.inference.chat.render import Renderer
    from strop.inference.local import Engine, EngineConfig
    from strop.inference.serving.metrics import ServingMetrics
    from strop.inference.serving.models import Places, SamplingDefaults, ServedModel
    from strop.learners import models

    network, tokenizer = models.load(source, on_progress=lambda text: typer.echo(text, err=True))
    made_for = getattr(network.config, "max_position_embeddings", DEFAULT_LENGTH)
    engine = Engine(
        network,
        tokenizer,
        EngineConfig(
            max_length=max_length or min(DEFAULT_LENGTH, made_for),
            max_sequences=max_sequences,
            kv_memory_bytes=kv_memory_bytes,
            seed=secrets.randbits(63),
        ),
    )
    served = ServedModel(
        name=name,
        sampler=engine,
        renderer=Renderer(tokenizer),
        max_length=engine.max_length,
        places=Places(num_running=engine.capacity, num_waiting=max_waiting),
        metrics=ServingMetrics(lambda: readings(engine)),
        created=int(time.time()),
        fingerprint=f"strop-{name}",
        defaults=SamplingDefaults.of(getattr(network, "generation_config", None)),
        failure=lambda: engine.failure,
    )
    return served, engine


def _models(served: ServedModel, engine: Engine, base: str | None) -> ServedModels:
    """What the process serves. A replica that was told where its `base` lies takes adapters of it."""
    from strop.inference.local import check_base, read_adapter
    from strop.inference.serving.models import ServedModels

    if base is None:
        return ServedModels(served)

    def read(folder: Path) -> Sampler:
        change = read_adapter(folder / "adapter")
        check_base(change, base=Path(base), merged=folder)
        return engine.adapted(change)

    return ServedModels(served, read=read)


def readings(engine: Engine) -> dict[str, float]:
    """The engine's statistics under the names of `inference.serving.metrics`."""
    now = engine.stats()
    return {
        "strop_engine_running": now.num_running,
        "strop_engine_waiting": now.num_waiting,
        "strop_engine_steps": now.num_steps,
        "strop_engine_prefix_hit_tokens": now.num_prefix_hits,
        "strop_engine_busy_seconds": now.busy_s,
    }


def _answer(
    models: ServedModels,
    listener: socket.socket,
    host: str,
    api_key: str | None,
    report: Callable[..., None] | None,
) -> None:
    from strop.inference.serving.process import serve as answer

    served = models.base

    def ready(port: int) -> None:
        if report is not None:
            report(event="ready", port=port, pid=os.getpid())
            return
        shown = f"[{host}]" if ":" in host else host
        typer.echo(
            t("{name} answers at", name=served.name)
            + f" http://{shown}:{port}/v1  "
            + t(
                "({max_length} tokens, {num_running} at a time)",
                max_length=served.max_length,
                num_running=served.places.num_running,
            )
        )
        sys.stdout.flush()

    asyncio.run(answer(models, listener, api_key=api_key, on_ready=ready))
