"""What runs left behind, bit for bit: to say that two of them, or one and its two halves, are the same.

`from fakes.run_record import record`.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from strop.learners.local.checkpoint import read_manifest
from strop.store.database import open_database
from strop.store.metrics import step_metrics
from strop.store.trajectories import get_trajectory, list_trajectories
from strop.tracing.metrics import metric

CLOCK_UNITS = {"s", "ms", "ms/token", "tokens/s", "tokens/s/device", "share of time"}
"""Units of metrics that a clock decides."""

OF_THE_ORDER = {"perf/prefix_hit_rate"}
"""What the engine finds in its cache depends on the order in which agents call."""


@dataclass
class Record:
    """Metrics as the bits of each value; turns as all that was sampled, by step and rollout."""

    metrics: dict[tuple[int, str], bytes] = field(default_factory=dict[tuple[int, str], bytes])
    turns: dict[tuple[int, str, str], list[Any]] = field(
        default_factory=dict[tuple[int, str, str], list[Any]]
    )

    def steps(self) -> list[int]:
        return sorted({step for step, _ in self.metrics})

    def up_to(self, step: int) -> Record:
        return Record(
            {key: value for key, value in self.metrics.items() if key[0] <= step},
            {key: value for key, value in self.turns.items() if key[0] <= step},
        )


def record(database: Path, *job_ids: str, last_step: int | None = None) -> Record:
    """What the jobs recorded, later ones over earlier ones; of the first only steps up to `last_step`."""
    found = Record()
    opened = open_database(f"sqlite:///{database}")
    with opened.read() as session:
        for number, job_id in enumerate(job_ids):
            one = _record_of(session, job_id)
            if number == 0 and last_step is not None:
                one = one.up_to(last_step)
            found.metrics |= one.metrics
            found.turns |= one.turns
    opened.close()
    return found


def _record_of(session: Any, job_id: str) -> Record:
    found = Record()
    for name, curve in step_metrics(session, job_id).items():
        if metric(name).unit not in CLOCK_UNITS and name not in OF_THE_ORDER:
            found.metrics |= {(step, name): struct.pack("<d", value) for step, value in curve}
    after = None
    while True:
        page = list_trajectories(session, job_id, after=after)
        for one in page.items:
            rollout_id = one.trajectory.rollout_id
            turns = get_trajectory(session, job_id, rollout_id).trajectory.turns
            # Calls made at once end in any order.
            found.turns[one.step, one.split, rollout_id] = sorted(
                (
                    turn.prompt_ids,
                    turn.completion_ids,
                    struct.pack(f"<{len(turn.behaviour_logprobs)}d", *turn.behaviour_logprobs),
                    turn.policy_versions,
                )
                for turn in turns
            )
        if not page.more:
            return found
        after = page.next


def checkpoint_bits(folder: Path) -> dict[str, Any]:
    """Every tensor of a checkpoint with its bits, the trainer's state, and the position without the job."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            for name in content.keys():  # noqa: SIM118 - it is no mapping
                value = content.get_tensor(name)
                bits = value.contiguous().flatten().view(torch.uint8).numpy().tobytes()
                found[f"{file.relative_to(folder)}:{name}"] = (str(value.dtype), tuple(value.shape), bits)
    for file in sorted((folder / "trainer").glob("*.json")):
        found[file.name] = json.loads(file.read_text())
    manifest = read_manifest(folder)
    position = {key: value for key, value in manifest.position.items() if key != "job_id"}
    return {**found, "step": manifest.step, "version": manifest.policy_version, "position": position}
