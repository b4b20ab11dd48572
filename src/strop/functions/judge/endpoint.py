"""Messages -> a model's text, from one OpenAI-compatible endpoint; what it cost is counted.

Retries are those of the `openai` client: 408, 409, 429, 5xx and lost connections, with exponential backoff
and after what the endpoint asks for.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from strop.functions.presets.answer import CannotScore


@dataclass(slots=True)
class Spent:
    """Calls that were paid for, calls that the cache answered, tokens, and money by the prices given."""

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


_bills: ContextVar[tuple[Spent, ...]] = ContextVar("bills", default=())


@contextmanager
def own_bill() -> Generator[Spent]:
    """What the calls take that are asked for in the block: others go on beside it, on their own bills."""
    own = Spent()
    token = _bills.set((*_bills.get(), own))
    try:
        yield own
    finally:
        _bills.reset(token)


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """One model behind one address.

    The key is taken from the variable `api_key_env` of the environment, where `runtime.env` puts it; never
    write it into code. Prices are per million tokens, in any currency.

    Units:
        timeout_s: of one try; retries: tries after the first.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    price_prompt: float = 0.0
    price_completion: float = 0.0
    timeout_s: float = 60.0
    retries: int = 4
    temperature: float | None = 0.0
    max_tokens: int | None = 1024
    spent: Spent = field(default_factory=Spent)
    _client: Any = None

    async def ask(self, messages: list[dict[str, str]]) -> str:
        """
        Raises:
            CannotScore: no usable reply after all retries, or the endpoint refuses the request.
        """
        import openai

        options = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        try:
            reply = await self._connected().chat.completions.create(
                model=self.model,
                messages=messages,
                **{name: value for name, value in options.items() if value is not None},
            )
        except openai.APIStatusError as error:
            refused = 400 <= error.status_code < 500 and error.status_code not in (408, 409, 429)
            what = "refuses the request" if refused else "is not available"
            raise CannotScore(
                f"judge {self.model!r} {what}: HTTP {error.status_code}: {error.message}"[:500]
            ) from error
        except (openai.OpenAIError, ValueError) as error:
            raise CannotScore(f"judge {self.model!r}: {type(error).__name__}: {error}"[:500]) from error
        self._count(getattr(reply, "usage", None))
        choices = getattr(reply, "choices", None)
        content = choices[0].message.content if choices else None
        if not isinstance(content, str) or not content.strip():
            raise CannotScore(f"judge {self.model!r} said nothing")
        return content

    def _connected(self) -> Any:
        """The client, made when first asked: its connections belong to the loop that asks."""
        if self._client is None:
            import openai

            self._client = openai.AsyncOpenAI(
                base_url=self.base_url,
                # A local endpoint needs none, but the client insists on one.
                api_key=os.environ.get(self.api_key_env) or "none",
                timeout=self.timeout_s,
                max_retries=self.retries,
            )
        return self._client

    async def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _count(self, usage: Any) -> None:
        prompt = int(getattr(usage, "prompt_tokens", 0) or 0)
        completion = int(getattr(usage, "completion_tokens", 0) or 0)
        cost = (prompt * self.price_prompt + completion * self.price_completion) / 1e6
        for spent in (self.spent, *_bills.get()):
            spent.calls += 1
            spent.prompt_tokens += prompt
            spent.completion_tokens += completion
            spent.cost += cost
