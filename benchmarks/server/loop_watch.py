"""Runs `mlcc` with a watch on its event loop: how late it is, and whether the machine caused that.

    python -m benchmarks.server.loop_watch REPORT serve ARTIFACT ...

A timer of the kernel (timerfd) expires every 5 ms and the loop reads it, so a late tick is a gap of
the loop, whatever the cause: one long callback, the interpreter's lock in another thread, or a core
that another process has. Beside each tick stand what the loop's thread used and waited for since
the last one: its CPU clock, its time in the run queue (`/proc/self/task/TID/schedstat`, the second
number), and the CPU clock of the process's other threads. A part of a tick's lateness during which
no thread of the process had a core is the machine's; `own` is the rest. Each callback is measured
by the thread's CPU clock too, so that a long one has a name.

REPORT gets the largest values as JSON when the process ends, and at SIGUSR1 those since the last
time: milliseconds, and for the latest ticks where the other threads were just after it. Linux only.
A debugging instrument: it patches asyncio, and nothing of mlcc imports it.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import json
import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

import uvicorn

INTERVAL_S = 0.005
KEPT = 8
"""Ticks and callbacks that are kept: the largest."""
DESCRIBED_MS = 20.0
"""A tick so late, of which the machine is not the cause, notes where the other threads are."""
FRAMES = 4
_MONOTONIC = 1


@dataclass
class Largest:
    """The largest values of one kind, each with its description."""

    rows: list[tuple[float, int, Any]] = field(default_factory=list)
    count: int = 0

    def add(self, value: float, describe: Callable[[], Any]) -> None:
        """Keep a value if it is among the largest."""
        self.count += 1
        if len(self.rows) < KEPT:
            heappush(self.rows, (value, self.count, describe()))
        elif value > self.rows[0][0]:
            heappushpop(self.rows, (value, self.count, describe()))

    def report(self) -> list[Any]:
        """The values with their descriptions, the largest first."""
        return [[round(value, 1), text] for value, _, text in sorted(self.rows, reverse=True)]


@dataclass(frozen=True)
class Clocks:
    """Seconds: of the wall, of the loop's thread on a core and in the run queue, and of all threads
    of the process on cores."""

    wall: float
    thread: float
    queued: float
    process: float


@dataclass(frozen=True)
class Tick:
    """Milliseconds of one late tick. `own`: of `late`, what the machine is not the cause of."""

    late: float
    own: float
    thread: float
    queued: float
    others: float

    @classmethod
    def between(cls, late_s: float, before: Clocks, after: Clocks) -> Tick:
        """The tick that was read at `after`, the one before it at `before`."""
        thread, queued = after.thread - before.thread, after.queued - before.queued
        others = max(after.process - before.process - thread, 0.0)
        own = max(min(late_s - queued, thread + others), 0.0)
        return cls(*(round(1e3 * each, 1) for each in (late_s, own, thread, queued, others)))


class LoopWatch:
    """Watches the running event loop, from its thread."""

    def __init__(self) -> None:
        self._clear()
        self._thread = threading.get_ident()
        self._schedstat = os.open(
            f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY
        )
        self._timer, self._next = _timer(), time.monotonic() + INTERVAL_S
        self._before = self._clocks()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._timer, self._tick)
        self._measure_callbacks()
        gc.callbacks.append(self._collected)

    def _clear(self) -> None:
        self.late, self.own, self.collections = Largest(), Largest(), Largest()
        self.callbacks, self.freed = Largest(), Largest()

    def write(self, path: Path) -> None:
        """Write the largest values since the last time."""
        text = json.dumps(self._report())
        self._clear()
        path.write_text(text, encoding="utf-8")

    def _report(self) -> dict[str, Any]:
        return {
            "ticks": self.late.count,
            "late_ms": self.late.report(),
            "own_ms": self.own.report(),
            "callback_cpu_ms": self.callbacks.report(),
            "freed_cpu_ms": self.freed.report(),
            "collection_ms": self.collections.report(),
        }

    def _clocks(self) -> Clocks:
        queued = int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9
        return Clocks(time.monotonic(), time.thread_time(), queued, time.process_time())

    def _tick(self) -> None:
        (expired,) = struct.unpack("Q", os.read(self._timer, 8))
        now = self._clocks()
        tick = Tick.between(now.wall - self._next, self._before, now)
        self._next += expired * INTERVAL_S
        self._before = now
        self.late.add(tick.late, lambda: asdict(tick))
        self.own.add(tick.own, lambda: asdict(tick) | self._others(tick))

    def _others(self, tick: Tick) -> dict[str, list[str]]:
        """Where the other threads are: one that held the lock has just given it back."""
        if tick.own < DESCRIBED_MS:
            return {}
        frames = sys._current_frames().items()
        stacks = (traceback.extract_stack(f)[-FRAMES:] for t, f in frames if t != self._thread)
        places = (
            " < ".join(f"{Path(at.filename).name}:{at.lineno}" for at in reversed(stack))
            for stack in stacks
        )
        return {"threads": sorted({*places})}

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """The garbage collector begins or ends; meanwhile no thread runs Python."""
        if phase == "start":
            self._visited = sys.getallocatedblocks()  # `gc.get_objects` disturbs other threads
            self._collecting = time.thread_time()
        else:
            used = 1e3 * (time.thread_time() - self._collecting)
            about = f"generation {info['generation']}: {self._visited} blocks, "
            self.collections.add(used, lambda: f"{about}{info['collected']} of them garbage")

    def _measure_callbacks(self) -> None:
        """And what is freed after one, with the last reference to it."""
        ended: list[Any] = [time.thread_time(), ""]
        run, thread = asyncio.events.Handle._run, self._thread

        def measured(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:
                return run(handle)
            before, callback = time.thread_time(), handle._callback
            self.freed.add(1e3 * (before - ended[0]), lambda: ended[1])
            run(handle)
            ended[:] = time.thread_time(), _name(callback)
            self.callbacks.add(1e3 * (ended[0] - before), lambda: ended[1])

        asyncio.events.Handle._run = measured  # type: ignore[method-assign]


def _name(callback: Any) -> str:
    """A callback's name, or that of the coroutine whose task it continues. Without its arguments:
    their texts may be as long as a body."""
    owner = getattr(callback, "__self__", None)
    named = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return str(getattr(named, "__qualname__", type(named).__name__))


def _timer() -> int:
    """A file that is readable once for each expiry, and holds their number (timerfd_create(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    timer = int(libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    each = int(INTERVAL_S * 1e9)
    if timer < 0 or libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, each, 0, each), None):
        raise OSError(ctypes.get_errno(), "no timer")
    return timer


def watch_servers(report: Path) -> None:
    """From now on, the event loop of a server that starts is watched."""
    startup = uvicorn.Server.startup

    async def watched(server: uvicorn.Server, sockets: Any = None) -> None:
        await startup(server, sockets)
        watch = LoopWatch()
        atexit.register(watch.write, report)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, watch.write, report)

    uvicorn.Server.startup = watched  # type: ignore[method-assign]


if __name__ == "__main__":
    from mlcc.cli import main

    watch_servers(Path(sys.argv[1]))
    del sys.argv[1]
    main()
