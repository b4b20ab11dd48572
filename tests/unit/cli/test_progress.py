"""What a person sees of a run, on a console that is a file."""

import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from strop.cli.progress import Heartbeat, LiveProgress
from strop.locales import FromOldStore, msg
from strop.tracing.event_bus import EventBus


def shown(*calls: tuple[int, dict[str, float]]) -> list[str]:
    out = io.StringIO()
    live = LiveProgress(Console(file=out, width=200))
    live.total_steps = 4
    with live:
        for step, values in calls:
            live.metrics(step, values)
    return out.getvalue().splitlines()


def test_a_step_is_one_line_with_reward_validation_rates_and_what_is_left() -> None:
    step = {
        "critic/rewards/mean": 0.42,
        "perf/sampled_tokens": 2240.0,
        "perf/sampling_tokens_per_s": 311.6,
        "perf/trained_tokens": 3000.0,
        "timing/s/update_actor": 20.0,
    }
    before, line = shown((0, {"validation/data/reward/mean@1": 0.12}), (2, step))
    assert before == "before training        validation 0.12"
    for part in (
        "step   2/4",
        "reward 0.42",
        "sampled 2,240 tok at 312/s",
        "trained 3,000 tok at 150/s",
        "left",
    ):
        assert part in line


def test_a_step_of_a_distillation_tells_the_distance_to_the_teacher_where_nothing_is_rewarded() -> None:
    step = {"critic/rewards/mean": math.nan, "actor/distillation/loss": 0.25, "perf/sampled_tokens": 9.0}
    (line,) = shown((1, step))
    assert "distance to the teacher 0.25" in line
    assert "reward" not in line
    (line,) = shown((1, {**step, "critic/rewards/mean": 0.5}))
    assert "reward 0.50" in line


def test_a_validation_stands_on_its_own_line_when_it_comes_after_the_step() -> None:
    lines = shown((1, {"critic/rewards/mean": 0.5}), (1, {"validation/data/reward/mean@1": 0.75}))
    assert "validation 0.75" in lines[-1]


def test_what_was_not_measured_is_a_dash_never_a_zero() -> None:
    (line,) = shown((1, {"critic/rewards/mean": 0.5, "perf/sampled_tokens": math.nan}))
    assert "sampled - tok" in line


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("en", "note  stopped after step 6 of 18: validation reached its target (0.92, target 0.9)"),
        ("zh", "提示  在第 6 步（共 18 步）之后停止：验证达到目标（0.92，目标 0.9）"),
    ],
)
def test_an_early_end_is_told_in_the_readers_language(monkeypatch, language: str, line: str) -> None:
    monkeypatch.setenv("STROP_LANG", language)
    out = io.StringIO()
    text = FromOldStore(
        "stopped after step 6 of 18: validation reached its target (0.92, target 0.9)",
        "在第 6 步（共 18 步）之后停止：验证达到目标（0.92，目标 0.9）",
    )
    LiveProgress(Console(file=out, width=200)).note(text)
    assert out.getvalue().splitlines() == [line]


@pytest.mark.parametrize(("language", "line"), [("en", "loading the teacher"), ("zh", "加载教师模型")])
def test_what_takes_long_beforehand_is_told_in_the_readers_language(
    monkeypatch, language: str, line: str
) -> None:
    monkeypatch.setenv("STROP_LANG", language)
    out = io.StringIO()
    LiveProgress(Console(file=out, width=200)).say(msg("loading the teacher"))
    assert out.getvalue().splitlines() == [line]


def test_an_event_reaches_every_subscriber() -> None:
    out = [io.StringIO(), io.StringIO()]
    several = EventBus(*(LiveProgress(Console(file=file, width=200)) for file in out))
    several.metrics(1, {"validation/data/reward/mean@1": 0.75})
    several.checkpoint(
        3, Path("c/step-000003"), policy_version=3, validation=None, published=True, best=False
    )
    for file in out:
        assert "validation 0.75" in file.getvalue()
        assert "step-000003" in file.getvalue()


def test_what_takes_long_is_told_where_there_is_no_terminal_how_far_it_is_and_for_how_long() -> None:
    said: list[str] = []
    clock = [0.0]
    heartbeat = Heartbeat(said.append, now=lambda: clock[0])

    def at(second: float) -> list[str]:
        clock[0] = second
        heartbeat.beat()
        return said

    assert at(100) == []  # nothing is being done
    heartbeat.busy("converting m")
    heartbeat.printed()
    assert at(119) == []
    assert at(120) == ["converting m   0:20"]
    assert at(139) == ["converting m   0:20"]
    heartbeat.busy("validating", "3/40")
    heartbeat.busy("validating", "12/40")
    assert at(140)[1:] == ["validating   12/40   0:01"]
    heartbeat.printed()
    assert len(at(159)) == 2
    assert at(230)[2:] == ["validating   12/40   1:31"]
    heartbeat.idle()
    assert len(at(999)) == 3


def test_a_run_without_a_terminal_is_busy_with_what_it_said_and_then_with_its_phases(monkeypatch) -> None:
    monkeypatch.setattr("strop.cli.progress.EVERY_S", 0.0)
    out = io.StringIO()
    live = LiveProgress(Console(file=out, width=200))
    live.say("converting m to safetensors")
    live._heartbeat.beat()
    live.progress(0, "validation", 2, 40)
    live._heartbeat.beat()
    live.progress(0, "validation", 40, 40)
    live._heartbeat.beat()
    live.progress(1, "update", 0, 1)
    live._heartbeat.beat()
    lines = [line.split("   ")[:-1] for line in out.getvalue().splitlines()]
    assert [[part.strip() for part in line if part.strip()] for line in lines] == [
        [],
        ["converting m to safetensors"],
        ["validating", "2/40"],
        ["updating"],
    ]


@pytest.mark.parametrize(("language", "word"), [("en", "validating"), ("zh", "验证")])
def test_a_terminal_shows_the_phase_beside_the_steps(monkeypatch, language, word) -> None:
    monkeypatch.setenv("STROP_LANG", language)
    out = io.StringIO()
    live = LiveProgress(Console(file=out, width=120, force_terminal=True))
    with live:
        live.say("starting the functions")
        live._bars.refresh()
        assert "starting the functions ━" in re.sub("\x1b[^m]*m", "", out.getvalue())
        live.progress(0, "validation", 12, 40)
        live._bars.refresh()
        shown = re.sub("\x1b[^m]*m", "", out.getvalue())
        assert re.search(rf"{word} ━+.*12/40 0:00:0", shown)
        live.progress(0, "validation", 40, 40)
        out.truncate(0)
        live._bars.refresh()
        assert word not in out.getvalue()
