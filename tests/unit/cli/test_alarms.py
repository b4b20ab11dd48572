"""Notes that the database refuses reach the command all the same, and only those."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rich.console import Console

from fakes.recorder import FakeRecorder
from strop.cli.alarms import AlarmingRecorder, alarm_to
from strop.cli.follow import Alarms
from strop.server.settings import Settings
from strop.server.supervisor.trainers import Trainers


class Store(FakeRecorder):
    """Says of each event whether the database took it."""

    def __init__(self, *answers: bool) -> None:
        super().__init__()
        self.answers = list(answers)

    def taken(self) -> bool:
        return self.answers.pop(0)


def test_a_note_that_is_not_taken_is_an_alarm_and_is_recorded_as_well() -> None:
    store: Any = Store(False)
    alarms: SimpleQueue[str] = SimpleQueue()
    AlarmingRecorder(store, alarms.put).event("checkpoint_failed", "the disk is full", step=3)
    assert alarms.get(timeout=30) == "the disk is full"
    assert store.events == [("checkpoint_failed", "the disk is full", 3)]


def test_a_note_that_is_taken_is_none() -> None:
    store: Any = Store(True, False)
    alarms: SimpleQueue[str] = SimpleQueue()
    recorder = AlarmingRecorder(store, alarms.put)
    recorder._tell("taken")
    recorder._tell("not taken")
    assert alarms.get(timeout=30) == "not taken"
    assert alarms.empty()


def test_an_alarm_goes_through_the_pipe_whole_and_into_one_that_nobody_reads_without_harm() -> None:
    ours, theirs = os.pipe()
    alarm = alarm_to(theirs)
    alarm("two\nlines")
    assert os.read(ours, 100) == b'"two\\nlines"\n'
    assert not os.get_inheritable(theirs)
    os.close(ours)
    alarm("nobody")
    os.close(theirs)


def test_the_command_hears_a_trainer_that_was_started_with_a_pipe(tmp_path: Path) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    trainer = tmp_path / "trainer.py"
    trainer.write_text(
        "import os, sys\nfd = int(sys.argv[sys.argv.index('--alarms') + 1])\n"
        f"os.write(fd, {json.dumps(json.dumps('full'))}.encode() + b'\\nnonsense\\n\"more\"\\n')\n"
    )
    settings = Settings(home=tmp_path, owner="me", on_alarm=heard.put)
    trainers = Trainers(settings, (sys.executable, str(trainer)))
    trainers.start("ft-1", device=None)
    assert [heard.get(timeout=60) for _ in range(2)] == ["full", "more"]
    trainers.end()


def test_what_was_heard_is_shown_once() -> None:
    console = Console(record=True, width=80, force_terminal=False)
    alarms = Alarms(console)
    alarms.heard("the disk is full")
    assert "the disk is full" in alarms.told
    assert console.export_text().endswith("the disk is full\n")
