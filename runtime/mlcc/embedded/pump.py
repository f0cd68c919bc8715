"""What the pumps of both kinds of engine share: they run while there is work, sleep while there is
none, and count where the time went. `driver.py` is for models that write, `encoding.py` for
encoders.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol


class HasWork(Protocol):
    """An engine, as far as a pump asks whether to go on."""

    @property
    def has_work(self) -> bool: ...


@dataclass(slots=True)
class Counters:
    """Where the time of all steps went, in milliseconds."""

    steps: int = 0
    plan_ms: float = 0.0
    pack_ms: float = 0.0
    submit_ms: float = 0.0
    """JavaScript and the browser queueing the step: not Python."""
    wait_ms: float = 0.0
    """For the GPU, with the loop free for others."""
    commit_ms: float = 0.0
    events_ms: float = 0.0
    """Until all streams have written what the step brought; includes the loop's own turns."""

    @property
    def python_ms(self) -> float:
        """Python's share."""
        return self.plan_ms + self.pack_ms + self.commit_ms + self.events_ms


class BaseDriver(ABC):
    """Steps one engine in the event loop. `run` is a task of its own."""

    def __init__(self, engine: HasWork) -> None:
        self.counters = Counters()
        self._work_of = engine
        self._work = asyncio.Event()

    def wake(self) -> None:
        """There is something to do."""
        self._work.set()

    async def run(self) -> None:
        """Step until the device fails, and raise that; `recover` makes it fit to run again."""
        while True:
            while not self._work_of.has_work:  # what woke us may have been cancelled since
                self._work.clear()
                await self._work.wait()
            await self._step()

    @abstractmethod
    async def recover(self) -> None:
        """Leave nothing in flight on either side; every request ends, without events."""

    @abstractmethod
    async def _step(self) -> None:
        """One step, from its plan to its events. Raises what the device raises."""
