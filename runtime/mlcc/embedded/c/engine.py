"""An engine that steps in the event loop, for a device with blocking calls.

A step blocks the loop, which costs nothing: requests that arrive meanwhile could not join it. TVM's
kernel threads belong to the calling thread, which is the loop's.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from mlcc.api.errors import internal_error
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar, Grammars, Structure
from mlcc.errors import DeviceError, DeviceLostError, MlccError
from mlcc.model.encoder_driver import driver_of
from mlcc.model.model import Model
from mlcc.service.adapters import AdapterEntry
from mlcc.service.engine_client import EngineClient


class InProcessClient(EngineClient):
    """One per model, which its owner closes. Needs a running event loop."""

    def __init__(self, model: Model, max_queue: int, before_step: Callable[[], None]) -> None:
        """`before_step` is called when the last step's output has been written, before the next
        step blocks the loop."""
        super().__init__(max_queue + model.capacity.max_batch)
        self.refusal: MlccError | None = None
        """Why no request is accepted for now."""
        self._before_step = before_step
        self._capacity = model.capacity
        self._driver = driver_of(model)
        self._adapters: dict[str, AdapterEntry] = {}
        self._grammars = model.text.grammars
        self._reading: dict[str, asyncio.Task[None]] = {}
        """Requests whose grammar is being compiled in a thread, so that the loop continues."""
        self._work = asyncio.Event()
        self._running = asyncio.get_running_loop().create_task(self._run())

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    def check_queue(self, count: int, tenant: str = "") -> None:
        """The base class's check, and `refusal`."""
        super().check_queue(count, tenant)
        if self.refusal:
            raise self.refusal.with_traceback(None)

    @property
    def adapters(self) -> Mapping[str, AdapterEntry]:
        return self._adapters

    async def load_adapter(self, entry: AdapterEntry, in_place: bool = False) -> None:
        """Load an adapter between two steps; blocks the event loop while it is read."""
        self.check_alive()
        self._driver.load_adapter(entry.name, entry.folder, in_place)
        self._adapters[entry.name] = entry

    async def unload_adapter(self, name: str) -> None:
        self.check_alive()
        if self._adapters.pop(name, None) is None:
            await super().unload_adapter(name)
        self._driver.unload_adapter(name)

    def forget_prefixes(self) -> None:
        """Clear the prefix cache."""
        self._driver.engine.forget_prefixes()

    def stats(self) -> dict[str, Any]:
        """Return the engine's counters."""
        return asdict(self._driver.engine.stats())

    async def counters(self) -> dict[str, Any]:
        """Return the counters for /health. Raises if the engine is dead."""
        if self.dead:
            raise self.dead.with_traceback(None)
        return {"engine": self.stats()}

    def stop(self, why: MlccError) -> None:
        """Fail all requests, now and later. Idempotent."""
        self._running.cancel()
        for reading in self._reading.values():
            reading.cancel()
        self._die(why)

    def _add(self, request: Request) -> None:
        if request.structure is None or self._grammars is None:
            self._begin(request)
        else:
            task = self._read(request, self._grammars, request.structure)
            self._reading[request.id] = asyncio.get_running_loop().create_task(task)

    async def _read(self, request: Request, grammars: Grammars, structure: Structure) -> None:
        try:
            grammar = await asyncio.to_thread(grammars.open, structure)
        except MlccError as error:
            self._refuse(request.id, error)
        except Exception:
            traceback.print_exc()
            self._refuse(request.id, internal_error())
        else:
            self._begin(request, grammar)
        finally:
            self._reading.pop(request.id, None)

    def _begin(self, request: Request, grammar: Grammar | None = None) -> None:
        try:
            self._driver.engine.add(request, grammar)
        except MlccError as error:
            self._refuse(request.id, error)
        else:
            self._accept(request.id)
            self._work.set()

    def _cancel(self, request_id: str) -> None:
        if reading := self._reading.get(request_id):
            reading.cancel()
        self._driver.engine.cancel(request_id)

    async def _run(self) -> None:
        """Step until the device is lost. Any other device error only fails the running requests."""
        while self.dead is None:
            if not self._driver.has_work:
                self._work.clear()
                await self._work.wait()
            self._before_step()
            try:
                self._deliver(self._driver.step())
            except DeviceLostError as error:
                self._die(error)
            except MlccError as error:
                self._fail(error)
            except Exception as error:
                traceback.print_exc()
                text = f"the engine failed ({type(error).__name__}: {error}); see the log"
                self._die(DeviceError(f"{text}; this is a bug", code="engine_failed"))
            await asyncio.sleep(0)  # let streams write and commands arrive
