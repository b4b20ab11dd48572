"""A function -> what its worker has to know, and the environment it runs in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.processes.limits import Limits
from strop.schema.function import FunctionType
from strop.tracing.content import SECRET_NAMES

_OWN_SETTINGS_PASSED_ON = frozenset({"STROP_HOME", "STROP_LANG"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One function as its worker sees it.

    `func_type=None` takes the type of the class. `timeout_s` is of one call; `concurrency` counts calls in
    flight in one worker and `limits` are of one worker. `params` are handed to the class when its object is
    made; `metric_weights` weigh its parts or metrics. `env` is secret: it is handed to the process and shown
    nowhere; so is `tracing`, the environment by which its spans find their way. `python` is the interpreter
    of a layer; None takes the one that runs this. `scratch` is the folder for temporary files of one worker,
    which its instance makes.
    """

    name: str
    classpath: str
    root: Path
    func_type: FunctionType | None = None
    timeout_s: float = 600.0
    concurrency: int = 64
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    tracing: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metric_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    python: Path | None = None
    limits: Limits = field(default_factory=Limits)
    scratch: Path | None = None

    def to_json(self, token: str) -> str:
        """What the worker reads from its channel; `env` comes to it as its environment."""
        return json.dumps(
            {
                "name": self.name,
                "classpath": self.classpath,
                "root": str(self.root),
                "func_type": self.func_type,
                "timeout_s": self.timeout_s,
                "concurrency": self.concurrency,
                "params": dict(self.params),
                "metric_weights": dict(self.metric_weights),
                "limits": self.limits.to_json(),
                "scratch": str(self.scratch) if self.scratch is not None else None,
                "token": token,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> tuple[WorkerSpec, str]:
        """Undo `to_json`. Returns the spec and the token."""
        values: dict[str, Any] = json.loads(text)
        token = values.pop("token")
        func_type, scratch = values.pop("func_type"), values.pop("scratch")
        spec = cls(
            root=Path(values.pop("root")),
            func_type=FunctionType(func_type) if func_type else None,
            limits=Limits(**values.pop("limits")),
            scratch=Path(scratch) if scratch else None,
            **values,
        )
        return spec, token


def worker_environment(spec: WorkerSpec, job_id: str) -> dict[str, str]:
    """The parent's environment without Strop's own settings (the database's address holds a password), and
    `env`. One BLAS thread: workers share the machine with the engine and with each other. The allocator's
    settings are the trainer's.
    """
    inherited = {
        key: value
        for key, value in os.environ.items()
        if (not key.startswith("STROP_") or key in _OWN_SETTINGS_PASSED_ON) and key != "GLIBC_TUNABLES"
    }
    defaults = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "STROP_JOB_ID": job_id}
    own = {"OTEL_SERVICE_NAME": spec.name, SECRET_NAMES: ",".join(spec.env)}
    scratch = {"TMPDIR": str(spec.scratch)} if spec.scratch is not None else {}
    return {**inherited, **defaults, **own, **scratch, **spec.tracing, **spec.env}
