"""Request body -> ChatRequest: OpenAI's chat completion call, as far as the policy in training can honour it.

No silent knob: a field that would change what is sampled is either honoured or refused by name. A field of
OpenAI's that changes nothing about sampling is let through.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from strop.inference.chat.errors import RequestRefused
from strop.locales import msg
from strop.schema.sampling import MIN_TOP_P, MOST_TOKENS, checked_temperature

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "continue_final_message": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "ignore_eos": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields that change what is sampled, and the values that ask for no change."""

HARMLESS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""OpenAI's fields about billing, storage and abuse; they cannot change a token."""


class ChatRequest(BaseModel):
    """A checked request. `model` is taken whatever it says: the address already names the policy.

    Units:
        top_k: 0 and -1 mean off. `n` choices are sampled from one prompt.
    """

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())

    messages: list[dict[str, Any]] = Field(min_length=1)
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    n: int | None = Field(None, ge=1, le=128)
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: Annotated[float, Field(ge=0, le=100), AfterValidator(checked_temperature)] | None = None
    top_p: float | None = Field(None, ge=MIN_TOP_P, le=1)
    top_k: int | None = Field(None, ge=-1, le=MOST_TOKENS)
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def num_choices(self) -> int:
        return self.n or 1

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def parses_tools(self) -> bool:
        """Whether tool calls are looked for in the answer. With `none` the tools stay in the prompt, so that
        the conversation keeps its prefix, and what looks like a call is content."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def wants_usage(self) -> bool:
        return bool((self.stream_options or {}).get("include_usage"))


def parse_request(body: bytes) -> ChatRequest:
    """Check a request body.

    Raises:
        RequestRefused: 400 that names the field.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefused(msg("the body is not JSON: {error}", error=error)) from None
    if not isinstance(data, dict):
        raise RequestRefused(msg("the body must be a JSON object, found {name}", name=type(data).__name__))
    return checked_request(data)


def checked_request(data: dict[str, Any]) -> ChatRequest:
    """The same for a body that is already a dict.

    Raises:
        RequestRefused: 400 that names the field.
    """
    try:
        request = ChatRequest.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RequestRefused(
            msg("{place}: {first}", place=place, first=first["msg"].removeprefix("Value error, ")),
            param=str(first["loc"][0]),
        ) from None
    for name, value in (request.model_extra or {}).items():
        _check_extra(name, value)
    _check_agreement(request)
    _check_tools(request)
    return request


def _check_extra(name: str, value: Any) -> None:
    if value is None or name in HARMLESS or value in NEUTRAL_VALUES.get(name, ()):
        return
    if name in NEUTRAL_VALUES:
        raise RequestRefused(
            msg(
                "{name} = {value!r} would change what is sampled and is not supported; leave {name} out",
                name=name,
                value=value,
            ),
            param=name,
            code="unsupported_parameter",
        )
    raise RequestRefused(
        msg("Unrecognized request argument supplied: {name}", name=name), param=name, code="unknown_parameter"
    )


def _check_agreement(request: ChatRequest) -> None:
    if request.top_logprobs and not request.logprobs:
        raise RequestRefused(msg("top_logprobs are told with logprobs=true only"), param="top_logprobs")
    one, other = request.max_tokens, request.max_completion_tokens
    if one is not None and other is not None and one != other:
        raise RequestRefused(
            msg(
                "max_tokens ({one}) and max_completion_tokens ({other}) disagree; set one of them",
                one=one,
                other=other,
            ),
            param="max_completion_tokens",
        )
    if "" in request.stop_strings:
        raise RequestRefused(msg("stop: a stop string must not be empty"), param="stop")


def _check_tools(request: ChatRequest) -> None:
    for index, tool in enumerate(request.tools or ()):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict) or not function.get("name"):
            raise RequestRefused(
                msg(
                    "tools[{index}]: expected {{'type': 'function', 'function': {{'name': ...}}}}",
                    index=index,
                ),
                param="tools",
            )
    if request.tool_choice not in (None, "auto", "none"):
        raise RequestRefused(
            msg("tool_choice must be 'auto' or 'none': the policy cannot be forced to call a tool"),
            param="tool_choice",
            code="unsupported_parameter",
        )
