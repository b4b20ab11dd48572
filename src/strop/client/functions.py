"""Steps of `client.functions`: register code, make its environment, run instances of it and call them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from strop.client.bundle import Bundle, pack, why_left_out
from strop.client.files import segment
from strop.client.tuning import AgenticRLFunctionComponent, FunctionComponentRuntime
from strop.client.wire import LONG_S, Call, Pause, Steps, typed, without_empty
from strop.errors import ConfigError, FunctionError, Problem, UnavailableError
from strop.functions.validation import validation_text
from strop.locales import msg
from strop.schema.function import INPUT_OF, OUTPUT_OF, FunctionInput, FunctionOutput, FunctionType
from strop.schema.responses import FunctionInfo, InstanceInfo

_POLL_S = 1.0
_ROUTES = {
    FunctionType.ROLLOUT: ("rollout", "rollout_id"),
    FunctionType.REWARD: ("reward", "reward_id"),
    FunctionType.GROUP_REWARD: ("group-reward", "group_reward_id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A function's code, packed; nothing has been sent. `requirements` is "" where it has none."""

    component: AgenticRLFunctionComponent
    file: str
    class_name: str
    bundle: Bundle
    requirements: str

    @property
    def unique_key(self) -> str:
        """Equal code, class and type: the same key, so that a second try registers nothing new."""
        name = hashlib.sha256(f"{self.file}:{self.class_name}".encode()).hexdigest()[:12]
        return f"{self.component.type.value}-{self.bundle.sha256[:40]}-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An environment that is ready, with the log of its build."""

    layer_code: str
    log: str


def register(
    component: AgenticRLFunctionComponent,
    *,
    workspace: str | Path = ".",
    say: Callable[[str], None] | None = None,
) -> Steps[FunctionInfo]:
    """Send a function's code, unless the server has it already, and make the environment it asks for.

    Sets `entity_id` and `runtime.layer_code` of `component`. `workspace` is where `zipdir` starts; it is only
    read.

    Raises:
        ConfigError: a file that is not there or does not go along. FunctionError: its environment cannot be
        built.
    """
    (prepared,) = prepare([component], Path(workspace))
    return (yield from send(prepared, say))


def prepare(components: list[AgenticRLFunctionComponent], workspace: Path) -> list[Prepared]:
    """Pack every function; equal folders once.

    Raises:
        ConfigError: everything that is wrong with any of them.
    """
    packed: dict[tuple[Path, tuple[str, ...]], Bundle] = {}
    prepared: list[Prepared] = []
    problems: list[Problem] = []
    for component in components:
        code = component.fcmodel
        root = (workspace / Path(code.zipdir).expanduser()).resolve()
        key = (root, tuple(code.extra_files))
        try:
            if key not in packed:
                packed[key] = pack(root, [root / name for name in code.extra_files])
            bundle = packed[key]
        except ConfigError as error:
            problems += error.problems
            continue
        file, name = code.target()
        complaint = _not_packed(bundle, file)
        if complaint is not None:
            problems.append(Problem(place=component.label, message=complaint[0], fix=complaint[1]))
            continue
        prepared.append(
            Prepared(
                component=component,
                file=file,
                class_name=name,
                bundle=bundle,
                requirements=_requirements(root, code.requirements_path),
            )
        )
    if problems:
        raise ConfigError("functions", list(dict.fromkeys(problems)))
    return prepared


def send(prepared: Prepared, say: Callable[[str], None] | None = None) -> Steps[FunctionInfo]:
    """Register what was packed."""
    component, bundle = prepared.component, prepared.bundle
    known = yield from list_()
    found = next((one for one in known if _is(one, prepared)), None)
    if found is None:
        found = yield from _upload(prepared)
    if prepared.requirements and component.runtime.layer_code is None:
        layer = yield from make_layer(prepared.requirements, say=say)
        component.runtime.layer_code = layer.layer_code
    component.entity_id = found.entity_id
    if say is not None:
        say(f"{component.label}: {found.entity_id}, {len(bundle.files)} files, {len(bundle.content)} bytes")
    return found


def _upload(prepared: Prepared) -> Steps[FunctionInfo]:
    key = prepared.unique_key
    reply = yield Call(method="POST", path="fine-tunes/generate/faas/upload/url", body={"unique_key": key})
    url = str(reply.get("url", ""))
    yield Call(
        method="PUT", path=url, content=prepared.bundle.content, token="", answer=None, timeout_s=LONG_S
    )
    route, answer = _ROUTES[prepared.component.type]
    body = {"name": prepared.file, "unique_key": key, "func": prepared.class_name, "code_url": url}
    made = yield Call(method="POST", path=f"fine-tunes/create/{route}", body=body)
    return (yield from get(str(made[answer])))


def make_layer(requirements: str, *, say: Callable[[str], None] | None = None) -> Steps[Layer]:
    """Have an environment built and wait for it; equal requirements share one.

    Raises:
        FunctionError: the build failed, with the end of its log.
    """
    digest = hashlib.sha256(requirements.encode()).hexdigest()[:8]
    body = {"layer_name": f"fc_layer-{digest}", "requirements_content": requirements}
    made = yield Call(method="POST", path="fine-tunes/create/faas/layer", body=body)
    code = str(made["layer_code"])
    told = False
    while True:
        state = yield Call(
            method="GET", path="fine-tunes/query/faas/layer/status", params={"layer_code": code}
        )
        log = str(state.get("log", ""))
        match state.get("status"):
            case "SUCCESS":
                return Layer(layer_code=code, log=log)
            case "FAILED":
                tail = "\n".join(log.splitlines()[-15:])
                raise FunctionError(
                    msg("the environment cannot be built:\n{tail}", tail=tail),
                    fix=msg("fix the requirements"),
                )
            case _:
                if say is not None and not told:
                    say("building the environment of the functions")
                    told = True
                yield Pause(_POLL_S)


def list_() -> Steps[list[FunctionInfo]]:
    """Registered functions, newest first, each with its instances."""
    reply = yield Call(method="GET", path="functions")
    instances: list[dict[str, Any]] = reply.get("instances") or []
    return [
        typed(
            FunctionInfo,
            one | {"instances": [ins for ins in instances if ins["entity_id"] == one["entity_id"]]},
        )
        for one in reply.get("functions") or []
    ]


def get(entity_id: str) -> Steps[FunctionInfo]:
    """One registered function."""
    return typed(FunctionInfo, (yield Call(method="GET", path=f"functions/{segment(entity_id)}")))


def delete(entity_id: str) -> Steps[None]:
    """Forget a function that has no instances."""
    yield Call(method="DELETE", path=f"functions/{segment(entity_id)}", idempotent=False)


def start(entity_id: str, runtime: FunctionComponentRuntime | None = None) -> Steps[InstanceInfo]:
    """Start an instance of a function and wait until it serves.

    Raises:
        FunctionError: it does not start; the message says why.
    """
    asked = (runtime or FunctionComponentRuntime()).asked()
    path = f"fine-tunes/online/faas/jobId-{uuid.uuid4()}/{segment(entity_id)}"
    return typed(
        InstanceInfo, (yield Call(method="POST", path=path, body=asked, idempotent=False, timeout_s=LONG_S))
    )


def instance(instance_id: str) -> Steps[InstanceInfo]:
    """How an instance stands, with its address and its token."""
    return typed(
        InstanceInfo,
        (yield Call(method="POST", path=f"fine-tunes/query/faas/{segment(instance_id)}", body={})),
    )


def stop(instance_id: str) -> Steps[None]:
    """End an instance."""
    yield Call(method="POST", path=f"fine-tunes/delete/faas/{segment(instance_id)}", body={}, answer=None)


def restart(instance_id: str) -> Steps[InstanceInfo]:
    """Put a new worker in the place of each, one after another; calls go on meanwhile.

    Raises:
        FunctionError: a new one does not start; the old ones go on.
    """
    path = f"fine-tunes/restart/faas/{segment(instance_id)}"
    return typed(InstanceInfo, (yield Call(method="POST", path=path, body={}, timeout_s=LONG_S)))


def logs(instance_id: str, *, keywords: list[str] | None = None, last: int = 100) -> Steps[list[str]]:
    """The last lines that an instance printed, oldest first."""
    path = f"fine-tunes/query/faas/log/{segment(instance_id)}"
    size = 1000
    asked = without_empty({"pageNumber": 1, "pageSize": 1, "keywords": keywords})
    total = int((yield Call(method="POST", path=path, body=asked)).get("total_count", 0))
    lines: list[str] = []
    first = max(0, total - last)
    for page in range(first // size + 1, (total - 1) // size + 2 if total else 1):
        reply = yield Call(method="POST", path=path, body=asked | {"pageNumber": page, "pageSize": size})
        lines += [str(entry.get("message", "")) for entry in reply.get("log_entries") or []]
    return lines[-last:] if last else []


def call(
    target: str, values: Mapping[str, Any] | FunctionInput, *, func_type: FunctionType | str | None = None
) -> Steps[FunctionOutput]:
    """Call an instance once; of a registered function (`ro-...`, `rw-...`) one is started and ended for it.

    Raises:
        ConfigError: the input is not of the function's kind. FunctionError: the call failed; says why.
    """
    if "-ins-" in target:
        found = yield from instance(target)
        kind = (yield from get(found.entity_id)).type
        return (yield from _called(found, kind, _input(kind, values, func_type)))
    kind = (yield from get(target)).type
    asked = _input(kind, values, func_type)
    started = yield from start(target)
    try:
        return (yield from _called(started, kind, asked))
    finally:
        yield from stop(started.instance_id)


def _called(found: InstanceInfo, kind: FunctionType, asked: dict[str, Any]) -> Steps[FunctionOutput]:
    if not found.trigger_url or not found.trigger_token:
        raise UnavailableError(msg("instance {instance_id!r} has no address", instance_id=found.instance_id))
    try:
        reply = yield Call(
            method="POST",
            path=f"{found.trigger_url}/api/v1",
            body=asked,
            token=found.trigger_token,
            idempotent=False,
            answer=None,
            timeout_s=LONG_S,
        )
    except UnavailableError as error:
        if error.request_id is None:  # the server itself was not reached
            raise
        raise FunctionError(
            error.message, fix=msg("strop functions logs {instance_id}", instance_id=found.instance_id)
        ) from error
    try:
        return OUTPUT_OF[kind].model_validate(reply)
    except ValidationError as error:
        raise FunctionError(
            msg(
                "the function returned no {kind} output: {validation_text}",
                kind=kind,
                validation_text=validation_text(error, show_values=False),
            )
        ) from error


def _input(
    kind: FunctionType, values: Mapping[str, Any] | FunctionInput, wanted: FunctionType | str | None
) -> dict[str, Any]:
    """As JSON, with the model's key in clear: the function needs it."""
    given = dict(values) if isinstance(values, Mapping) else values.model_dump()
    said = wanted or given.get("func_type") or kind
    if said != kind:
        raise ConfigError(
            "input",
            [
                Problem(
                    place="func_type",
                    message=msg("is {said!s}, but this is a {kind} function", said=said, kind=kind),
                )
            ],
        )
    try:
        made = INPUT_OF[kind].model_validate({**given, "func_type": kind})
    except ValidationError as error:
        text = validation_text(error, show_values=False)
        raise ConfigError("input", [Problem(place="input", message=text)]) from error
    dumped = made.model_dump(mode="json", exclude_none=True)
    resource = getattr(made, "model_resource", None)
    if resource is not None:
        dumped["model_resource"]["api_key"] = resource.api_key.get_secret_value()
    return cast("dict[str, Any]", dumped)


def _is(one: FunctionInfo, prepared: Prepared) -> bool:
    return (one.bundle_sha256, one.type, one.name, one.func) == (
        prepared.bundle.sha256,
        prepared.component.type,
        prepared.file,
        prepared.class_name,
    )


def _not_packed(bundle: Bundle, file: str) -> tuple[str, str] | None:
    if file in bundle.files:
        return None
    if not (bundle.root / file).is_file():
        return f"no such file: {bundle.root / file}", "it is relative to zipdir, that to the workspace"
    parts = Path(file).parts
    reason = next((why for part in parts if (why := why_left_out(part))), "is a link or behind one")
    return f"{file} does not go along: {reason}", "move the class to a folder with another name"


def _requirements(root: Path, name: str) -> str:
    """The text, "" where there is no file or it asks for nothing."""
    path = root / name
    if not name or not path.is_file():
        return ""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem(place=str(path), message=msg("cannot be read: {error}", error=error))
        raise ConfigError("functions", [problem]) from error
    wanted = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return text if wanted else ""
