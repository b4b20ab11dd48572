"""Recorder calls -> a live terminal: step, reward, validation, tokens per second, time left.

One of the recorders a run talks to. Where the output is no terminal it prints one line a step instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from strop.cli.text import t
from strop.schema.job import JobStatus
from strop.schema.trajectory import Group

_REWARD = "critic/rewards/mean"
_VALIDATION = "validation/data/reward/mean@1"
_PHASES = {
    "rollout": ("sampling", "采样"),
    "reward": ("scoring", "打分"),
    "validation": ("validating", "验证"),
    "update": ("updating", "更新"),
}


class LiveProgress:
    """Shows a run of `total_steps` steps, to be set before it is entered around the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.total_steps = 0
        self._started = time.monotonic()
        self._first_step_s: float | None = None
        self._validation = math.nan
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._steps: TaskID | None = None
        self._phase: TaskID | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        self._steps = self._bars.add_task(t("step", "步"), total=self.total_steps, note="")
        self._phase = self._bars.add_task("", total=None, note="", visible=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Tell of something that takes a while, before the run begins."""
        self._console.print(text, style="dim", highlight=False)

    def status(self, status: JobStatus, *, error: str | None = None) -> None:
        if status is JobStatus.RUNNING:
            self._started = time.monotonic()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        validation = values.get(_VALIDATION, math.nan)
        if not math.isnan(validation):
            self._validation = validation
        if step == 0:
            self._console.print(
                t(f"before training   validation {validation:.2f}", f"训练前   验证 {validation:.2f}")
            )
            self._first_step_s = time.monotonic()
            return
        self._console.print(self._line(step, values, validation), highlight=False)
        if self._steps is not None:
            self._bars.update(self._steps, completed=step, note=self._time_left(step))

    def _line(self, step: int, values: Mapping[str, float], validation: float) -> str:
        def number(name: str) -> float:
            return values.get(name, math.nan)

        checked = "    " if math.isnan(validation) else f"{validation:.2f}"
        sampled, rate = number("perf/sampled_tokens"), number("perf/sampling_tokens_per_s")
        trained, seconds = number("perf/trained_tokens"), number("timing/s/update_actor")
        trained_rate = trained / seconds if seconds > 0 else 0.0
        return t(
            f"step {step:>3}/{self.total_steps}   reward {number(_REWARD):.2f}   validation {checked}   "
            f"sampled {_count(sampled)} tok at {_count(rate)}/s   trained {_count(trained)} tok at {_count(trained_rate)}/s   "
            f"{self._time_left(step)}",
            f"第 {step:>3}/{self.total_steps} 步   奖励 {number(_REWARD):.2f}   验证 {checked}   "
            f"采样 {_count(sampled)} tok，{_count(rate)}/秒   训练 {_count(trained)} tok，{_count(trained_rate)}/秒   "
            f"{self._time_left(step)}",
        )

    def _time_left(self, step: int) -> str:
        begun = self._first_step_s or self._started
        left = (time.monotonic() - begun) / max(step, 1) * (self.total_steps - step)
        minutes, seconds = divmod(round(left), 60)
        return t(f"{minutes}:{seconds:02d} left", f"还剩 {minutes}:{seconds:02d}")

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        pass  # nothing to show: the metrics of the same step say what came of them

    def checkpoint(
        self, step: int, folder: Path, *, policy_version: int, validation: float | None, published: bool
    ) -> None:
        self._console.print(
            t(f"checkpoint of step {step}: {folder}", f"第 {step} 步的检查点：{folder}"), highlight=False
        )

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        self._console.print(f"[yellow]{t('note', '提示')}[/]  {message}", highlight=False, soft_wrap=True)

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        if self._phase is not None:
            name = t(*_PHASES.get(phase, (phase, phase)))
            self._bars.update(
                self._phase, description=name, completed=done, total=total, visible=done < total
            )


def _count(number: float) -> str:
    """Thousands with a comma; a dash where nothing was measured."""
    return "-" if math.isnan(number) else f"{number:,.0f}"
