"""Arguments and inputs of a local function -> calls in a real worker -> what is shown of their outputs.

What the commands on local functions share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.text import t, told
from strop.errors import FunctionError
from strop.schema.function import (
    INPUT_OF,
    FunctionInput,
    FunctionOutput,
    FunctionType,
    GroupRewardOutput,
    Reward,
    RewardOutput,
    RolloutOutput,
)

if TYPE_CHECKING:
    from strop.functions.testing import Said
    from strop.schema.reply import FunctionReply
    from strop.workers.instance import Instance
    from strop.workers.size import PoolSize
    from strop.workers.spec import WorkerSpec


ClassPath = Annotated[
    str,
    typer.Argument(
        metavar="CLASSPATH",
        help=t("pkg.mod.Class, or path/file.py:Class."),
    ),
]
TypeOption = Annotated[
    FunctionType | None,
    typer.Option(
        "--type",
        help=t("Must agree with the class; taken from it if left out."),
    ),
]
RootOption = Annotated[
    Path,
    typer.Option(
        "--root",
        file_okay=False,
        exists=True,
        help=t("Folder that the classpath and the imports start from."),
    ),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help=t("Seconds one call may take."))]

START_LIMIT_S = 600.0
GRACE_S = 2.0


def spec_of(classpath: str, root: Path, timeout: float) -> WorkerSpec:
    from strop.workers.spec import WorkerSpec

    name = classpath.replace(":", ".").rpartition(".")[2] or classpath
    return WorkerSpec(name=name, classpath=classpath, root=root.resolve(), timeout_s=timeout)


@asynccontextmanager
async def local_instance(
    spec: WorkerSpec, *, job_id: str = "local-test", size: PoolSize | None = None
) -> AsyncGenerator[Instance]:
    """An instance that is not started yet; what runs of it is gone at the end."""
    from strop.workers.instance import Instance, new_client

    async with new_client() as client:
        instance = Instance(
            spec,
            job_id=job_id,
            client=client,
            on_line=print_line,
            grace_s=GRACE_S,
            start_limit_s=START_LIMIT_S,
            size=size,
        )
        try:
            yield instance
        finally:
            await instance.close()


def print_line(_component: str, stream: str, text: str) -> None:
    """What a function prints goes to stderr: stdout is for results."""
    print(f"{stream} | {text}", file=sys.stderr, flush=True)


def refuse_contradiction(found: FunctionType, wanted: FunctionType | None, spec: WorkerSpec) -> None:
    if wanted is not None and wanted is not found:
        raise typer.BadParameter(
            t("{name} is a {found} function, not a {wanted} one", name=spec.name, found=found, wanted=wanted),
            param_hint="--type",
        )


def parsed_object(text: str) -> dict[str, Any]:
    """Raises typer.BadParameter for what is no JSON object."""
    try:
        values: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(t("no valid JSON: {error}", error=error), param_hint="--input") from error
    if not isinstance(values, dict):
        found = type(values).__name__
        raise typer.BadParameter(
            t("expected a JSON object, found {found}", found=found),
            param_hint="--input",
        )
    return cast("dict[str, Any]", values)


def decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(t("no valid JSON: {error}", error=error), param_hint="--input") from error


def typed_input(func_type: FunctionType, values: dict[str, Any]) -> FunctionInput:
    from pydantic import ValidationError

    from strop.functions import validation_text
    from strop.functions.ark import input_of_body, is_ark_body
    from strop.functions.hints import input_hints

    given = values.get("func_type", func_type)
    if given != func_type:
        raise typer.BadParameter(
            t(
                "its func_type is {given}, but the class is a {func_type} function",
                given=given,
                func_type=func_type,
            ),
            param_hint="--input",
        )
    if func_type is FunctionType.GROUP_REWARD and is_ark_body(values):
        try:
            values = input_of_body(values)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--input") from error
    else:
        for hint in input_hints(func_type, values):
            typer.echo(t("warning: {hint}", hint=hint), err=True)
    try:
        return INPUT_OF[func_type].model_validate({**values, "func_type": func_type})
    except ValidationError as error:
        raise typer.BadParameter(validation_text(error, show_values=False), param_hint="--input") from error


def told_missing(func_type: FunctionType | None, values: dict[str, Any]) -> str | None:
    """After a call that failed: what the input lacks that every run gives, with an example."""
    from strop.functions.hints import missing_input

    if func_type is None or (missing := missing_input(func_type, values)) is None:
        return None
    example = {
        FunctionType.ROLLOUT: '{"messages": [{"role": "user", "content": "..."}]}',
        FunctionType.REWARD: '{"agent_output": {"messages": [{"role": "assistant", "content": "..."}]}}',
        FunctionType.GROUP_REWARD: '{"agent_outputs": [{"messages": [{"role": "assistant", "content": "..."}]}]}',
    }[func_type]
    return t(
        "the input has no {missing}, which every run gives: the function may fail for "
        "that alone\n  fix: give it, e.g. {example}",
        missing=missing,
        example=example,
    )


def json_text(reply: FunctionReply) -> str:
    if reply.output is not None:
        # Asked as Ark asks, so answered as Ark answers.
        ark = (reply.output.model_extra or {}).get("ark_reply")
        return json.dumps(ark, ensure_ascii=False) if ark is not None else reply.output.model_dump_json()
    return json.dumps(
        {"status": "failed", "error": reply.error, "error_code": reply.error_code}, ensure_ascii=False
    )


def pretty(output: FunctionOutput, latency_s: float) -> list[str]:
    """For people: what was scored or said, a line each."""
    lines = [f"{output.status.value} ({latency_s * 1000:.0f} ms)"]
    if isinstance(output, RewardOutput):
        lines += _reward_lines(output.reward)
    elif isinstance(output, GroupRewardOutput):
        for index, reward in enumerate(output.reward.rewards):
            lines += [f"[{index}]", *_reward_lines(reward)]
    elif output.agent_output is not None:
        for message in output.agent_output.messages or []:
            lines.append(f"  {message.get('role', '?'):<10} {message_text(message)}")
        for name in ("rollout_metrics", "rollout_extra", "reward_score"):
            value = getattr(output.agent_output, name)
            if value not in (None, {}):
                lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    for name, value in (output.model_extra or {}).items():
        if name == "ark_reply":
            continue
        lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False, default=str)}")
    return lines


def _reward_lines(reward: Reward) -> list[str]:
    metrics = [f"  {name:<20} {value:g}" for name, value in (reward.reward_metrics or {}).items()]
    return [f"  {'reward_score':<20} {reward.reward_score:g}", *metrics]


def message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    calls = message.get("tool_calls")
    return f"{text} {json.dumps(calls, ensure_ascii=False)}".strip() if calls else text


_AT_ONCE = 16


@dataclass(slots=True)
class Policy(AbstractContextManager["Policy"]):
    """The model that rollouts ask: scripted, or somewhere else, or named in each row."""

    script: Path | None
    url: str | None
    name: str
    _models: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def given(self) -> bool:
        return self.script is not None or self.url is not None

    def __exit__(self, *exc_info: object) -> None:
        self._models.close()

    def resource(self) -> dict[str, Any] | None:
        """For one more row; each has a script of its own."""
        if self.script is not None:
            from strop.functions.testing import ScriptedModel

            model = self._models.enter_context(ScriptedModel(read_script(self.script)))
            return {"model_name": model.model_name, "base_url": model.base_url, "api_key": "scripted-model"}
        if self.url is not None:
            key = os.environ.get("OPENAI_API_KEY", "none")
            return {"model_name": self.name, "base_url": self.url, "api_key": key}
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One row and what came of it."""

    values: dict[str, Any]
    reply: FunctionReply


def read_rows(text: str) -> list[dict[str, Any]]:
    """Raises typer.BadParameter with the number of a line that is no object."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(parsed_object(line))
            except typer.BadParameter as error:
                raise typer.BadParameter(
                    t("line {number}: {message}", number=number, message=error.message),
                    param_hint="--input",
                ) from error
    if not rows:
        raise typer.BadParameter(t("no rows"), param_hint="--input")
    return rows


def read_script(path: Path) -> list[str | Said]:
    """A list whose entries are texts, or objects with `text`, `tool_calls` [{name, arguments}] and
    `finish_reason`."""
    try:
        lines: object = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(lines, list):
            raise ValueError("expected a list")
        return [_said(line) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--script") from error


def _said(line: Any) -> str | Said:
    from strop.functions.testing import Said, ToolCall

    if isinstance(line, str):
        return line
    unknown = set(line) - {"text", "tool_calls", "finish_reason"}
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}; expected text, tool_calls, finish_reason")
    calls = tuple(ToolCall(call["name"], call["arguments"]) for call in line.get("tool_calls", ()))
    return Said(text=line.get("text", ""), tool_calls=calls, finish_reason=line.get("finish_reason"))


async def try_rows(
    spec: WorkerSpec, wanted: FunctionType | None, rows: list[dict[str, Any]], policy: Policy
) -> list[Tried]:
    """Every row through one real worker, several at once.

    Raises:
        typer.Exit: the function does not start; it was told why. typer.BadParameter: a row that is no input.
    """
    async with local_instance(spec) as instance:
        try:
            kind = await instance.start()
            refuse_contradiction(kind, wanted, spec)
            inputs = [_completed(row, kind, policy, number) for number, row in enumerate(rows, 1)]
            gate = asyncio.Semaphore(_AT_ONCE)

            async def one(values: dict[str, Any]) -> Tried:
                async with gate:
                    return Tried(values=values, reply=await instance.call(typed_input(kind, values)))

            tried = await asyncio.gather(*(one(values) for values in inputs))
            _tell_missing(kind, tried)
            return tried
        except FunctionError as error:
            typer.echo(f"not_started: {told(error.told)}", err=True)
            raise typer.Exit(1) from error


def _tell_missing(kind: FunctionType, tried: list[Tried]) -> None:
    """Of the first row that failed and lacks what every run gives."""
    for number, one in enumerate(tried, 1):
        missing = None if one.reply.ok else told_missing(kind, one.values)
        if missing is not None:
            typer.echo(t("row {number}: {missing}", number=number, missing=missing), err=True)
            return


def _completed(row: dict[str, Any], kind: FunctionType, policy: Policy, number: int) -> dict[str, Any]:
    """A row of a dataset made an input: with the truth that stands in its extra, and with a model."""
    values = dict(row)
    extra = values.get("rollout_extra") or values.get("extra")
    if isinstance(extra, dict) and values.get("ground_truth") is None:
        values["ground_truth"] = extra.get("ground_truth")
    if kind is FunctionType.ROLLOUT:
        if isinstance(extra, dict):
            values["rollout_extra"] = extra
        if (resource := policy.resource()) is not None:
            values["model_resource"] = resource
        elif "model_resource" not in values:
            raise typer.BadParameter(
                t("row {number} names no model_resource; give --script or --model-url", number=number),
                param_hint="--input",
            )
        values.setdefault("request_metadata", _metadata(number))
    try:
        typed_input(kind, values)
    except typer.BadParameter as error:
        raise typer.BadParameter(
            t("row {number}: {message}", number=number, message=error.message), param_hint="--input"
        ) from error
    return values


def _metadata(number: int) -> dict[str, str]:
    return {
        "job_id": "local-test",
        "sample_id": f"row-{number}",
        "rollout_id": f"row-{number}",
        "attempt_id": "1",
    }


def show_rows(tried: list[Tried], *, as_json: bool, save: Path | None) -> int:
    """Print them. Returns the exit status: 1 where a row failed."""
    if save is not None:
        save.write_text("".join(_reward_input(one) for one in tried), encoding="utf-8")
    if as_json:
        for one in tried:
            typer.echo(json_text(one.reply))
    else:
        _print_table(tried)
    return 0 if all(one.reply.ok for one in tried) else 1


def _reward_input(one: Tried) -> str:
    output = one.reply.output
    if not isinstance(output, RolloutOutput) or output.agent_output is None:
        return ""
    agent_output = output.agent_output.model_dump(mode="json")
    values = {"agent_output": agent_output, "ground_truth": one.values.get("ground_truth")}
    return json.dumps(values, ensure_ascii=False) + "\n"


def _print_table(tried: list[Tried]) -> None:
    table = Table(t("row"), t("status"), t("result"), t("metrics"), "ms")
    for number, one in enumerate(tried, 1):
        reply = one.reply
        status = "ok" if reply.ok else reply.error_code or "failed"
        result = reply.error or ""
        metrics = ""
        if reply.ok and reply.output is not None:
            result, metrics = _told(reply.output)
        table.add_row(str(number), status, result[:200], metrics, f"{reply.latency_s * 1000:.0f}")
    Console(markup=False, emoji=False).print(table)
    latencies = sorted(one.reply.latency_s for one in tried)
    num_ok = sum(one.reply.ok for one in tried)
    scores = [score for one in tried for score in _scores(one.reply.output)]
    mean = f", {t('mean reward')} {sum(scores) / len(scores):.4g}" if scores else ""
    middle = latencies[(len(latencies) - 1) // 2]
    typer.echo(
        t("{num_ok} of {num_tried} ok", num_ok=num_ok, num_tried=len(tried))
        + f"{mean}, p50 {middle * 1000:.0f} ms, max {latencies[-1] * 1000:.0f} ms"
    )


def _told(output: FunctionOutput) -> tuple[str, str]:
    if isinstance(output, RewardOutput):
        return f"{output.reward.reward_score:g}", _numbers(output.reward.reward_metrics)
    if isinstance(output, GroupRewardOutput):
        rewards = output.reward.rewards
        return " ".join(f"{reward.reward_score:g}" for reward in rewards), ""
    agent_output = output.agent_output
    if agent_output is None:
        return "", ""
    last = (agent_output.messages or [{}])[-1]
    return message_text(last), _numbers(agent_output.rollout_metrics)


def _scores(output: FunctionOutput | None) -> list[float]:
    if isinstance(output, RewardOutput):
        return [output.reward.reward_score]
    if isinstance(output, GroupRewardOutput):
        return [reward.reward_score for reward in output.reward.rewards]
    return []


def _numbers(metrics: dict[str, float] | None) -> str:
    return " ".join(f"{name}={value:g}" for name, value in (metrics or {}).items())
