"""Many inputs of one function -> a table of what came of each, and how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.function_options import (
    local_instance,
    parsed_object,
    refuse_contradiction,
    told_missing,
    typed_input,
)
from strop.cli.function_output import json_text, message_text
from strop.cli.text import t
from strop.errors import FunctionError
from strop.functions.testing import Said, ScriptedModel, ToolCall
from strop.schema.function import FunctionOutput, FunctionType, GroupRewardOutput, RewardOutput, RolloutOutput
from strop.schema.reply import FunctionReply
from strop.workers.spec import WorkerSpec

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
                    t(f"line {number}: {error.message}", f"第 {number} 行：{error.message}"),
                    param_hint="--input",
                ) from error
    if not rows:
        raise typer.BadParameter(t("no rows", "没有数据行"), param_hint="--input")
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
            typer.echo(f"not_started: {error}", err=True)
            raise typer.Exit(1) from error


def _tell_missing(kind: FunctionType, tried: list[Tried]) -> None:
    """Of the first row that failed and lacks what every run gives."""
    for number, one in enumerate(tried, 1):
        missing = None if one.reply.ok else told_missing(kind, one.values)
        if missing is not None:
            typer.echo(t(f"row {number}: {missing}", f"第 {number} 行：{missing}"), err=True)
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
                t(
                    f"row {number} names no model_resource; give --script or --model-url",
                    f"第 {number} 行没有 model_resource；请给出 --script 或 --model-url",
                ),
                param_hint="--input",
            )
        values.setdefault("request_metadata", _metadata(number))
    try:
        typed_input(kind, values)
    except typer.BadParameter as error:
        raise typer.BadParameter(
            t(f"row {number}: {error.message}", f"第 {number} 行：{error.message}"), param_hint="--input"
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
    table = Table(t("row", "行"), t("status", "状态"), t("result", "结果"), t("metrics", "指标"), "ms")
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
    mean = f", {t('mean reward', '平均奖励')} {sum(scores) / len(scores):.4g}" if scores else ""
    middle = latencies[(len(latencies) - 1) // 2]
    typer.echo(
        t(f"{num_ok} of {len(tried)} ok", f"{len(tried)} 行中 {num_ok} 行成功")
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
