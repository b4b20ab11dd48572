"""One base and the adapters beside it -> the models of one process, by name, which come and go meanwhile.

`strop serve` makes one for the app. All share the engine, the places and the counts; each has its own calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from strop.errors import EngineError
from strop.inference.gateway.errors import RequestRefused
from strop.inference.gateway.sampler import Sampler
from strop.inference.serving.model import ServedModel, unknown_model

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
            raise RequestRefused("adapters are not taken here", status=404)
        if name in self._adapted and self._folders[name] == folder:
            return
        if name in self._adapted or name == self.base.name:
            raise RequestRefused(f"the model {name!r} is served already", param="lora_name")
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
