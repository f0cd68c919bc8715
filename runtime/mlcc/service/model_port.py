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
    """One model in a list of models."""

    name: str
    created: int
    """Unix time since which it is available."""
    state: ModelState
    context: int
    """Longest sequence in tokens: as loaded, or the most it can be loaded with."""
    aliases: tuple[str, ...] = ()
    """Other names of the model."""
    memory_bytes: int | None = None
    """Planned bytes; None = not loaded, or without a plan."""
    in_flight: int = 0
    """Requests waiting or running."""
    info: ModelInfo = field(default_factory=ModelInfo)
    """Metadata for Ollama's routes."""
    parent: str | None = None
    """The base model of an adapter."""


def _nothing() -> None:
    return None


@fast_dataclass(frozen=True)
class Lease:
    """A loaded model, which stays loaded until `release` is called. `release` is idempotent."""

    served: ServedModel
    release: Callable[[], None] = _nothing


class Models(Protocol):
    """All models of a service."""

    @property
    def only(self) -> ServedModel | None:
        """The model, if the service has exactly one, always loaded."""
        ...

    @property
    def conversations(self) -> Conversations:
        """Stored conversations of /v1/responses, of all models."""
        ...

    def entries(self) -> list[ModelEntry]:
        """All models. Raises MlccError if the engine is dead."""
        ...

    def entry(self, name: str) -> ModelEntry:
        """The model with this name. Raises NotFoundError, and what `entries` raises."""
        ...

    async def lease(self, name: str | None) -> Lease:
        """The model with this name, loaded on demand; None = the default model.

        Raises NotFoundError, and what loading raises.
        """
        ...

    async def load(self, name: str) -> ModelEntry:
        """Load a model now. Raises what `lease` raises."""
        ...

    async def unload(self, name: str) -> ModelEntry:
        """Unload a model. Raises BusyError while it is in use, UnsupportedError if models cannot be
        unloaded, NotFoundError."""
        ...

    async def counters(self) -> Mapping[str, Any]:
        """Counters for /health of each loaded model, by name."""
        ...


class OneModel:
    """One model, always loaded."""

    def __init__(self, served: ServedModel) -> None:
        self._core = served

    @property
    def only(self) -> ServedModel | None:
        return self._core

    @property
    def conversations(self) -> Conversations:
        return self._core.conversations

    def entries(self) -> list[ModelEntry]:
        """The model, then its adapters. Raises `dead` of its engine."""
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
        """The model, by one of its names."""
        found = self.entries()
        self._core.check_model(name)
        return next((entry for entry in found if entry.name == name), found[0])

    async def lease(self, name: str | None) -> Lease:
        """The model; the caller checks its name."""
        return Lease(self._core)

    async def load(self, name: str) -> ModelEntry:
        """The model is always loaded."""
        return self.entry(name)

    async def unload(self, name: str) -> ModelEntry:
        """Raises UnsupportedError: the model stays loaded."""
        self.entry(name)
        raise UnsupportedError(
            f"'{name}' is the only model here and stays loaded; end the program instead "
            "(`mlcc stop` does, for a server)",
            param="model",
            code="model_stays",
        )

    async def counters(self) -> Mapping[str, Any]:
        """Counters of its engine."""
        return {self._core.text.name: await self._core.engine.counters()}
