"""Shortens the pauses of the event loop: those of the garbage collector, and those while another
thread holds the interpreter's lock."""

from __future__ import annotations

import asyncio
import gc
import sys
import time

SWITCH_S = 0.0005
"""Seconds that a thread runs Python before it lets a waiting one run. The event loop gives the
lock back at each read and write, so beside a thread that checks a large body it waits this long for
each of them. Python's default is ten times as much."""
CHECK_S = 1.0
"""Seconds between two looks whether a full collection is due."""
FEW_BLOCKS = 60_000
"""Blocks of memory beyond those of the start, that is about 20,000 objects, which a collection
visits in 4 ms on a quiet machine, 40 on a busy one."""
LONGEST_S = 60.0
"""Seconds after which a full collection that is due runs, however many objects there are."""
_NEVER = 1 << 30


def shorten_pauses(loop: asyncio.AbstractEventLoop) -> None:
    """Call once, when all is loaded. The objects that exist by then stay until the process ends:
    the collector no longer visits them, which took 100 ms each time."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)
    FullCollections(loop).start()


class FullCollections:
    """Runs full garbage collections in place of Python, which begins one while a large answer is
    being made: 70 ms beside 128 answers with log-probabilities. One that is due waits until there
    are few objects, that is until the large requests have ended. Their number is read from the
    allocator: `gc.get_objects` would hand out tuples that other threads are still filling, and
    `tuple(...)` fails there with a SystemError (python/cpython#59313). So a single long list counts
    as one object.

    Collections of young objects stay Python's: they free what a closed connection leaves behind,
    with TLS 256 KiB of buffers, before much of it gathers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = gc.get_threshold()[2]
        self._last = time.monotonic()
        self._at_start = sys.getallocatedblocks()

    def start(self) -> None:
        """Look from now on, until the loop ends."""
        gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
        self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if gc.get_count()[2] <= self._due:  # Python would begin none either
            self._last = now
        elif now - self._last >= LONGEST_S or self._are_few():
            gc.collect()
            self._last = now
        self._loop.call_later(CHECK_S, self._look)

    def _are_few(self) -> bool:
        return sys.getallocatedblocks() - self._at_start <= FEW_BLOCKS
