"""A new job -> all that its trainer needs: a job in the form of `job.yaml`, code, environments, rows.

Everything that it names is looked up and every problem is reported at once; the flow's own checks come after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from strop.config.aliases import ELSEWHERE
from strop.config.job import JobConfig
from strop.errors import ConfigError, FunctionError, MissingError, Problem, StoreError
from strop.locales import joined, msg
from strop.schema.entity import Entity, LayerStatus
from strop.schema.function import FunctionType
from strop.schema.watching import is_loopback, is_server
from strop.service.bundles import unpack
from strop.service.files import blob_key
from strop.service.layers import usable
from strop.service.settings import Limits
from strop.store.blobs import Blobs
from strop.store.entities import get_entity, get_layer
from strop.store.files import get_file

SUBJECT = "job"
"""What a report of problems is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFile:
    """An uploaded file of rows. `place` is where the client named it, for messages."""

    place: str
    file_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFunction:
    """A registered function or a preset as one job uses it.

    `type` is there where its place decides it. `settings` has what was set of `runtime`, `timeout`, `weight`
    and `reward_metric_weight`, in the form of `job.yaml`; `not_honoured` are the settings that were sent and
    change nothing here.
    """

    place: str
    type: FunctionType | None = None
    entity_id: str | None = None
    name: str | None = None
    preset: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    layer_code: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    not_honoured: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to create, whichever door it came through. `problems` are those that the door found itself; they
    are reported together with the ones found here."""

    model: str
    training: Sequence[RowsFile] = ()
    validation: Sequence[RowsFile] = ()
    functions: Sequence[JobFunction] = ()
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trackers: Sequence[str | Mapping[str, Any]] | None = None
    diagnosis: Mapping[str, Any] | None = None
    training_type: str | None = None
    teacher_model: str | None = None
    name: str | None = None
    output_name: str | None = None
    problems: Sequence[Problem] = ()


@dataclass(slots=True)
class JobPlan:
    """`job` has the form of `job.yaml`. `files` are (type, file id, name); `filled_in` the dotted keys of
    names that the client left out; the rest is by function label."""

    job: dict[str, Any]
    files: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    bundles: dict[str, str] = field(default_factory=dict[str, str])
    layers: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    filled_in: list[str] = field(default_factory=list[str])

    def with_origins(self, config: JobConfig) -> JobConfig:
        """The checked job, in which the names that were filled in here count as defaults."""
        return config.with_origins({**config.origins, **dict.fromkeys(self.filled_in, "default")})


class Planner:
    """Looks things up for one workspace."""

    def __init__(self, session: Session, blobs: Blobs, home: Path, limits: Limits, workspace_id: str) -> None:
        self._session = session
        self._blobs = blobs
        self._home = home
        self._limits = limits
        self._workspace_id = workspace_id
        self._problems: list[Problem] = []

    def plan(self, new: NewJob, *, folder: Path, default_output: str) -> JobPlan:
        """Raises:
        ConfigError: everything that is not there or cannot be used.
        """
        self._problems += new.problems
        hyper, elsewhere = _split_hyper_parameters(new.hyper_parameters)
        plan = JobPlan(
            job={
                "name": new.name or "strop",
                "model": {"name": new.model},
                "workspace_dir": str(folder),
                "tuned_model_name": new.output_name or default_output,
                "training": {"hyper_parameters": hyper},
            }
        )
        if new.training_type is not None:
            plan.job["training"]["type"] = new.training_type
        if new.teacher_model is not None:
            plan.job["training"]["teacher_model"] = new.teacher_model
        for key in ("trackers", "diagnosis"):
            if (given := getattr(new, key)) is not None:
                plan.job[key] = given
        for key, given in (("name", new.name), ("tuned_model_name", new.output_name)):
            if not given:
                plan.filled_in.append(key)
        self._trackers(new)
        self._resources(plan, new.resources, elsewhere)
        plan.job["datasets"] = self._datasets(plan, new, folder)
        plan.job["functions"] = self._functions(plan, new)
        if self._problems:
            raise ConfigError(SUBJECT, self._problems)
        return plan

    def _trackers(self, new: NewJob) -> None:
        """A tracker goes to another server by HTTP or into the job's folder: what else MLflow takes (files,
        databases, a Databricks profile) this machine would open in its own name. Nor does a client say to
        whom this machine answers."""
        for index, tracker in enumerate(new.trackers or ()):
            host = tracker.get("host") if isinstance(tracker, Mapping) else None
            if isinstance(host, str) and not is_loopback(host):
                self._complain(
                    f"trackers[{index}].host",
                    f"{host!r} would open a port of this machine to others, which is for its owner to decide",
                    "leave it out: the run answers on 127.0.0.1, and the owner may put a proxy before it",
                )
            uri = tracker.get("tracking_uri") if isinstance(tracker, Mapping) else None
            if isinstance(uri, str) and not is_server(uri):
                self._complain(
                    f"trackers[{index}].tracking_uri",
                    f"{uri!r} is not allowed in a job on a server, which takes http:// and https:// only",
                    "give such an address; without it MLflow's runs go into the job's folder",
                )

    def _resources(self, plan: JobPlan, given: Mapping[str, Any], elsewhere: list[str]) -> None:
        known = ("charge_type", "mtu_spec_code", "mtu_capacity")
        plan.job["training"]["resources"] = {key: given[key] for key in known if key in given}
        names = [f"resource_config.{key}" for key in given if key not in known]
        names += [f"hyper_parameters.{key}" for key in elsewhere]
        if names:
            listed = ", ".join(names)
            plan.notes.append(msg("{listed}: accepted, but without effect on this machine", listed=listed))

    def _datasets(self, plan: JobPlan, new: NewJob, folder: Path) -> list[dict[str, Any]]:
        datasets: list[dict[str, Any]] = []
        for kind, files in (("training", new.training), ("validation", new.validation)):
            for index, one in enumerate(files):
                try:
                    file = get_file(self._session, one.file_id, workspace_id=self._workspace_id)
                except MissingError as error:
                    self._complain(one.place, error.message, error.fix)
                    continue
                name = file.name if len(files) == 1 else f"{index + 1}-{file.name}"
                plan.files.append((kind, one.file_id, name))
                path = folder / "data" / kind / name
                datasets.append({"type": kind, "file_name": str(path)})
        if not new.training and not any(problem.place.startswith("training") for problem in new.problems):
            self._complain("training_datasets", "missing", "upload a file of rows and name its file_id")
        return datasets

    def _functions(self, plan: JobPlan, new: NewJob) -> list[dict[str, Any]]:
        functions: list[dict[str, Any]] = []
        for one in new.functions:
            if one.preset is not None:
                functions.append(self._preset(one))
                continue
            entity = self._entity(one)
            if entity is None:
                continue
            label = one.name or entity.func
            if not one.name:
                plan.filled_in.append(f"functions[{len(functions)}].name")
            plan.bundles[label] = entity.bundle
            if one.layer_code is not None and self._layer_is_usable(one.place, one.layer_code):
                plan.layers[label] = one.layer_code
            functions.append(
                _function(entity, one, unpack(self._blobs, self._home, entity.bundle, self._limits))
            )
            if one.not_honoured:
                listed = joined(msg("; "), *one.not_honoured)
                plan.notes.append(
                    msg(
                        "function {label!r}: accepted, but not used as sent: {listed}",
                        label=label,
                        listed=listed,
                    )
                )
        return functions

    def _preset(self, one: JobFunction) -> dict[str, Any]:
        """A reward that needs no registered code; its name and parameters are the flow's to check."""
        if one.type is not None or one.entity_id is not None:
            self._complain(
                f"{one.place}.preset",
                "cannot be combined with an id, or be a rollout",
                "a preset is a reward",
            )
        preset: dict[str, Any] = {"preset": one.preset, "params": dict(one.params), **one.settings}
        return preset | ({"name": one.name} if one.name else {})

    def _entity(self, one: JobFunction) -> Entity | None:
        if one.entity_id is None:
            self._complain(one.place, "no rollout_id or reward_id", "register the function and give its id")
            return None
        try:
            entity = get_entity(self._session, one.entity_id, workspace_id=self._workspace_id)
        except MissingError as error:
            self._complain(one.place, error.message, error.fix)
            return None
        kinds = (one.type,) if one.type is not None else (FunctionType.REWARD, FunctionType.GROUP_REWARD)
        if entity.type not in kinds:
            found = f"{one.entity_id!r} is a {entity.type} function"
            self._complain(one.place, found, f"expected {kinds[0]}")
            return None
        return entity

    def _layer_is_usable(self, place: str, code: str) -> bool:
        try:
            layer = get_layer(self._session, code, workspace_id=self._workspace_id)
            if layer.status is not LayerStatus.BUILDING:
                usable(layer, self._home)
        except (MissingError, FunctionError) as error:
            self._complain(f"{place}.layer_code", error.message, error.fix)
            return False
        return True

    def _complain(self, place: str, message: str, fix: str | None = None) -> None:
        self._problems.append(Problem(place=place, message=message, fix=fix))


def _function(entity: Entity, one: JobFunction, root: Path) -> dict[str, Any]:
    function: dict[str, Any] = {
        "type": entity.type.value,
        "name": one.name or entity.func,
        "fcmodel": {"classpath": entity.classpath, "zipdir": str(root)},
        **one.settings,
    }
    if entity.type is FunctionType.ROLLOUT:
        for key in ("weight", "reward_metric_weight"):
            function.pop(key, None)
    return function


def _split_hyper_parameters(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Those of the job, and the names of those that lay a job out over a cloud's machines."""
    kept = {key: value for key, value in given.items() if key not in ELSEWHERE and value is not None}
    return kept, [key for key in given if key in ELSEWHERE]


def lay_out_files(
    session: Session, blobs: Blobs, files: list[tuple[str, str, str]], *, folder: Path, workspace_id: str
) -> None:
    """Put a job's rows where its configuration says they are; what lies there already stays.

    Raises:
        MissingError: a file was deleted meanwhile. StoreError: the disk refused.
    """
    for kind, file_id, name in files:
        path = folder / "data" / kind / name
        if path.is_file():
            continue
        file = get_file(session, file_id, workspace_id=workspace_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{file_id}.part")
            with part.open("wb") as target:
                for chunk in blobs.chunks(blob_key(file.sha256)):
                    target.write(chunk)
            part.rename(path)
        except OSError as error:
            raise StoreError(
                msg("the rows cannot be written to {path!r}: {error}", path=str(path), error=error),
                fix=msg("free some disk"),
            ) from error
