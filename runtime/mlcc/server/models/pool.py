"""Model pool: loads models on demand and evicts the least recently used one when memory is full.
Implements the port `Models` of `mlcc.service.served_model`.

Runs in one event loop: state only changes between two awaits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mlcc.api.errors import BusyError, EngineDiedError, NotFoundError, SleepingError
from mlcc.errors import InvalidRequestError, MlccError, OutOfMemoryError, UnsupportedError
from mlcc.model_argument import remote_name
from mlcc.server.models.loaded_model import LoadedModel
from mlcc.server.models.memory_budget import Allocation, Evict, Grant, Wait, decide
from mlcc.server.models.puller import Pulled, Puller
from mlcc.server.models.sources import Source
from mlcc.service.engine_client import EngineClient
from mlcc.service.observer import Observer
from mlcc.service.response_store.conversations import Conversations
from mlcc.service.response_store.store import ResponseStore
from mlcc.service.served_model import Lease, ModelEntry, PullStep, ServedModel, ServiceBounds


@dataclass(eq=False)
class ModelSlot:
    """State of one model in the pool: loaded or not, its users, and its memory."""

    source: Source
    loaded: LoadedModel | None = None
    loading: asyncio.Task[None] | None = None
    progress: float | None = None
    """Share of its bytes that have been read while it is loaded; None = none yet."""
    waiting: int = 0
    """Requests that wait for it to load."""
    leases: int = 0
    granted: int | None = None
    """Bytes reserved for it, from before loading until after unloading; None = none."""
    used: float = 0.0
    ending: asyncio.Task[None] | None = None
    """Runs while its processes end."""

    @property
    def live(self) -> int:
        """Running requests of its engine."""
        return self.loaded.served.engine.in_flight if self.loaded else 0

    @property
    def idle(self) -> bool:
        """Whether it is loaded and unused."""
        return self.loaded is not None and not self.leases and not self.waiting and not self.live

    @property
    def entry(self) -> ModelEntry:
        """Its entry in the list of models."""
        source, context = self.source, self.source.context
        if self.loaded:
            context = self.loaded.served.engine.capacity.context
        return ModelEntry(
            source.name,
            source.created,
            "loaded" if self.loaded else "loading" if self.loading else "unloaded",
            context,
            source.aliases,
            self.granted if self.loaded else None,
            self.live,
            source.info,
            progress=self.progress if self.loading else None,
        )

    def report(self, done: int, total: int) -> None:
        """Note the bytes that have been read. Called in the thread that loads."""
        self.progress = done / total if total else None


log = logging.getLogger("mlcc.server")
_EVICTED = "the model was unloaded"
_POLL_S = 0.02
"""Between two looks whether the last request is done."""
_LOOK_AGAIN_S = 1.0
"""Poll interval: a background response holds no lease, and does not signal its end."""


class ModelPool:
    """The models of a server. `budgets` are bytes by device, None = unknown."""

    def __init__(
        self,
        sources: Sequence[Source],
        budgets: Mapping[str, int | None],
        bounds: ServiceBounds,
        max_queue: int,
        report: Callable[[str], None] = log.info,
        store: ResponseStore | None = None,
        puller: Puller | None = None,
    ) -> None:
        """`report` gets a message for each load and unload. `store` is the response store of all
        models. `puller` fetches further ones; None = none are added."""
        self._puller, self._pulling = puller, False
        self._slots = [ModelSlot(source) for source in sources]
        self._names = {name: slot for slot in self._slots for name in slot.source.names}
        self._budgets, self._bounds, self._max_queue = dict(budgets), bounds, max_queue
        self._report = report
        self.conversations = Conversations(store)
        """Shared by all models: one may continue another's conversation."""
        self._changed = asyncio.Event()
        """Set when a model is released."""
        self._stopped = False
        self._sleeping: SleepingError | None = None
        self._closing: asyncio.Task[None] | None = None
        self.observer: Callable[[str], Observer] | None = None
        """Creates the observer of a model, by its name."""

    def clients(self) -> dict[str, EngineClient]:
        """Return the engine clients of the loaded models, by name."""
        return {slot.source.name: slot.loaded.served.engine for slot in self._slots if slot.loaded}

    @property
    def only(self) -> ServedModel | None:
        """None: there is no single model."""
        return None

    def entries(self) -> list[ModelEntry]:
        """Return the models in the order in which they were given."""
        entries = [slot.entry for slot in self._slots]
        if self._sleeping is None:
            return entries
        return [replace(one, state="sleeping") for one in entries]

    def entry(self, name: str) -> ModelEntry:
        """Raises NotFoundError."""
        return self._slot(name).entry

    async def lease(self, name: str | None) -> Lease:
        """Return a lease on the model, loading it if needed; None = the most recently used
        model."""
        slot = self._slot(name) if name is not None else self._most_recent()
        slot.waiting += 1
        try:
            while slot.loaded is None or self._sleeping is not None:
                await self._ensure_loaded(slot)
            slot.leases += 1
        finally:
            slot.waiting -= 1
            self._cancel_unwanted_load(slot)
        slot.used = time.monotonic()
        return Lease(slot.loaded.served, _once(partial(self._release, slot)))

    async def load(self, name: str) -> ModelEntry:
        """Raises what `lease` raises."""
        (await self.lease(name)).release()
        return self.entry(name)

    async def unload(self, name: str) -> ModelEntry:
        """Unload a model. Raises BusyError while it is in use."""
        slot = self._slot(name)
        if slot.loading or (slot.loaded and not slot.idle):
            raise BusyError(
                f"'{slot.source.name}' is being loaded or answers {slot.live} requests; try again "
                "when they are done",
                param="model",
                code="model_busy",
            )
        if slot.loaded:
            await self._evict(slot, "asked to")
        return slot.entry

    @property
    def asleep(self) -> bool:
        """Whether models are refused until `wake`."""
        return self._sleeping is not None

    async def sleep(self, wait: bool) -> None:
        """Unload all models, and load none before `wake`."""
        self._sleeping = error = self._sleeping or SleepingError()
        try:
            while wait and any(slot.live or slot.leases for slot in self._slots):
                await asyncio.sleep(_POLL_S)
        except BaseException:  # the caller was cancelled
            self._sleeping = None
            raise
        loading = [slot.loading for slot in self._slots if slot.loading]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)
        loaded = [slot for slot in self._slots if slot.loaded]
        for client in self.clients().values():
            client.fail_all(error)
        await asyncio.gather(*(self._evict(slot, "to sleep") for slot in loaded))

    async def wake(self) -> None:
        """The next request of a model loads it."""
        self._sleeping = None

    def _check_awake(self) -> None:
        if self._sleeping is not None:
            raise self._sleeping.with_traceback(None)

    def pull(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Fetch a model by its name at the hub, and add it."""
        if self._puller is None:
            raise UnsupportedError(
                "this server adds no models: others can reach it, and it asks for no API key; "
                f"fetch '{name[:80]}' with `mlcc pull {name[:80]}` and start it again",
                param="model",
                code="not_pulled",
            )
        if (remote := remote_name(name)) is None:
            raise InvalidRequestError(
                f"{name[:80]!a} is no name at the hub; give org/name, or a short name of `mlcc "
                "names` such as qwen3:0.6b",
                param="model",
                code="invalid_value",
            )
        self._check_not_pulling()
        return self._pull(self._puller, name, remote)

    async def _pull(self, puller: Puller, name: str, remote: str) -> AsyncGenerator[PullStep, None]:
        self._check_not_pulling()
        self._pulling = True
        try:
            async with aclosing(puller.fetch(remote)) as steps:
                async for step in steps:
                    yield step
            yield PullStep("opening the model")
            self._add(await asyncio.to_thread(puller.open_source, remote), name)
        finally:
            self._pulling = False

    def _check_not_pulling(self) -> None:
        if self._pulling:
            raise BusyError(
                "another model is being fetched; try again when it is here", code="pulling"
            )

    def _add(self, pulled: Pulled, name: str) -> None:
        """Add a model, which also answers to the name that it was asked by."""
        source = pulled.source
        if (known := self._names.get(source.name)) is None:
            known = ModelSlot(source)
            self._slots.append(known)
            self._budgets = {**pulled.budgets, **self._budgets}
        for each in (source.name, name):
            if self._names.setdefault(each, known) is known and each not in known.source.names:
                known.source = replace(known.source, aliases=(*known.source.aliases, each))
        self._report(f"'{source.name}' was fetched")

    async def counters(self) -> Mapping[str, Any]:
        """Return each model's state and engine counters."""
        states = await asyncio.gather(*map(self._counters, self._slots))
        return {slot.source.name: state for slot, state in zip(self._slots, states, strict=True)}

    async def _counters(self, slot: ModelSlot) -> dict[str, Any]:
        state: dict[str, Any] = {"state": slot.entry.state}
        if (loaded := slot.loaded) is not None:
            try:
                state |= await loaded.served.engine.counters()
            except MlccError as error:
                state["reason"] = type(error).__name__
        return state

    async def close(self) -> None:
        """Unload all models in parallel; waiting requests fail. Idempotent: a second call waits for
        the end, too."""
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
        await asyncio.gather(*map(self._close_slot, self._slots))

    async def _close_slot(self, slot: ModelSlot) -> None:
        if slot.ending is not None:
            await asyncio.wait([slot.ending])
        if (loaded := slot.loaded) is not None:
            slot.loaded = None
            await loaded.close("the server is shutting down")

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

    def _most_recent(self) -> ModelSlot:
        return max(self._slots, key=lambda slot: (slot.loaded is not None, slot.used))

    async def _ensure_loaded(self, slot: ModelSlot) -> None:
        """Load the model, once for all waiting requests. Raises the load's error."""
        if self._stopped:
            raise EngineDiedError("the server is shutting down", code="engine_died")
        self._check_awake()
        if slot.loading is None:
            slot.loading = asyncio.ensure_future(self._load(slot))
        task = slot.loading
        await asyncio.wait(
            [task]
        )  # not `await task`: a cancelled request must not cancel it for others
        if task.cancelled():
            self._check_awake()
            raise EngineDiedError("the server is shutting down", code="engine_died")
        if error := task.exception():
            raise error.with_traceback(None)

    def _cancel_unwanted_load(self, slot: ModelSlot) -> None:
        """Cancel the load if no request waits for it any more."""
        if not slot.waiting and slot.loading is not None:
            slot.loading.cancel()

    async def _load(self, slot: ModelSlot) -> None:
        source = slot.source
        try:
            if slot.ending is not None:
                await asyncio.wait([slot.ending])
            while True:
                granted = await self._reserve_memory(slot)
                try:
                    await self._open(slot, granted)
                    return
                except OutOfMemoryError:  # a device of unknown memory
                    slot.granted = None
                    if not (others := [s for s in self._others_on_device(slot) if s.idle]):
                        raise
                    oldest = min(others, key=lambda other: other.used)
                    await self._evict(oldest, f"for '{source.name}'")
        finally:
            slot.loading = None
            if slot.loaded is None:
                slot.granted = None
                self._changed.set()

    async def _open(self, slot: ModelSlot, granted: int | None) -> None:
        source, began = slot.source, time.monotonic()
        slot.progress = None
        loaded = LoadedModel(
            source.opener(granted),
            source.open_text,
            self._bounds,
            self._max_queue,
            self.conversations,
            slot.report,
        )
        await loaded.load(source.name, source.aliases)
        if self.observer is not None:
            loaded.served.engine.observer = self.observer(source.name)
        slot.loaded, slot.used = loaded, time.monotonic()
        for line in loaded.notes:
            self._report(f"{source.name}: {line}")
        self._report(f"'{source.name}' is loaded, after {time.monotonic() - began:.1f} s")

    async def _reserve_memory(self, slot: ModelSlot) -> int | None:
        """Reserve the model's memory, evicting others if needed. Raises CapacityError or BusyError
        if that fails."""
        source, total = slot.source, self._budgets[slot.source.device]
        end = None if self._bounds.timeout_s is None else time.monotonic() + self._bounds.timeout_s
        while True:
            allocations = [
                Allocation(other.source.name, other.granted, other.used, other.idle)
                for other in self._others_on_device(slot)
                if other.granted is not None
            ]
            step = decide(total, len(self._slots), source, allocations)
            if isinstance(step, Grant):
                slot.granted = step.bytes
                return step.bytes
            if isinstance(step, Evict):
                await self._evict(self._names[step.name], f"for '{source.name}'")
            else:
                await self._wait_for_release(step, source, end)

    async def _wait_for_release(self, step: Wait, source: Source, end: float | None) -> None:
        """Wait until a model is released. Raises BusyError after the timeout."""
        self._changed.clear()
        if end is not None and time.monotonic() >= end:
            raise BusyError(
                f"there is no memory for '{source.name}' while {', '.join(step.names)} answer; try "
                "again later, or give the server more (--memory of `mlcc serve`)",
                code="memory_full",
            )
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), _LOOK_AGAIN_S)

    async def _evict(self, slot: ModelSlot, why: str) -> None:
        """Unload an idle model. Its memory is free once its processes have ended."""
        assert slot.loaded is not None
        loaded, slot.loaded = slot.loaded, None
        self._report(f"'{slot.source.name}' is unloaded, {why}")
        slot.ending = asyncio.ensure_future(self._unload(slot, loaded))
        await asyncio.shield(slot.ending)

    async def _unload(self, slot: ModelSlot, loaded: LoadedModel) -> None:
        """End the model's processes; a new load of it waits for this."""
        try:
            await loaded.close(_EVICTED)
        finally:
            slot.ending = slot.granted = None
            self._changed.set()

    def _others_on_device(self, slot: ModelSlot) -> list[ModelSlot]:
        """Return the other models on the same device."""
        return [s for s in self._slots if s is not slot and s.source.device == slot.source.device]

    def _release(self, slot: ModelSlot) -> None:
        slot.leases -= 1
        slot.used = time.monotonic()
        self._changed.set()


def _untagged(name: str) -> str:
    """Strip the tag that Ollama's clients append to names."""
    return name.removesuffix(":latest")


def _once(work: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `work` the first time only."""
    done = False

    def run() -> None:
        nonlocal done
        if not done:
            done = True
            work()

    return run
