"""Shortens the pauses of the event loop: those of the garbage collector, and those while another
thread holds the interpreter's lock."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from itertools import repeat

SWITCH_S = 0.0005
"""Seconds that a thread runs Python before it lets a waiting one run. The event loop gives the
lock back at each read and write, so beside a thread that checks a large body it waits this long for
each of them. Python's default is ten times as much."""
CHECK_S = 0.5
"""Seconds between two looks whether a collection is due."""
FEW_OBJECTS, FEW_BYTES = 50_000, 4 << 20
"""Objects, and bytes of their own (eight for each item of a list), that a collection visits in
about 10 ms."""
LONGEST_S = 60.0
"""Seconds after which a collection that is due runs, however many objects there are."""


def shorten_pauses(loop: asyncio.AbstractEventLoop) -> None:
    """Call once, when all is loaded. The objects that exist by then stay until the process ends:
    the collector no longer visits them, which took 100 ms each time."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)
    Collections(loop).start()


class Collections:
    """Runs garbage collections in place of Python, which begins one while a large request is being
    read or answered: 150 ms beside a prompt of 700,000 ids, which are visited one by one. One that
    is due waits until there are few objects, that is until the large requests have ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = gc.get_threshold()[0]
        self._last = time.monotonic()

    def start(self) -> None:
        """Look from now on, until the loop ends."""
        gc.disable()
        self._look()

    def _look(self) -> None:
        now, made = time.monotonic(), gc.get_count()[0]
        if made < self._due:  # Python would begin none either
            self._last = now
        elif _are_few(made) or now - self._last >= LONGEST_S:
            gc.collect()
            self._last = now
        self._loop.call_later(CHECK_S, self._look)


def _are_few(made: int) -> bool:
    """made: objects since the last collection that are still there."""
    if made > FEW_OBJECTS:
        return False  # without a list of them all
    objects = gc.get_objects()
    return len(objects) <= FEW_OBJECTS and sum(map(sys.getsizeof, objects, repeat(0))) <= FEW_BYTES
