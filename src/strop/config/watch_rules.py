"""Trackers and diagnosis of a job -> what of them could not do what it says, each with the mend. For
`config.loading`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from strop.config.file import KeyPath
from strop.config.job import JobConfig
from strop.diagnosis.texts import RULES
from strop.schema.finding import Severity
from strop.trackers.extras import missing_extra


def watch_rules(config: JobConfig) -> Iterator[tuple[KeyPath, str, str]]:
    """The key's path, message and fix of everything that is wrong with `trackers` and `diagnosis`."""
    for index, tracker in enumerate(config.trackers):
        if (extra := missing_extra(tracker.type)) is not None:
            message = f"{tracker.type.value} is not installed where the job is trained"
            yield ("trackers", index, "type"), message, f"pip install 'strop[{extra}]'"
    asked = config.diagnosis
    if config.training_type.offline and (asked.stop_on or asked.webhook is not None):
        message = f"has no effect in training type {config.training_type.value}: the rules judge rollouts"
        yield ("diagnosis",), message, "remove it"
        return
    known = [*(one.value for one in Severity), *RULES]
    for index, word in enumerate(asked.stop_on):
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            fix = f"did you mean {near[0]!r}?" if near else "write alarm, warning, or a rule's name, e.g. P4"
            yield ("diagnosis", "stop_on", index), f"{word!r} is neither a rule nor a severity", fix
