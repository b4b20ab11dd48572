"""A job that was asked for -> all that its trainer needs: checked configuration, code, environments, rows.

Everything a client named is looked up and every problem told at once; the flow's own checks come after.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from strop.bilingual import both, joined
from strop.config.aliases import ELSEWHERE
from strop.config.job import JobConfig
from strop.doors.dashscope.files import blob_key
from strop.doors.dashscope.job_request import SUBJECT, DatasetAsked, FunctionAsked, JobAsked
from strop.errors import ConfigError, FunctionError, MissingError, Problem, StoreError
from strop.schema.entity import Entity, LayerStatus
from strop.schema.function import FunctionType
from strop.schema.watching import is_loopback, is_server
from strop.service.bundles import unpack
from strop.service.layers import usable
from strop.service.settings import Limits
from strop.store.blobs import CHUNK_BYTES, Blobs
from strop.store.entities import get_entity, get_layer
from strop.store.files import get_file


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

    def told(self, config: JobConfig) -> JobConfig:
        """The checked job, which does not say that its client asked for what was filled in."""
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

    def plan(self, asked: JobAsked, *, folder: Path, default_output: str) -> JobPlan:
        """Raises:
        ConfigError: everything that is not there or cannot be used.
        """
        hyper, elsewhere = _split_hyper_parameters(asked.hyper_parameters or {})
        plan = JobPlan(
            job={
                "name": asked.job_name or "strop",
                "model": {"name": asked.model},
                "workspace_dir": str(folder),
                "tuned_model_name": asked.output_name or default_output,
                "training": {"hyper_parameters": hyper},
            }
        )
        if asked.training_type is not None:
            plan.job["training"]["type"] = asked.training_type
        if asked.teacher_model is not None:
            plan.job["training"]["teacher_model"] = asked.teacher_model
        for key in ("trackers", "diagnosis"):
            if (given := getattr(asked, key)) is not None:
                plan.job[key] = given
        for key, given in (("name", asked.job_name), ("tuned_model_name", asked.output_name)):
            if not given:
                plan.filled_in.append(key)
        self._trackers(asked)
        self._resources(plan, asked.resource_config or {}, elsewhere)
        plan.job["datasets"] = self._datasets(plan, asked, folder)
        plan.job["functions"] = self._functions(plan, asked)
        if self._problems:
            raise ConfigError(SUBJECT, self._problems)
        return plan

    def _trackers(self, asked: JobAsked) -> None:
        """A tracker goes to another server by HTTP or into the job's folder: what else MLflow takes (files,
        databases, a Databricks profile) this machine would open in its own name. Nor does a client say to
        whom this machine answers."""
        for index, tracker in enumerate(asked.trackers or []):
            host = tracker.get("host") if isinstance(tracker, dict) else None
            if isinstance(host, str) and not is_loopback(host):
                self._complain(
                    f"trackers[{index}].host",
                    f"{host!r} would open a port of this machine to others, which is for its owner to decide",
                    "leave it out: the run answers on 127.0.0.1, and the owner may put a proxy before it",
                )
            uri = tracker.get("tracking_uri") if isinstance(tracker, dict) else None
            if isinstance(uri, str) and not is_server(uri):
                self._complain(
                    f"trackers[{index}].tracking_uri",
                    f"{uri!r} is none that a job on a server may name: it takes http:// and https:// alone",
                    "give such an address; without it MLflow's runs go into the job's folder",
                )

    def _resources(self, plan: JobPlan, asked: dict[str, Any], elsewhere: list[str]) -> None:
        known = ("charge_type", "mtu_spec_code", "mtu_capacity")
        plan.job["training"]["resources"] = {key: asked[key] for key in known if key in asked}
        names = [f"resource_config.{key}" for key in asked if key not in known]
        names += [f"hyper_parameters.{key}" for key in elsewhere]
        if names:
            listed = ", ".join(names)
            plan.notes.append(
                both(
                    f"{listed}: accepted, but choose nothing on this machine",
                    f"{listed}：已接受，但在本机不起作用",
                )
            )

    def _datasets(self, plan: JobPlan, asked: JobAsked, folder: Path) -> list[dict[str, Any]]:
        datasets: list[dict[str, Any]] = []
        for kind in ("training", "validation"):
            ids = self._file_ids(kind, asked)
            for index, (place, file_id) in enumerate(ids):
                try:
                    file = get_file(self._session, file_id, workspace_id=self._workspace_id)
                except MissingError as error:
                    self._complain(place, error.message, error.fix)
                    continue
                name = file.name if len(ids) == 1 else f"{index + 1}-{file.name}"
                plan.files.append((kind, file_id, name))
                path = folder / "data" / kind / name
                datasets.append({"type": kind, "file_name": str(path)})
        if not asked.training_datasets and not asked.training_file_ids:
            self._complain("training_datasets", "missing", "upload a file of rows and name its file_id")
        return datasets

    def _file_ids(self, kind: str, asked: JobAsked) -> list[tuple[str, str]]:
        given: list[DatasetAsked] = getattr(asked, f"{kind}_datasets") or []
        plain: list[str] = getattr(asked, f"{kind}_file_ids") or []
        found: list[tuple[str, str]] = []
        for index, dataset in enumerate(given):
            place = f"{kind}_datasets[{index}]"
            if dataset.data_source_type != "file_id":
                what = (
                    f"data_source_type {dataset.data_source_type!r} is not read: this server fetches nothing"
                )
                self._complain(place, what, "upload the file and give its file_id")
            elif not dataset.file_id:
                self._complain(f"{place}.file_id", "missing", "upload the file first")
            else:
                found.append((f"{place}.file_id", dataset.file_id))
        known = {file_id for _, file_id in found}
        places = ((f"{kind}_file_ids[{index}]", file_id) for index, file_id in enumerate(plain))
        return found + [(place, file_id) for place, file_id in places if file_id not in known]

    def _functions(self, plan: JobPlan, asked: JobAsked) -> list[dict[str, Any]]:
        functions: list[dict[str, Any]] = []
        for place, expected, one in asked.functions():
            if one.preset is not None:
                functions.append(self._preset(place, expected, one))
                continue
            entity = self._entity(place, expected, one)
            if entity is None:
                continue
            label = one.name or entity.func
            if not one.name:
                plan.filled_in.append(f"functions[{len(functions)}].name")
            plan.bundles[label] = entity.bundle
            if one.layer_code is not None and self._layer_is_usable(place, one.layer_code):
                plan.layers[label] = one.layer_code
            functions.append(
                _function(entity, one, unpack(self._blobs, self._home, entity.bundle, self._limits))
            )
            unused = one.not_honoured()
            if unused:
                listed = joined(both("; ", "；"), *unused)
                plan.notes.append(
                    both(
                        f"function {label!r}: accepted, but not used as sent: {listed}",
                        f"函数 {label!r}：已接受，但不按所发使用：{listed.zh}",
                    )
                )
        return functions

    def _preset(self, place: str, expected: FunctionType | None, one: FunctionAsked) -> dict[str, Any]:
        """A reward that needs no registered code; its name and parameters are the flow's to check."""
        if expected is not None or one.entity_id is not None:
            self._complain(f"{place}.preset", "stands beside an id, or as a rollout", "a preset is a reward")
        preset: dict[str, Any] = {"preset": one.preset, "params": one.params or {}, **_settings(one)}
        return preset | ({"name": one.name} if one.name else {})

    def _entity(self, place: str, expected: FunctionType | None, one: FunctionAsked) -> Entity | None:
        entity_id = one.entity_id
        if entity_id is None:
            self._complain(place, "no rollout_id or reward_id", "register the function and give its id")
            return None
        try:
            entity = get_entity(self._session, entity_id, workspace_id=self._workspace_id)
        except MissingError as error:
            self._complain(place, error.message, error.fix)
            return None
        kinds = (expected,) if expected is not None else (FunctionType.REWARD, FunctionType.GROUP_REWARD)
        if entity.type not in kinds:
            self._complain(place, f"{entity_id!r} is a {entity.type} function", f"expected {kinds[0]}")
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


def _function(entity: Entity, asked: FunctionAsked, root: Path) -> dict[str, Any]:
    function: dict[str, Any] = {
        "type": entity.type.value,
        "name": asked.name or entity.func,
        "fcmodel": {"classpath": entity.classpath, "zipdir": str(root)},
        **_settings(asked),
    }
    if entity.type is FunctionType.ROLLOUT:
        for key in ("weight", "reward_metric_weight"):
            function.pop(key, None)
    return function


def _settings(asked: FunctionAsked) -> dict[str, Any]:
    """How a function of a job runs and what it weighs, where the client said so."""
    runtime: dict[str, Any] = asked.sizes()
    if asked.env:
        runtime["env"] = asked.env_texts
    settings: dict[str, Any] = {"runtime": runtime}
    if asked.timeout is not None:
        settings["timeout"] = asked.timeout
    if asked.weight is not None:
        settings["weight"] = asked.weight
    if asked.reward_metric_weight:
        settings["reward_metric_weight"] = asked.reward_metric_weight
    return settings


def _split_hyper_parameters(asked: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    kept = {key: value for key, value in asked.items() if key not in ELSEWHERE and value is not None}
    return kept, [key for key in asked if key in ELSEWHERE]


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
                for chunk in _read(blobs, file.sha256):
                    target.write(chunk)
            part.rename(path)
        except OSError as error:
            raise StoreError(
                f"the rows cannot be written to {str(path)!r}: {error}", fix="free some disk"
            ) from error


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _read(blobs: Blobs, sha256: str) -> Generator[bytes]:
    with blobs.open(blob_key(sha256)) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
