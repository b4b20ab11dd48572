"""What one program may use: one frozen value, counted in the units its fields name."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20

OVERSUBSCRIPTION = 4
"""Programs that run at once for each processor: many of them wait for something."""

_DATA_SLACK_BYTES = 512 * MIB
"""Beyond its memory, what a process may map where only the init process counts: a bound for sudden growth."""

_HARD_WALL_FACTOR, _HARD_WALL_S = 10.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`time_s` bounds the time in which a program ran, slept or waited for something other than a processor;
    `cpu_factor` times as much is what all its processes and threads together may compute.

    Time spent ready to run while others had the processors is not the program's: load does not change a
    verdict. So that nothing lives on that for ever, wall time is bounded too, far above.
    """

    time_s: float = 10.0
    cpu_factor: float = 1.0
    memory_bytes: int = 1024 * MIB
    processes: int = 256
    file_bytes: int = 256 * MIB
    output_bytes: int = MIB

    @property
    def hard_wall_s(self) -> float:
        return self.time_s * _HARD_WALL_FACTOR + _HARD_WALL_S

    def told(self, *, alone: bool) -> dict[str, float]:
        """As a box's init process takes them; `alone` where no control group stands behind it."""
        return {
            "cpu_s": self.time_s * self.cpu_factor,
            "wall_s": self.time_s,
            "hard_wall_s": self.hard_wall_s,
            "processes": self.processes,
            "file_bytes": self.file_bytes,
            "output_bytes": self.output_bytes,
            "memory_bytes": self.memory_bytes,
            "data_bytes": self.memory_bytes + _DATA_SLACK_BYTES if alone else 0,
        }
