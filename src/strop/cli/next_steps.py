"""How a run ended -> what to type next, as it can be typed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.cli.text import t


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """`strop run` as its user typed it: the file under the name that they gave it, and what may be typed again.

    `overrides` and `given_by` are those of `config.loading.load_job`: who gave a value is an option's name or
    `--set`.
    """

    job: Path
    overrides: dict[str, object] = field(default_factory=dict[str, object])
    given_by: dict[str, str] = field(default_factory=dict[str, str])
    out: Path | None = None
    resume: str | None = None
    accept_changes: bool = False

    def text(self, *, resume: str | None = None) -> str:
        """The command as it can be typed again; `resume` goes before the one that was given."""
        words = [program(), "run", shlex.quote(str(self.job))]
        for key, value in self.overrides.items():
            option = self.given_by.get(key, "--set")
            words.append(
                shlex.join(["--set", f"{key}={value}"] if option == "--set" else [option, str(value)])
            )
        if self.out is not None:
            words.append(shlex.join(["--out", str(self.out)]))
        chosen = self.resume if resume is None else resume
        if chosen is not None:
            words.append(shlex.join(["--resume", chosen]))
            words += ["--accept-changes"] * self.accept_changes
        return " ".join(words)


def program() -> str:
    """This program as its user called it; `strop` where the shell finds this very one by that name."""
    called = Path(sys.argv[0])
    if called.parts[-3:] == ("strop", "cli", "__main__.py"):
        return "python -m strop.cli"
    if called.name != "strop":
        return "strop"
    found = shutil.which("strop")
    if found is not None and os.path.realpath(found) == os.path.realpath(called):
        return "strop"
    return shlex.quote(str(called))


def after(told: Mapping[str, Any], command: RunCommand) -> list[str]:
    """Lines on how a run ended that did not fail, with what can be done now."""
    job_id, steps, name, checkpoint = (told[key] for key in ("job_id", "steps", "published_as", "checkpoint"))
    lines = [f"{job_id}   {told['status']}   " + t("{steps} steps", steps=steps)]
    if told["status"] == "CANCELED":
        lines += continuation(command, resume=job_id if checkpoint is not None else None)
    if checkpoint is not None:
        lines.append(_line(t("talk to it"), f"{program()} chat {shlex.quote(str(name or checkpoint))}"))
    if name is not None:
        lines.append(_line(t("serve it"), f"{program()} serve {shlex.quote(str(name))}"))
    return lines


def continuation(command: RunCommand, *, resume: str | None) -> list[str]:
    """How to continue a run that was stopped; `resume` is what it can be resumed from, if anything."""
    if resume is not None:
        return [_line(t("resume"), command.text(resume=resume))]
    return [
        t("no step was finished, so there is nothing to resume"),
        _line(t("begin again"), command.text()),
    ]


def after_failure(command: RunCommand, *, job_id: str, resume: str | None) -> str:
    """What to do once the reason is fixed; `resume` as above."""
    return "\n".join(
        [
            _line(t("its log"), f"{program()} jobs logs {job_id}"),
            _line(t("once fixed"), command.text(resume=resume)),
        ]
    )


def _line(what: str, command: str) -> str:
    return f"{what}:  {command}"
