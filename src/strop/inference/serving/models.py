"""Engine + tokenizer -> models ready to be asked: one base and the adapters beside it, which come and go.

`strop serve` makes a `ServedModels` for the app. All its models share the engine, the places and the counts;
each has its own calls. Lives in one event loop and takes no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import EngineError
from strop.inference.chat.errors import RequestRefused, no_room
from strop.inference.chat.render import Prompt, Renderer
from strop.inference.chat.request import ChatRequest
from strop.inference.chat.sampler import Sampler
from strop.inference.serving.metrics import ServingMetrics
from strop.locales import msg
from strop.schema.sampling import SamplingParams

if TYPE_CHECKING:
    from strop.inference.serving.calls import ServedCall


_WEIGHT = 0.2
"""Of the newest answer in the running mean of their durations."""

_FIRST_GUESS_S = 1.0
_LONGEST_WAIT_S = 60.0


class Places:
    """How many answers may be under way: `num_running` are sampled together, `num_waiting` more may wait.

    Beyond that a caller is told to come back: a queue without an end only moves the time-out to the client.
    """

    def __init__(self, *, num_running: int, num_waiting: int) -> None:
        self.num_running = num_running
        self._limit = num_running + num_waiting
        self._mean_s = _FIRST_GUESS_S
        self.taken = 0

    def check(self, count: int) -> None:
        """Raises:
        RequestRefused: 400 for more than there will ever be.
        """
        if count > self._limit:
            raise RequestRefused(
                msg("n = {count}: at most {limit} choices are sampled here", count=count, limit=self._limit),
                param="n",
            )

    def take(self, count: int) -> None:
        """Raises:
        RequestRefused: 429 with the seconds after which a place should be free.
        """
        excess = self.taken + count - self._limit
        if excess > 0:
            raise RequestRefused(
                msg(
                    "{taken} answers are under way or waiting, as many as can; try again later",
                    taken=self.taken,
                ),
                status=429,
                code="queue_full",
                retry_after_s=min(_LONGEST_WAIT_S, self._mean_s * max(excess / self.num_running, 1.0)),
            )
        self.taken += count

    def free(self, count: int) -> None:
        self.taken -= count

    def took(self, seconds: float) -> None:
        """Learn how long an answer takes."""
        self._mean_s += _WEIGHT * (seconds - self._mean_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What a request gets that says nothing. Without settings of the model: OpenAI's."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @classmethod
    def of(cls, generation_config: Any) -> SamplingDefaults:
        """The settings that the model's authors ship in generation_config.json, if it samples at all."""
        if not getattr(generation_config, "do_sample", False):
            return cls()
        given = {name: getattr(generation_config, name, None) for name in ("temperature", "top_p", "top_k")}
        return cls(**{name: value for name, value in given.items() if value is not None})


@dataclass(kw_only=True)
class ServedModel:
    """One model behind its address.

    Units:
        max_length: tokens of prompt and answer together. created: seconds since 1970.
        fingerprint: tells answers of one set of weights from another's.
        failure: why the engine has stopped, or None while it runs.
    """

    name: str
    sampler: Sampler
    renderer: Renderer
    max_length: int
    places: Places
    metrics: ServingMetrics
    created: int
    fingerprint: str
    defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    failure: Callable[[], Exception | None] = lambda: None
    calls: set[ServedCall] = field(default_factory=set["ServedCall"])
    stopping: bool = False

    def prepare(self, request: ChatRequest) -> tuple[Prompt, SamplingParams]:
        """Render the prompt and settle how to sample.

        Raises:
            RequestRefused: another model is asked for, the server is stopping, or the request cannot be
                sampled as it stands.
        """
        if self.stopping:
            raise stopping()
        if request.model is not None and request.model != self.name:
            raise unknown_model(request.model, [self.name])
        self.places.check(request.num_choices)
        prompt = self.renderer.prompt(
            request.messages, request.tools, template_kwargs=request.chat_template_kwargs
        )
        room = self.max_length - len(prompt.token_ids)
        if room < 1:
            raise no_room(len(prompt.token_ids), self.max_length)
        return prompt, _params(request, self.defaults, room)

    def stop_all(self) -> None:
        """End every call under way with an error that says so."""
        self.stopping = True
        for call in list(self.calls):
            call.interrupt(stopping())


def _params(request: ChatRequest, defaults: SamplingDefaults, room: int) -> SamplingParams:
    """The request's settings, else the model's; an answer without a limit may fill the `room`."""
    asked = request.max_completion_tokens or request.max_tokens or room
    temperature, top_p, top_k = request.temperature, request.top_p, request.top_k
    return SamplingParams(
        max_tokens=min(asked, room),
        temperature=defaults.temperature if temperature is None else temperature,
        top_p=defaults.top_p if top_p is None else top_p,
        top_k=defaults.top_k if top_k is None else max(top_k, 0),
        stop=request.stop_strings,
        top_logprobs=request.top_logprobs or 0,
    )


def stopping() -> RequestRefused:
    return RequestRefused(
        msg("this model's server is stopping; call again"), status=503, code="server_stopping"
    )


def unknown_model(name: str, served: list[str]) -> RequestRefused:
    there = ", ".join(repr(one) for one in served) or "none"
    return RequestRefused(
        msg("The model {name!r} does not exist here; served: {there}", name=name, there=there),
        status=404,
        param="model",
        code="model_not_found",
    )


ReadAdapter = Callable[[Path], Sampler]
"""A published model's folder -> the engine with its adapter; called in a thread."""


class ServedModels:
    """Lives in one event loop. Without `read` there is the one model, for ever.

    Raises:
        RequestRefused: from every method that is given a name that is not there, or cannot be added.
    """

    def __init__(self, base: ServedModel, *, read: ReadAdapter | None = None) -> None:
        self.base = base
        self._read = read
        self._adapted: dict[str, ServedModel] = {}
        self._folders: dict[str, Path] = {}

    @property
    def changeable(self) -> bool:
        return self._read is not None

    def all(self) -> list[ServedModel]:
        return [self.base, *self._adapted.values()]

    def find(self, name: str | None) -> ServedModel:
        """The model that a request names; the base for one that names none."""
        if name is None or name == self.base.name:
            return self.base
        if name not in self._adapted:
            raise unknown_model(name, [one.name for one in self.all()])
        return self._adapted[name]

    async def load(self, name: str, folder: Path) -> None:
        """Serve the adapter of the published model in `folder` as `name`; calls under way notice nothing.

        Asked again with the same folder, it changes nothing.
        """
        if self._read is None:
            raise RequestRefused(msg("adapters are not taken here"), status=404)
        if name in self._adapted and self._folders[name] == folder:
            return
        if name in self._adapted or name == self.base.name:
            raise RequestRefused(msg("the model {name!r} is served already", name=name), param="lora_name")
        try:
            sampler = await asyncio.to_thread(self._read, folder)
        except EngineError as error:
            raise RequestRefused(str(error), param="lora_path", code="unusable_adapter") from error
        self._folders[name] = folder
        self._adapted[name] = replace(
            self.base, name=name, sampler=sampler, fingerprint=f"strop-{name}", calls=set()
        )

    def unload(self, name: str) -> None:
        """Serve `name` no more. Calls under way end with an error: who wants their answers waits first."""
        if name not in self._adapted:
            raise unknown_model(name, [one.name for one in self.all()])
        self._adapted.pop(name).stop_all()

    def stop_all(self) -> None:
        """End every call under way with an error that says so."""
        for model in self.all():
            model.stop_all()
