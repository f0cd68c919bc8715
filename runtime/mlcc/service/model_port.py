"""Selects the model of a request: a port. `OneModel` serves one model (tab, phone, Python program);
a server with several loads them on demand (`mlcc.server.models.pool`).

A lease keeps a model loaded while a request uses it. Independent of protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from mlcc.api.openai.responses import ModelInfo
from mlcc.api.openai.shapes import ModelState
from mlcc.errors import UnsupportedError
from mlcc.service.response_store.conversations import Conversations
from mlcc.service.served_model import ServedModel
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class ModelEntry:
    """One model, as lists of models tell it."""

    name: str
    created: int
    """Unix time since when it has been here."""
    state: ModelState
    context: int
    """Longest sequence in tokens: what it is loaded with, or will be at most."""
    aliases: tuple[str, ...] = ()
    """Other names that it answers to."""
    memory_bytes: int | None = None
    """Planned for it; None = it is not loaded, or nobody planned."""
    in_flight: int = 0
    """Requests that wait or are being answered."""
    info: ModelInfo = field(default_factory=ModelInfo)
    """What Ollama's clients are told of it."""
    parent: str | None = None
    """Of an adapter: the model that it adapts."""


def _nothing() -> None:
    return None


@fast_dataclass(frozen=True)
class Lease:
    """A loaded model, which stays until `release` is called: once, or more often."""

    served: ServedModel
    release: Callable[[], None] = _nothing


class Models(Protocol):
    """All models of one place."""

    @property
    def only(self) -> ServedModel | None:
        """The model, where there is one that is always there."""
        ...

    @property
    def conversations(self) -> Conversations:
        """Those of /v1/responses: of all models together."""
        ...

    def entries(self) -> list[ModelEntry]:
        """All of them. Raises MlccError where nothing answers any more."""
        ...

    def entry(self, name: str) -> ModelEntry:
        """The one that answers to a name. Raises NotFoundError, and what `entries` raises."""
        ...

    async def lease(self, name: str | None) -> Lease:
        """The model of a name, loaded if need be; None: that of requests that name none.

        Raises NotFoundError, and what loading raises.
        """
        ...

    async def load(self, name: str) -> ModelEntry:
        """Have it loaded now. Raises what `lease` raises."""
        ...

    async def unload(self, name: str) -> ModelEntry:
        """Give its memory back. Raises BusyError while it answers, UnsupportedError where models
        stay, NotFoundError."""
        ...

    async def counters(self) -> Mapping[str, Any]:
        """What /health tells of each that is loaded, by name."""
        ...


class OneModel:
    """One model, loaded as long as the place lives."""

    def __init__(self, served: ServedModel) -> None:
        self._core = served

    @property
    def only(self) -> ServedModel | None:
        return self._core

    @property
    def conversations(self) -> Conversations:
        return self._core.conversations

    def entries(self) -> list[ModelEntry]:
        """The one model, and its adapters behind it. Raises `dead` of its engine."""
        served = self._core
        served.engine.check_alive()
        context = served.engine.capacity.context
        in_flight, info = served.engine.in_flight, served.text.info
        name, created = served.text.name, served.created
        return [
            ModelEntry(
                name, created, "loaded", context, served.aliases, in_flight=in_flight, info=info
            ),
            *(
                ModelEntry(each.name, each.created, "loaded", context, parent=name, info=info)
                for each in served.engine.adapters.values()
            ),
        ]

    def entry(self, name: str) -> ModelEntry:
        """The one model, by one of its names."""
        found = self.entries()
        self._core.check_model(name)
        return next((entry for entry in found if entry.name == name), found[0])

    async def lease(self, name: str | None) -> Lease:
        """The one model: whether it is the one that was meant, who asks it checks."""
        return Lease(self._core)

    async def load(self, name: str) -> ModelEntry:
        """It is."""
        return self.entry(name)

    async def unload(self, name: str) -> ModelEntry:
        """It stays. Raises UnsupportedError."""
        self.entry(name)
        raise UnsupportedError(
            f"'{name}' is the only model here and stays loaded; end the program instead "
            "(`mlcc stop` does, for a server)",
            param="model",
            code="model_stays",
        )

    async def counters(self) -> Mapping[str, Any]:
        """Of its engine."""
        return {self._core.text.name: await self._core.engine.counters()}
