"""The pump between an engine and its host's device, in the event loop: a driver that never waits.

Decides nothing about requests. Between two steps the loop runs, so that what a page asks meanwhile
joins the next step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from mlcc.embedded.executor import JsExecutor, Ticket
from mlcc.embedded.pump import BaseDriver
from mlcc.engine.engine import Engine
from mlcc.engine.events import Event
from mlcc.errors import MlccError
from mlcc.model.lora_loader import AdapterLoader


class LoopDriver(BaseDriver):
    """Keeps `depth` steps in flight while there is work. `run` is a task of its own."""

    def __init__(
        self,
        engine: Engine,
        executor: JsExecutor,
        adapters: AdapterLoader,
        deliver: Callable[[list[Event]], None],
    ) -> None:
        super().__init__(engine)
        self._engine = engine
        self._executor = executor
        self._adapters = adapters
        self._deliver = deliver
        self._flying: deque[tuple[Ticket, float]] = deque()
        """Steps in flight, and when each was submitted."""
        self._done = 0.0
        """When the GPU last ended a step."""

    async def recover(self) -> None:
        """Leave nothing in flight on either side; every request ends, without events."""
        self._engine.fail()
        while self._flying:
            with suppress(MlccError):
                await self._executor.collect(self._flying.popleft()[0])

    async def _step(self) -> None:
        count, clock = self.counters, perf_counter
        self._fill()
        if not self._flying:
            raise RuntimeError("the engine has requests and plans nothing; this is a bug")
        t0 = clock()
        ticket, submitted = self._flying.popleft()
        result = await self._executor.collect(ticket)
        t1 = clock()
        began, self._done = max(submitted, self._done), t1
        events = self._engine.commit(result, t1 - began)
        t2 = clock()
        self._deliver(events)
        await asyncio.sleep(0)  # the streams write, messages come in
        t3 = clock()
        count.steps += 1
        count.wait_ms += (t1 - t0) * 1e3
        count.commit_ms += (t2 - t1) * 1e3
        count.events_ms += (t3 - t2) * 1e3

    def _fill(self) -> None:
        count, clock = self.counters, perf_counter
        while len(self._flying) < self._executor.depth:
            t0 = clock()
            self._adapters.bring()
            batch = self._engine.plan()
            t1 = clock()
            count.plan_ms += (t1 - t0) * 1e3
            if batch is None:
                if self._adapters.waiting:
                    continue
                return
            packed = self._executor.pack(batch, self._engine.adjustments())
            t2 = clock()
            self._flying.append((self._executor.submit(packed), t2))
            count.pack_ms += (t2 - t1) * 1e3
            count.submit_ms += (clock() - t2) * 1e3
