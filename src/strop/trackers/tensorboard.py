"""Values -> an event file below the run's folder, as `tensorboard --logdir` reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]  made by protoc
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]  made by protoc
from tensorboard.compat.proto.tensor_pb2 import TensorProto  # pyright: ignore[reportAttributeAccessIssue]  made by protoc
from tensorboard.plugins.text import metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from strop.schema.job import JobStatus
from strop.trackers.sink import TrackedRun

FOLDER = "tensorboard"


class TensorBoard:
    """Without torch's writer, which would load torch a second time for a file format."""

    def __init__(self, run: TrackedRun) -> None:
        folder = run.folder / FOLDER
        self.where = f"tensorboard --logdir {folder}"
        self._writer = EventFileWriter(str(folder), flush_secs=5)
        text = f"```json\n{json.dumps(run.config, indent=2, ensure_ascii=False)}\n```"
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        about = metadata.create_summary_metadata(display_name="job", description="")
        self._add(0, Summary.Value(tag="job", metadata=about, tensor=tensor))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._add(step, *(Summary.Value(tag=name, simple_value=value) for name, value in values.items()))

    def close(self, status: JobStatus | None) -> None:
        self._writer.close()

    def _add(self, step: int, *values: Summary.Value) -> None:
        self._writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=list(values))))
