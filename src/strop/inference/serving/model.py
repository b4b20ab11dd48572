"""Engine + tokenizer -> a model ready to be asked: its name, its limits, its own sampling settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strop.inference.gateway.errors import RequestRefused, no_room
from strop.inference.gateway.openai_types import ChatRequest
from strop.inference.gateway.render import Prompt, Renderer
from strop.inference.gateway.sampler import Sampler
from strop.inference.serving.metrics import ServingMetrics
from strop.inference.serving.places import Places
from strop.schema.sampling import SamplingParams

if TYPE_CHECKING:
    from strop.inference.serving.calls import ServedCall


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
    return RequestRefused("this model's server is stopping; call again", status=503, code="server_stopping")


def unknown_model(name: str, served: list[str]) -> RequestRefused:
    there = ", ".join(repr(one) for one in served) or "none"
    return RequestRefused(
        f"The model {name!r} does not exist here; served: {there}",
        status=404,
        param="model",
        code="model_not_found",
    )
