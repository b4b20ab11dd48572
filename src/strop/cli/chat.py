"""`strop chat CHECKPOINT`: talk to a trained model in the terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli.text import t, told
from strop.errors import EngineError
from strop.schema.sampling import SamplingParams

if TYPE_CHECKING:
    from strop.inference.local import Engine


def chat(
    checkpoint: Annotated[
        str,
        typer.Argument(help=t("A checkpoint's folder, a published model's name, or any model.")),
    ],
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message",
            "-m",
            help=t("Say this, print the answer, stop. Repeatable: turns."),
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(help=t("System message."))] = None,
    temperature: Annotated[float, typer.Option(min=0, max=10, help=t("0 is greedy."))] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help=t("Longest answer."))] = 256,
    max_length: Annotated[int | None, typer.Option(min=2, help=t("Longest conversation, tokens."))] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help=t("With --message: print the messages as JSON."),
        ),
    ] = False,
) -> None:
    """"""
    from strop.inference.local import Engine, EngineConfig
    from strop.learners import models

    if as_json and not message:
        raise typer.BadParameter(t("--json needs --message"))

    try:
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    model, tokenizer = models.load(checkpoint, on_progress=lambda text: typer.echo(told(text), err=True))
    made_for = getattr(model.config, "max_position_embeddings", 2048)
    config = EngineConfig(max_length=max_length or min(2048, made_for), max_sequences=1)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    engine = Engine(model, tokenizer, config)
    engine.start()
    try:
        for said in message if message else _typed():
            messages.append({"role": "user", "content": said})
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            answer = asyncio.run(_answer(engine, ids, params, quiet=as_json))
            messages.append({"role": "assistant", "content": answer})
        if as_json:
            typer.echo(json.dumps(messages, ensure_ascii=False))
    except EngineError as error:
        error.fix = error.fix or t("raise --max-length or start over")
        raise
    finally:
        engine.close()


async def _answer(engine: Engine, ids: list[int], params: SamplingParams, *, quiet: bool) -> str:
    """Print the answer as it comes."""
    text = ""
    async for chunk in engine.submit(ids, params).chunks():
        text += chunk.text
        if not quiet:
            print(chunk.text, end="", flush=True)
    if not quiet:
        print()
    return text


def _typed():
    """Lines that the user types, until the end of input."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()
