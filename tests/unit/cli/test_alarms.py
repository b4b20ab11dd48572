"""Notes that the database refuses reach the command all the same, and only those."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from fakes.recorder import FakeRecorder
from strop.bilingual import both
from strop.cli.alarms import AlarmingRecorder, alarm_to
from strop.cli.follow import Alarms, Following
from strop.schema.job import Event
from strop.schema.responses import EventInfo
from strop.service.settings import Settings
from strop.service.supervisor.trainers import Trainers

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Store(FakeRecorder):
    """Says of each event whether the database took it; a second passes between two."""

    wants_chinese = False

    def __init__(self, *answers: bool) -> None:
        super().__init__()
        self.answers = list(answers)
        self.now = NOON

    def note(self, kind: str, message: str, **more: Any) -> Event:
        self.event(kind, message, **more)
        self.now += timedelta(seconds=1)
        return Event(job_id="ft-1", kind=kind, message=message, step=more["step"], created_at=self.now)

    def taken(self) -> bool:
        return self.answers.pop(0)


def at(second: int) -> int:
    return int((NOON + timedelta(seconds=second)).timestamp())


def full(second: int) -> EventInfo:
    when = NOON + timedelta(seconds=second)
    return EventInfo(kind="checkpoint_failed", message="the disk is full", time=when)


class Lines:
    """What the live display says of events."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def event(self, kind: str, message: str, **_: Any) -> None:
        self.said.append((kind, message))


def test_a_note_that_is_not_taken_is_an_alarm_and_is_recorded_as_well() -> None:
    store: Any = Store(False)
    alarms: list[tuple[str, str, int]] = []
    recorder = AlarmingRecorder(store, lambda *note: alarms.append(note))
    recorder.event("checkpoint_failed", both("the disk is full", "磁盘已满"), step=3)
    recorder.wait()
    assert alarms == [("the disk is full", "磁盘已满", at(1))]
    assert store.events == [("checkpoint_failed", "the disk is full", 3)]


def test_a_note_that_is_taken_is_none_and_the_next_with_its_words_is_told_apart() -> None:
    store: Any = Store(True, False, True)
    alarms: list[tuple[str, str, int]] = []
    recorder = AlarmingRecorder(store, lambda *note: alarms.append(note))
    for _ in range(3):
        recorder.event("checkpoint_failed", "the disk is full")
        recorder.wait()
    assert alarms == [("the disk is full", "the disk is full", at(2))]


def test_the_last_alarm_is_waited_for() -> None:
    answer = threading.Event()

    class Slow(Store):
        def taken(self) -> bool:
            answer.wait(30)
            return False

    store: Any = Slow()
    alarms: list[tuple[str, str, int]] = []
    recorder = AlarmingRecorder(store, lambda *note: alarms.append(note))
    recorder.event("ended", "the disk was full to the last")
    assert alarms == []
    waiting = threading.Thread(target=recorder.wait)
    waiting.start()
    answer.set()
    waiting.join(30)
    assert alarms == [("the disk was full to the last", "the disk was full to the last", at(1))]


def test_an_alarm_goes_through_the_pipe_whole_and_into_one_that_nobody_reads_without_harm() -> None:
    ours, theirs = os.pipe()
    alarm = alarm_to(theirs)
    alarm("two\nlines", "", 3)
    assert os.read(ours, 100) == b'["two\\nlines", "", 3]\n'
    assert not os.get_inheritable(theirs)
    os.close(ours)
    alarm("nobody", "", 1)
    os.close(theirs)


def test_alarms_that_are_longer_than_the_pipe_come_whole_from_threads_that_give_them_at_once() -> None:
    ours, theirs = os.pipe()
    alarm = alarm_to(theirs)
    notes = [(letter * 300_000, "", number) for number, letter in enumerate("abcd", start=1)]
    threads = [threading.Thread(target=alarm, args=note) for note in notes]
    for thread in threads:
        thread.start()
    with os.fdopen(ours, "rb") as lines:
        heard = [tuple(json.loads(lines.readline())) for _ in notes]
    for thread in threads:
        thread.join()
    os.close(theirs)
    assert sorted(heard) == notes


def test_the_command_hears_a_trainer_that_was_started_with_a_pipe(tmp_path: Path) -> None:
    heard: list[tuple[str, str, int]] = []
    trainer = tmp_path / "trainer.py"
    trainer.write_text(
        "import os, sys\nfd = int(sys.argv[sys.argv.index('--alarms') + 1])\n"
        f"os.write(fd, {json.dumps(json.dumps(['full', 'zh', 1]))}.encode()"
        ' + b\'\\nnonsense\\n["full", "zh", 2]\\n\')\n'
    )
    settings = Settings(home=tmp_path, owner="me", on_alarm=lambda *note: heard.append(note))
    trainers = Trainers(settings, (sys.executable, str(trainer)))
    trainers.start("ft-1")
    trainers.end()
    assert heard == [("full", "zh", 1), ("full", "zh", 2)]


def test_a_note_is_shown_once_whichever_way_it_came_and_a_later_one_with_its_words_again() -> None:
    console = Console(record=True, width=80, force_terminal=False)
    alarms = Alarms(console)
    live: Any = Lines()
    following = Following(live, console, told=alarms.told)
    first, second, third = (full(second) for second in (1, 2, 3))
    following.take(first)  # the database took the first
    alarms.heard("the disk is full", "磁盘已满", at(2))
    following.take(second)  # the second, once there is room again
    following.take(third)  # and the third
    assert live.said == [("checkpoint_failed", "the disk is full")] * 2
    assert console.export_text().endswith("the disk is full\n")


def test_a_trainer_that_was_started_again_is_not_taken_for_its_forerunner() -> None:
    """Both note the same words; the second one's reached the command by the pipe."""
    console = Console(record=True, width=80, force_terminal=False)
    alarms = Alarms(console)
    live: Any = Lines()
    following = Following(live, console, told=alarms.told)
    following.take(full(1))  # of the first trainer
    alarms.heard("the disk is full", "磁盘已满", at(60))
    following.take(full(60))
    assert live.said == [("checkpoint_failed", "the disk is full")]


def test_an_alarm_is_told_in_the_language_of_the_terminal(monkeypatch) -> None:
    monkeypatch.setenv("STROP_LANG", "zh")
    console = Console(record=True, width=80, force_terminal=False)
    Alarms(console).heard("the disk is full", "磁盘已满", at(1))
    assert console.export_text() == "提示  磁盘已满\n"
