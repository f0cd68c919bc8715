"""The pump of an encoder in the event loop: `driver.py` for models that give rows, not tokens.

A step is computed and read before the next is planned, as `model.encoder_driver` has it: what a
page asks while the GPU computes shares the step behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from mlcc.embedded.executor import JsExecutor, Ticket
from mlcc.embedded.pump import BaseDriver
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.events import Event
from mlcc.errors import MlccError


class LoopEncoderDriver(BaseDriver):
    """One step at a time while texts wait. `run` is a task of its own."""

    def __init__(
        self, engine: EncoderEngine, executor: JsExecutor, deliver: Callable[[list[Event]], None]
    ) -> None:
        super().__init__(engine)
        self._encoder, self._executor, self._deliver = engine, executor, deliver
        self._flying: Ticket | None = None

    async def recover(self) -> None:
        """Leave nothing in flight on either side; every text ends, without events."""
        self._encoder.fail()
        ticket, self._flying = self._flying, None
        if ticket is not None:
            with suppress(MlccError):
                await self._executor.vectors(ticket)

    async def _step(self) -> None:
        count, clock = self.counters, perf_counter
        t0 = clock()
        batch = self._encoder.plan()
        if batch is None:
            raise RuntimeError("the engine has texts and plans nothing; this is a bug")
        t1 = clock()
        packed = self._executor.pack(batch)
        t2 = clock()
        ticket = self._flying = self._executor.submit(packed)
        t3 = clock()
        rows = await self._executor.vectors(ticket)
        self._flying = None
        t4 = clock()
        events = self._encoder.commit(rows)
        t5 = clock()
        self._deliver(events)
        await asyncio.sleep(0)  # answers are written, messages come in
        t6 = clock()
        count.steps += 1
        count.plan_ms += (t1 - t0) * 1e3
        count.pack_ms += (t2 - t1) * 1e3
        count.submit_ms += (t3 - t2) * 1e3
        count.wait_ms += (t4 - t3) * 1e3
        count.commit_ms += (t5 - t4) * 1e3
        count.events_ms += (t6 - t5) * 1e3
