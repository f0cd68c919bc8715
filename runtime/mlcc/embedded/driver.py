"""Drivers between an engine and the host's device, in the event loop: submit steps, await results,
deliver events.

`BaseDriver` runs while there is work, sleeps otherwise, and records timings. `LoopDriver` is for
generation, with several steps in flight; `LoopEncoderDriver` is for encoders, one step at a time:
texts that arrive meanwhile share the next step. Between two steps the event loop runs, so that new
requests join the next step.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from mlcc.embedded.executor import JsExecutor, Ticket
from mlcc.embedded.tower import TabTowers
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.engine import Engine
from mlcc.engine.events import Event
from mlcc.errors import DeviceLostError, MlccError, UnsupportedError, public_error
from mlcc.lora.loader import AdapterLoader


class HasWork(Protocol):
    """The part of an engine that a driver checks to continue."""

    @property
    def has_work(self) -> bool: ...


@dataclass(slots=True)
class Counters:
    """Total time of all steps by phase, in milliseconds."""

    steps: int = 0
    plan_ms: float = 0.0
    pack_ms: float = 0.0
    submit_ms: float = 0.0
    """JavaScript and the browser queueing the step: not Python."""
    wait_ms: float = 0.0
    """Waiting for the GPU, with the event loop free."""
    commit_ms: float = 0.0
    events_ms: float = 0.0
    """Until all streams have written the step's events; includes other work of the event loop."""

    @property
    def python_ms(self) -> float:
        """Python's share."""
        return self.plan_ms + self.pack_ms + self.commit_ms + self.events_ms


class BaseDriver(ABC):
    """Steps one engine in the event loop. `run` is a task of its own."""

    def __init__(self, engine: HasWork) -> None:
        self.counters = Counters()
        self._source = engine
        self._work = asyncio.Event()

    def wake(self) -> None:
        """Wake the loop: there is new work."""
        self._work.set()

    async def run(self) -> None:
        """Step until the device fails, and raise its error. Call `recover` before running again."""
        while True:
            while not self._source.has_work:  # the request may have been cancelled since `wake`
                self._work.clear()
                await self._work.wait()
            await self._step()

    @abstractmethod
    async def recover(self) -> None:
        """Clear the steps in flight on both sides; every request ends, without events."""

    @abstractmethod
    async def _step(self) -> None:
        """Run one step, from its plan to its events. Raises the device's errors."""


class LoopDriver(BaseDriver):
    """Keeps `depth` steps in flight while there is work. `run` is a task of its own."""

    def __init__(
        self,
        engine: Engine,
        executor: JsExecutor,
        adapters: AdapterLoader,
        deliver: Callable[[list[Event]], None],
        towers: TabTowers | None = None,
    ) -> None:
        """towers: compute the rows of images and of sound; None = the model reads text only."""
        super().__init__(engine)
        self._engine = engine
        self._towers = towers
        self._executor = executor
        self._adapters = adapters
        self._deliver = deliver
        self._in_flight: deque[tuple[Ticket, float]] = deque()
        """Steps in flight, and the submission time of each."""
        self._planning = False
        """Whether the next step is being planned, not yet submitted."""
        self._done = 0.0
        """Time at which the GPU finished the last step."""

    async def recover(self) -> None:
        """Clear the steps in flight on both sides; every request ends, without events."""
        self._engine.fail()
        await self._discard()

    async def _step(self) -> None:
        """Run one step. If it fails, the requests are computed again, and the one that is the cause
        ends with "error" in one of the next steps."""
        try:
            await self._run_step()
        except DeviceLostError:
            raise
        except Exception as error:
            await self._discard()
            self._deliver(self._engine.recover(public_error(error), self._planning))
            if not isinstance(error, MlccError):
                import traceback  # no tab loads it without need

                traceback.print_exception(error)

    async def _discard(self) -> None:
        """Wait for the steps in flight, without their results."""
        while self._in_flight:
            with suppress(MlccError):
                await self._executor.collect(self._in_flight.popleft()[0])

    async def _run_step(self) -> None:
        count, clock = self.counters, perf_counter
        await self._fill()
        if not self._in_flight:
            if not self._engine.has_work:  # aligned, or cancelled while an image was encoded
                return
            self._planning = True
            raise RuntimeError("the engine has requests and plans nothing; this is a bug")
        t0 = clock()
        self._planning = False
        ticket, submitted = self._in_flight.popleft()
        result = await self._executor.collect(ticket)
        t1 = clock()
        began, self._done = max(submitted, self._done), t1
        events = self._engine.commit(result, t1 - began)
        t2 = clock()
        self._deliver(events)
        await asyncio.sleep(0)  # let streams write and messages arrive
        t3 = clock()
        count.steps += 1
        count.wait_ms += (t1 - t0) * 1e3
        count.commit_ms += (t2 - t1) * 1e3
        count.events_ms += (t3 - t2) * 1e3

    async def _fill(self) -> None:
        count, clock, media = self.counters, perf_counter, self._engine.media
        while len(self._in_flight) < self._executor.depth:
            if self._engine.alignments:  # before pages are written
                if self._in_flight:
                    return
                await self._align()
                continue
            self._planning = True
            if media.to_encode:
                if self._in_flight:  # rows are written between steps
                    return
                await self._encode_media()
            t0 = clock()
            self._adapters.swap_in()
            batch = self._engine.plan()
            t1 = clock()
            count.plan_ms += (t1 - t0) * 1e3
            if batch is None:
                if self._adapters.waiting or (media.to_encode and not self._in_flight):
                    continue
                return
            self._planning = False
            packed = self._executor.pack(batch, self._engine.adjustments())
            t2 = clock()
            self._in_flight.append((self._executor.submit(packed), t2))
            count.pack_ms += (t2 - t1) * 1e3
            count.submit_ms += (clock() - t2) * 1e3

    async def _align(self) -> None:
        """Align the oldest answer that waits for it; only this answer fails if that does."""
        alignment, t0 = self._engine.alignments.popleft(), perf_counter()
        try:
            if self._towers is None:
                raise UnsupportedError("the model was opened without its tower")
            capacity = self._engine.capacity
            event = alignment.done(
                await self._towers.token_rows(alignment, self._executor, capacity)
            )
        except DeviceLostError:
            raise
        except Exception as error:
            event = alignment.failed(public_error(error))
        self.counters.wait_ms += (perf_counter() - t0) * 1e3
        self._deliver([event])

    async def _encode_media(self) -> None:
        """Make the rows of one waiting image; the next step runs before the next image. Meanwhile
        the requests that wait for it may be cancelled."""
        media, t0 = self._engine.media, perf_counter()
        waiting = media.to_encode[0]
        if self._towers is None:
            raise UnsupportedError("the model was opened without its tower")
        assert waiting.tile is not None
        rows = await self._towers.encode(waiting.tile)
        self.counters.wait_ms += (perf_counter() - t0) * 1e3
        if rows is not None and waiting.slots is not None:  # else all of them were cancelled
            self._executor.write_embeddings(waiting.slots, rows)
            media.mark_ready(waiting)


class LoopEncoderDriver(BaseDriver):
    """One step at a time while texts wait. `run` is a task of its own."""

    def __init__(
        self, engine: EncoderEngine, executor: JsExecutor, deliver: Callable[[list[Event]], None]
    ) -> None:
        super().__init__(engine)
        self._encoder, self._executor, self._deliver = engine, executor, deliver
        self._in_flight: Ticket | None = None

    async def recover(self) -> None:
        """Clear the step in flight on both sides; every text ends, without events."""
        self._encoder.fail()
        ticket, self._in_flight = self._in_flight, None
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
        ticket = self._in_flight = self._executor.submit(packed)
        t3 = clock()
        rows = await self._executor.vectors(ticket)
        self._in_flight = None
        t4 = clock()
        events = self._encoder.commit(rows)
        t5 = clock()
        self._deliver(events)
        await asyncio.sleep(0)  # let responses be written and messages arrive
        t6 = clock()
        count.steps += 1
        count.plan_ms += (t1 - t0) * 1e3
        count.pack_ms += (t2 - t1) * 1e3
        count.submit_ms += (t3 - t2) * 1e3
        count.wait_ms += (t4 - t3) * 1e3
        count.commit_ms += (t5 - t4) * 1e3
        count.events_ms += (t6 - t5) * 1e3
