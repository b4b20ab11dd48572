"""Each kind of event arrives as it was published, at every subscriber, in order."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args

import pytest

from strop.errors import StoppedByDiagnosis
from strop.rl.interfaces import Recorder
from strop.schema.job import JobStatus
from strop.schema.run_event import (
    CheckpointRemoved,
    CheckpointSaved,
    Noted,
    PhaseAdvanced,
    RolloutsFinished,
    RunEvent,
    StatusChanged,
    StepMeasured,
)
from strop.tracing.event_bus import EventBus


class Heard:
    def __init__(self, name: str, log: list[tuple[str, RunEvent]]) -> None:
        self.name, self.log = name, log

    def receive(self, event: RunEvent) -> None:
        self.log.append((self.name, event))


def test_every_call_of_the_loop_becomes_one_event_at_each_subscriber_in_order():
    log: list[tuple[str, RunEvent]] = []
    bus: Recorder = EventBus(Heard("store", log), Heard("trackers", log))
    bus.status(JobStatus.FAILED, error="no disk")
    bus.metrics(1, {"actor/loss": 0.5})
    bus.trajectories(1, (), split="train")
    bus.checkpoint(2, Path("c"), policy_version=3, validation=0.5, published=True, best=False)
    bus.checkpoint_removed(Path("c"))
    bus.event("note", "so", step=2)
    bus.progress(2, "rollout", 3, 4)
    published: list[RunEvent] = [
        StatusChanged(status=JobStatus.FAILED, error="no disk"),
        StepMeasured(step=1, values={"actor/loss": 0.5}),
        RolloutsFinished(step=1, groups=(), split="train"),
        CheckpointSaved(
            step=2, folder=Path("c"), policy_version=3, validation=0.5, published=True, best=False
        ),
        CheckpointRemoved(folder=Path("c")),
        Noted(kind="note", message="so", step=2, data={}),
        PhaseAdvanced(step=2, phase="rollout", done=3, total=4),
    ]
    assert log == [(name, event) for event in published for name in ("store", "trackers")]
    assert {type(event) for event in published} == set(get_args(RunEvent))


def test_the_bus_has_exactly_the_methods_that_the_loop_calls():
    def methods(of: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

    assert methods(EventBus) - {"publish"} == methods(Recorder)


def test_a_subscriber_that_ends_the_run_is_heard_by_the_loop():
    class Examiner:
        def receive(self, event: RunEvent) -> None:
            raise StoppedByDiagnosis("enough")

    log: list[tuple[str, RunEvent]] = []
    with pytest.raises(StoppedByDiagnosis, match="enough"):
        EventBus(Heard("store", log), Examiner()).metrics(1, {})
    assert [name for name, _ in log] == ["store"]
