"""Backends of the application: one model for the server's whole life, or a pool of models that are
loaded and evicted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from mlcc.engine.batch.batch import Capacity
from mlcc.model.model import ModelText
from mlcc.server.asgi import Settings
from mlcc.server.models.pool import ModelPool
from mlcc.server.models.puller import Puller
from mlcc.server.models.sources import Source
from mlcc.server.prompts.prompt_pool import PromptPool
from mlcc.service.adapters import AdapterFolders
from mlcc.service.engine_client import EngineClient
from mlcc.service.observer import Observer
from mlcc.service.response_store.conversations import Conversations
from mlcc.service.response_store.store import ResponseStore
from mlcc.service.served_model import Models, OneModel, ServedModel
from mlcc.worker.client import WorkerClient
from mlcc.worker.lora_client import load_initial_adapters
from mlcc.worker.process import EngineProcess
from mlcc.worker.worker import OpenModel


class EngineHandle(Protocol):
    """Starts, stops and exposes the engine of one model: a process of this machine, or replicas of
    a cluster."""

    notes: tuple[str, ...]
    capacity: Capacity

    @property
    def client(self) -> EngineClient: ...

    def start(self) -> None:
        """Called in the event loop, before the first request."""

    def stop(self) -> None:
        """Fail all waiting requests. Idempotent."""

    def stop_soon(self) -> None:
        """`stop`, for signal handlers."""

    def close(self) -> None:
        """End the engine; called outside the event loop. Idempotent."""


class LocalEngine:
    """An engine process of this server, with the settings' LoRA adapters loaded. Raises MlccError
    if the model cannot be loaded, and leaves no process behind then."""

    def __init__(
        self,
        open_model: OpenModel,
        settings: Settings,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """`on_progress` gets the bytes of the model that have been read, and all."""
        self._process = EngineProcess(open_model, on_progress=on_progress)
        try:
            load_initial_adapters(self._process, settings.adapters)
        except BaseException:
            self._process.close()
            raise
        self.notes, self.capacity = self._process.notes, self._process.capacity
        adapters = settings.adapters
        self.client = WorkerClient(self._process, settings.max_queue, adapters=adapters)

    def start(self) -> None:
        self.client.start()

    def stop(self) -> None:
        self.client.stop()

    def stop_soon(self) -> None:
        self.client.stop_soon()

    def close(self) -> None:
        self._process.close()


class SingleModelBackend:
    """One model. The caller owns the engine and the prompt processes."""

    def __init__(
        self,
        engine: EngineHandle,
        text: ModelText,
        prompts: PromptPool,
        settings: Settings,
        aliases: Sequence[str] = (),
        store: ResponseStore | None = None,
    ) -> None:
        self._engine, self._name = engine, text.name
        conversations = Conversations(store)
        folders = AdapterFolders(settings.lora_dir)
        served = ServedModel(
            engine.client, text, settings.bounds, prompts, conversations, aliases, folders
        )
        self.models: Models = OneModel(served)
        self._prompts = prompts

    def clients(self) -> Mapping[str, EngineClient]:
        """Return the engine client."""
        return {self._name: self._engine.client}

    def observe(self, observer: Callable[[str], Observer], /) -> None:
        """Set the observer of the model."""
        self._engine.client.observer = observer(self._name)

    async def start(self) -> None:
        """Start the engine client and the prompt pool; the model is loaded already."""
        self._engine.start()
        self._prompts.start()

    async def stop(self) -> None:
        """Fail all waiting requests."""
        self._engine.stop()


class ModelPoolBackend:
    """Several models, each loaded by its first request."""

    def __init__(
        self,
        sources: Sequence[Source],
        budgets: Mapping[str, int | None],
        settings: Settings,
        note: Callable[[str], None],
        store: ResponseStore | None = None,
        puller: Puller | None = None,
    ) -> None:
        self._pool = ModelPool(
            sources, budgets, settings.bounds, settings.max_queue, note, store, puller
        )
        self.models: Models = self._pool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None

    def clients(self) -> Mapping[str, EngineClient]:
        """Return the clients of the loaded models."""
        return self._pool.clients()

    def observe(self, observer: Callable[[str], Observer], /) -> None:
        """Set the observer of every model loaded later."""
        self._pool.observer = observer

    async def start(self) -> None:
        """Remember the event loop; nothing is loaded yet."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Unload all models."""
        await self._pool.close()

    def stop_soon(self) -> None:
        """Start unloading, for signal handlers."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        self._stopping = asyncio.ensure_future(self._pool.close())
