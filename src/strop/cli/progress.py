"""Recorder calls -> a live terminal: step, reward, validation, tokens per second, time left.

One of the recorders a run talks to. Where the output is no terminal it prints one line a step instead, and from
time to time a line on what takes long.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from strop.cli.text import t, told
from strop.rl.offline import VALIDATION
from strop.rl.validation import MEAN_AT_1
from strop.schema.job import PHASE_WORDS, PLANNED_EVENT
from strop.schema.run_event import CheckpointSaved, PhaseAdvanced, RunEvent, StepMeasured

EVERY_S = 20.0
_LOOK_S = 1.0


class Heartbeat:
    """`busy` says what is being done, `idle` that nothing is, `printed` that a line was printed.

    Concurrency:
        Between `start` and `stop` a thread looks every second; `say` is called there.
    """

    def __init__(self, say: Callable[[str], None], *, now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._lock = threading.Lock()  # guards what stands below
        self._doing: str | None = None
        self._progress = ""
        self._since = self._last = now()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def busy(self, text: str, progress: str = "") -> None:
        """`progress` is how far it is, as `12/40`; the same text again keeps its start time."""
        with self._lock:
            if text != self._doing:
                self._doing, self._since = text, self._now()
            self._progress = progress

    def idle(self) -> None:
        with self._lock:
            self._doing = None

    def printed(self) -> None:
        with self._lock:
            self._last = self._now()

    def beat(self) -> None:
        """Say what is being done, how far it is and for how long, if it has been silent for `EVERY_S`."""
        with self._lock:
            now = self._now()
            if self._doing is None or now - self._last < EVERY_S:
                return
            self._last = now
            minutes, seconds = divmod(round(now - self._since), 60)
            parts = [self._doing, self._progress, f"{minutes}:{seconds:02d}"]
        self._say("   ".join(part for part in parts if part))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.beat()


_REWARD = "critic/rewards/mean"
_LOSS = "actor/loss"
_TAUGHT = "actor/distillation/loss"
_HELD_OUT = {MEAN_AT_1: ".2f", f"{VALIDATION}loss": ".4f"}
"""The measure of a validation, by the kind of training, and how it is shown."""

SILENT_EVENTS = frozenset({PLANNED_EVENT, "result", "refused", "inputs", "cancel_asked"})
"""Kinds of events that are not shown as notes: they are shown otherwise, or concern programs alone."""


class LiveProgress:
    """Shows a run of `total_steps` steps, to be set before it is entered around the run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.total_steps = 0
        self._began: tuple[float, int] | None = None
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._steps: TaskID | None = None
        self._phase: TaskID | None = None
        self._shown_phase = ""
        self._heartbeat = Heartbeat(lambda text: self._print(f"       {text}", style="dim"))

    def __enter__(self) -> Self:
        self._bars.start()
        self._steps = self._bars.add_task(t("step"), total=self.total_steps or None)
        self._phase = self._bars.add_task("", total=None, visible=False)
        if not self.console.is_terminal:
            self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the terminal back. Harmless when closed already."""
        self._heartbeat.stop()
        self._bars.stop()

    def _print(self, text: str, *, style: str | None = None) -> None:
        self._heartbeat.printed()
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def _show_phase(self, text: str, done: int, total: int | None) -> None:
        """The second bar: what the run is busy with now."""
        if self._phase is not None:
            if text != self._shown_phase:
                self._bars.reset(self._phase, total=total)
            self._shown_phase = text
            self._bars.update(self._phase, description=text, completed=done, total=total, visible=True)

    def _hide_phase(self) -> None:
        self._heartbeat.idle()
        if self._phase is not None:
            self._bars.update(self._phase, visible=False)

    def plan(self, total_steps: int) -> None:
        """Tell of how many steps the run is, once that is known."""
        self.total_steps = total_steps
        if self._steps is not None:
            self._bars.update(self._steps, total=total_steps)

    def say(self, text: str) -> None:
        """Tell of something that takes a while, before the run begins."""
        said = told(text)
        self._print(said, style="dim")
        self._heartbeat.busy(said)
        self._show_phase(said, 0, None)

    def receive(self, event: RunEvent) -> None:
        """Show what is shown while a run goes on; whoever started it reports its end."""
        match event:
            case StepMeasured(step=step, values=values):
                self.metrics(step, values)
            case CheckpointSaved(step=step, folder=folder, best=best):
                self.checkpoint(step, folder, best=best)
            case PhaseAdvanced(step=step, phase=phase, done=done, total=total):
                self.progress(step, phase, done, total)
            case _:
                pass

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """A step's own values, its validation and its saving come one by one."""
        for measure in _HELD_OUT.keys() & values.keys():
            value = format(values[measure], _HELD_OUT[measure])
            self._print(
                t("before training        validation {value}", value=value)
                if step == 0
                else t(
                    "after step {step:>3}/{total_steps}     validation {value}",
                    step=step,
                    total_steps=self.total_steps,
                    value=value,
                ),
                style="bold",
            )
        if any(name in values for name in (_REWARD, _TAUGHT, "lm/loss", "dpo/loss")):
            self._print(self._line(step, values))
            if self._steps is not None:
                self._bars.update(self._steps, completed=step)
        self._steps_since(step)

    def _steps_since(self, step: int) -> None:
        """Time left is judged by the steps of this sitting: a resumed run begins in the middle."""
        if self._began is None:
            self._began = (time.monotonic(), step)

    def _line(self, step: int, values: Mapping[str, float]) -> str:
        def number(name: str) -> float:
            return values.get(name, math.nan)

        sampled, rate = _count(number("perf/sampled_tokens")), _count(number("perf/sampling_tokens_per_s"))
        trained, seconds = number("perf/trained_tokens"), number("timing/s/update_actor")
        trained_rate = _count(trained / seconds if seconds > 0 else math.nan)
        # A teacher judges: rewards, where there are functions, are only measured.
        measured, score = t("reward"), number(_REWARD)
        if math.isnan(score) and _TAUGHT in values:
            measured, score = t("distance to the teacher"), number(_TAUGHT)
        of = f"/{self.total_steps}" if self.total_steps else ""
        head = t("step {step:>3}{of}", step=step, of=of)
        if _REWARD not in values and _TAUGHT not in values:
            return t(
                "{head}   loss {number:.4f}   trained {count} tok at {trained_rate}/s   {time_left}",
                head=head,
                number=number(_LOSS),
                count=_count(trained),
                trained_rate=trained_rate,
                time_left=self._time_left(step),
            )
        return t(
            "{head}   {measured} {score:.2f}   sampled {sampled} tok at {rate}/s   "
            "trained {count} tok at {trained_rate}/s   {time_left}",
            head=head,
            measured=measured,
            score=score,
            sampled=sampled,
            rate=rate,
            count=_count(trained),
            trained_rate=trained_rate,
            time_left=self._time_left(step),
        )

    def _time_left(self, step: int) -> str:
        if self._began is None or step <= self._began[1] or not self.total_steps:
            return ""
        since, first = self._began
        left = (time.monotonic() - since) / (step - first) * (self.total_steps - step)
        minutes, seconds = divmod(round(left), 60)
        return t("{minutes}:{seconds:02d} left", minutes=minutes, seconds=seconds)

    def checkpoint(self, step: int, folder: Path, *, best: bool) -> None:
        better = t(", the best so far") if best else ""
        self._print(t("checkpoint of step {step}{better}: {folder}", step=step, better=better, folder=folder))

    def note(self, message: str) -> None:
        """Something that the run's owner should know, in the middle of its steps."""
        self._print(f"{t('note')}  {told(message)}", style="yellow")

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        if done >= total:
            self._hide_phase()
            return
        name = told(PHASE_WORDS.get(phase, phase))
        # An update is one piece of work: how far it is nobody knows.
        self._heartbeat.busy(name, f"{done}/{total}" if total > 1 else "")
        self._show_phase(name, done, total)


def _count(number: float) -> str:
    """Thousands with a comma; a dash where nothing was measured."""
    return "-" if math.isnan(number) else f"{number:,.0f}"
