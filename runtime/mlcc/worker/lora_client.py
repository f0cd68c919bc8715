"""LoRA adapters of an engine in another thread or process, for asyncio: pending loads and unloads,
and the adapters to load again after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from mlcc.api.errors import NotFoundError
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.service.adapters import AdapterEntry
from mlcc.worker.messages import (
    AdapterDone,
    Command,
    Failed,
    LoadAdapter,
    Reply,
    UnloadAdapter,
)

log = logging.getLogger("mlcc.server")


class EngineConnection(Protocol):
    """The blocking connection to an engine, before a client uses it."""

    def send(self, command: Command, /) -> None: ...

    def receive(self) -> Reply: ...


def load_initial_adapters(engine: EngineConnection, entries: Iterable[AdapterEntry]) -> None:
    """Load adapters before the first request. Raises the error of the first one that fails."""
    for entry in entries:
        engine.send(LoadAdapter(entry.name, entry.folder))
        reply = engine.receive()
        if isinstance(reply, (AdapterDone, Failed)) and reply.error is not None:
            raise reply.error


@dataclass
class LoraClient:
    """All methods run in the event loop. The engine replies in the order of the commands."""

    send: Callable[[Command], None]
    loaded: dict[str, AdapterEntry] = field(default_factory=dict)
    """Adapters that requests may name."""
    _waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    """The future of each pending reply, in order."""
    _loading: set[str] = field(default_factory=set)

    async def load(self, entry: AdapterEntry, in_place: bool) -> None:
        """Load an adapter. Raises what is wrong with the folder."""
        if entry.name in self._loading:
            raise InvalidRequestError(
                f"an adapter '{entry.name}' is being loaded; wait for that",
                param="lora_name",
                code="adapter_exists",
            )
        self._loading.add(entry.name)
        # cancelling the caller changes nothing: the command has been sent
        await asyncio.shield(asyncio.ensure_future(self._load(entry, in_place)))

    async def unload(self, name: str) -> None:
        """Raises NotFoundError."""
        if self.loaded.pop(name, None) is None:
            raise NotFoundError(
                f"no adapter '{name[:80]}' is loaded here",
                param="lora_name",
                code="model_not_found",
            )
        await asyncio.shield(self._request(UnloadAdapter(name)))

    def done(self, reply: AdapterDone) -> None:
        """Complete the oldest pending command."""
        future = self._waiters.popleft()
        if future.done():  # the caller was cancelled
            if reply.error is not None:
                log.warning("adapter %s: %s", ascii(reply.name), reply.error)
        elif reply.error is not None:
            future.set_exception(reply.error)
        else:
            future.set_result(None)

    def engine_lost(self, error: MlccError) -> None:
        """Fail all pending commands: the engine is gone, with its adapters."""
        waiters, self._waiters = self._waiters, deque()
        for future in waiters:
            if not future.done():
                future.set_exception(error)

    def reload(self) -> None:
        """Load all adapters into a restarted engine, before any request."""
        for entry in self.loaded.values():
            future = self._request(LoadAdapter(entry.name, entry.folder))
            future.add_done_callback(partial(self._reloaded, entry.name))

    def _reloaded(self, name: str, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.loaded.pop(name, None)
            log.error("adapter %s cannot be loaded again: %s", ascii(name), error)

    async def _load(self, entry: AdapterEntry, in_place: bool) -> None:
        try:
            await self._request(LoadAdapter(entry.name, entry.folder, in_place))
            self.loaded[entry.name] = entry
        finally:
            self._loading.discard(entry.name)

    def _request(self, command: Command) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self.send(command)
        return future
