"""Several models in one server: loaded when somebody asks for one, and the least recently used out
when their memory is full. The port `mlcc.service.model_port` for a server.

All of it runs in one event loop: what is decided between two awaits is decided alone.

The place of one model in a server that has several: whether it is loaded, who holds it, and what
of the memory is its. Decides nothing; see `pool.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcc.api.errors import BusyError, EngineDiedError, NotFoundError
from mlcc.errors import MlccError, OutOfMemoryError
from mlcc.server.models.loaded_model import LoadedModel
from mlcc.server.models.memory_budget import Allocation, Evict, Grant, Wait, decide
from mlcc.server.models.sources import Source
from mlcc.service.generate import Core, ServiceBounds
from mlcc.service.jobs.engine_client import EngineClient
from mlcc.service.model_port import Lease, ModelEntry
from mlcc.service.observer import Observer
from mlcc.service.response_store.conversations import Conversations
from mlcc.service.response_store.store import Kept


@dataclass(eq=False)
class ModelSlot:
    """One model: whether it is there, who holds it, and what of the memory is its."""

    source: Source
    hosted: LoadedModel | None = None
    loading: asyncio.Task[None] | None = None
    waiting: int = 0
    """Who wait for it to be loaded."""
    leases: int = 0
    granted: int | None = None
    """Bytes, from before it is loaded until after it is gone; None = it has none."""
    used: float = 0.0
    ending: asyncio.Task[None] | None = None
    """While its processes end."""

    @property
    def live(self) -> int:
        """Requests that its engine has."""
        return self.hosted.core.engine.live if self.hosted else 0

    @property
    def idle(self) -> bool:
        """Loaded, and nobody would miss it now."""
        return self.hosted is not None and not self.leases and not self.waiting and not self.live

    @property
    def entry(self) -> ModelEntry:
        """As lists of models tell it."""
        source, context = self.source, self.source.context
        if self.hosted:
            context = self.hosted.core.engine.capacity.context
        return ModelEntry(
            source.name,
            source.created,
            "loaded" if self.hosted else "loading" if self.loading else "unloaded",
            context,
            source.aliases,
            self.granted if self.hosted else None,
            self.live,
            source.about,
        )


log = logging.getLogger("mlcc.server")
_EVICTED = "the model was unloaded"
_LOOK_AGAIN_S = 1.0
"""A stored answer that is made for nobody holds no lease, and tells nobody when it is done."""


class ModelPool:
    """The models of a server. `budgets` are bytes by device, None = nobody knows how many."""

    def __init__(
        self,
        sources: Sequence[Source],
        budgets: Mapping[str, int | None],
        bounds: ServiceBounds,
        max_queue: int,
        say: Callable[[str], None] = log.info,
        kept: Kept | None = None,
    ) -> None:
        """`say` hears what is loaded and unloaded. `kept` has answers of /v1/responses, of all."""
        self._slots = [ModelSlot(source) for source in sources]
        self._names = {name: slot for slot in self._slots for name in slot.source.names}
        self._budgets, self._bounds, self._max_queue = budgets, bounds, max_queue
        self._say = say
        self.conversations = Conversations(kept)
        """Of all models: one goes on with what another answered."""
        self._changed = asyncio.Event()
        """Somebody let go of a model since it was last waited for."""
        self._stopped = False
        self._closing: asyncio.Task[None] | None = None
        self.observer: Callable[[str], Observer] | None = None
        """Who hears of a model's answers, by its name."""

    def clients(self) -> dict[str, EngineClient]:
        """The engines of those that are loaded, by name."""
        return {slot.source.name: slot.hosted.core.engine for slot in self._slots if slot.hosted}

    @property
    def only(self) -> Core | None:
        """None: each may come and go."""
        return None

    def entries(self) -> list[ModelEntry]:
        """In the order in which they were given."""
        return [slot.entry for slot in self._slots]

    def entry(self, name: str) -> ModelEntry:
        """Raises NotFoundError."""
        return self._slot(name).entry

    async def lease(self, name: str | None) -> Lease:
        """The model, loaded for this if need be; None: the one that was asked last."""
        slot = self._slot(name) if name is not None else self._any()
        slot.waiting += 1
        try:
            while slot.hosted is None:
                await self._wait_for(slot)
            slot.leases += 1
        finally:
            slot.waiting -= 1
            self._nobody_waits(slot)
        slot.used = time.monotonic()
        return Lease(slot.hosted.core, _once(partial(self._release, slot)))

    async def load(self, name: str) -> ModelEntry:
        """Raises what `lease` raises."""
        (await self.lease(name)).release()
        return self.entry(name)

    async def unload(self, name: str) -> ModelEntry:
        """Raises BusyError while it is asked."""
        slot = self._slot(name)
        if slot.loading or (slot.hosted and not slot.idle):
            raise BusyError(
                f"'{slot.source.name}' is being loaded or answers {slot.live} requests; try again "
                "when they are done",
                param="model",
                code="model_busy",
            )
        if slot.hosted:
            await self._put_out(slot, "asked to")
        return slot.entry

    async def counters(self) -> Mapping[str, Any]:
        """Of each, its state and what its engine counts."""
        told = await asyncio.gather(*map(self._counters, self._slots))
        return {slot.source.name: state for slot, state in zip(self._slots, told, strict=True)}

    async def _counters(self, slot: ModelSlot) -> dict[str, Any]:
        state: dict[str, Any] = {"state": slot.entry.state}
        if (hosted := slot.hosted) is not None:
            try:
                state |= await hosted.core.engine.counters()
            except MlccError as error:
                state["reason"] = type(error).__name__
        return state

    async def close(self) -> None:
        """Unload everything, all at once; who waits gets an error. Idempotent: who comes second
        waits for the end, too."""
        self._stopped = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        loading = [slot.loading for slot in self._slots if slot.loading]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)
        await asyncio.gather(*map(self._end_of, self._slots))

    async def _end_of(self, slot: ModelSlot) -> None:
        if slot.ending is not None:
            await asyncio.wait([slot.ending])
        if (hosted := slot.hosted) is not None:
            slot.hosted = None
            await hosted.close("the server is shutting down")

    def _slot(self, name: str) -> ModelSlot:
        if (slot := self._names.get(name) or self._names.get(_untagged(name))) is not None:
            return slot
        names = ", ".join(f"'{slot.source.name}'" for slot in self._slots[:8])
        more = f" and {len(self._slots) - 8} more" if len(self._slots) > 8 else ""
        raise NotFoundError(
            f"there is no model '{name[:80]}' here; there are {names}{more} (GET /v1/models)",
            param="model",
            code="model_not_found",
        )

    def _any(self) -> ModelSlot:
        return max(self._slots, key=lambda slot: (slot.hosted is not None, slot.used))

    async def _wait_for(self, slot: ModelSlot) -> None:
        """Have it loaded, together with all who ask for it. Raises why it is not."""
        if self._stopped:
            raise EngineDiedError("the server is shutting down", code="engine_died")
        if slot.loading is None:
            slot.loading = asyncio.ensure_future(self._load(slot))
        task = slot.loading
        await asyncio.wait([task])  # and not `await task`: who leaves must not end it for others
        if task.cancelled():
            raise EngineDiedError("the server is shutting down", code="engine_died")
        if error := task.exception():
            raise error.with_traceback(None)

    def _nobody_waits(self, slot: ModelSlot) -> None:
        """A load that nobody wants any more ends."""
        if not slot.waiting and slot.loading is not None:
            slot.loading.cancel()

    async def _load(self, slot: ModelSlot) -> None:
        source = slot.source
        try:
            if slot.ending is not None:
                await asyncio.wait([slot.ending])
            while True:
                granted = await self._room_for(slot)
                try:
                    await self._open(slot, granted)
                    return
                except OutOfMemoryError:  # a device that does not tell how much it has
                    slot.granted = None
                    if not (others := [s for s in self._beside(slot) if s.idle]):
                        raise
                    oldest = min(others, key=lambda other: other.used)
                    await self._put_out(oldest, f"for '{source.name}'")
        finally:
            slot.loading = None
            if slot.hosted is None:
                slot.granted = None
                self._changed.set()

    async def _open(self, slot: ModelSlot, granted: int | None) -> None:
        source, began = slot.source, time.monotonic()
        hosted = LoadedModel(
            source.opener(granted),
            source.open_text,
            self._bounds,
            self._max_queue,
            self.conversations,
        )
        await hosted.load(source.name, source.aliases)
        if self.observer is not None:
            hosted.core.engine.observer = self.observer(source.name)
        slot.hosted, slot.used = hosted, time.monotonic()
        for line in hosted.notes:
            self._say(f"{source.name}: {line}")
        self._say(f"'{source.name}' is loaded, after {time.monotonic() - began:.1f} s")

    async def _room_for(self, slot: ModelSlot) -> int | None:
        """Reserve its memory. Raises CapacityError or BusyError if it gets none."""
        source, total = slot.source, self._budgets[slot.source.device]
        end = None if self._bounds.timeout_s is None else time.monotonic() + self._bounds.timeout_s
        while True:
            holdings = [
                Allocation(other.source.name, other.granted, other.used, other.idle)
                for other in self._beside(slot)
                if other.granted is not None
            ]
            step = decide(total, len(self._slots), source, holdings)
            if isinstance(step, Grant):
                slot.granted = step.bytes
                return step.bytes
            if isinstance(step, Evict):
                await self._put_out(self._names[step.name], f"for '{source.name}'")
            else:
                await self._until_changed(step, source, end)

    async def _until_changed(self, step: Wait, source: Source, end: float | None) -> None:
        """Until somebody lets go of a model. Raises BusyError if that takes too long."""
        self._changed.clear()
        if end is not None and time.monotonic() >= end:
            raise BusyError(
                f"there is no memory for '{source.name}' while {', '.join(step.names)} answer; try "
                "again later, or give the server more (--memory of `mlcc serve`)",
                code="memory_full",
            )
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), _LOOK_AGAIN_S)

    async def _put_out(self, slot: ModelSlot, why: str) -> None:
        """Unload an idle one. Its memory is others' when its processes are gone."""
        assert slot.hosted is not None
        hosted, slot.hosted = slot.hosted, None
        self._say(f"'{slot.source.name}' is unloaded, {why}")
        slot.ending = asyncio.ensure_future(self._end(slot, hosted))
        await asyncio.shield(slot.ending)

    async def _end(self, slot: ModelSlot, hosted: LoadedModel) -> None:
        """Whoever loads it again waits for this."""
        try:
            await hosted.close(_EVICTED)
        finally:
            slot.ending = slot.granted = None
            self._changed.set()

    def _beside(self, slot: ModelSlot) -> list[ModelSlot]:
        """The others on its device."""
        return [s for s in self._slots if s is not slot and s.source.device == slot.source.device]

    def _release(self, slot: ModelSlot) -> None:
        slot.leases -= 1
        slot.used = time.monotonic()
        self._changed.set()


def _untagged(name: str) -> str:
    """Ollama's clients put a tag behind names that have none."""
    return name.removesuffix(":latest")


def _once(work: Callable[[], None]) -> Callable[[], None]:
    left = [work]

    def run() -> None:
        if left:
            left.pop()()

    return run
