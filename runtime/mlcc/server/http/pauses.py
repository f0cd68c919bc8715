"""Shortens the pauses of the event loop: those of the garbage collector, and those while another
thread holds the interpreter's lock."""

from __future__ import annotations

import asyncio
import gc
import sys
import time

from mlcc.util.freed_memory import give_back_freed_memory

SWITCH_S = 0.0005
"""Seconds that a thread runs Python before it lets a waiting one run. The event loop gives the
lock back at each read and write, so beside a thread that checks a large body it waits this long for
each of them. Python's default is ten times as much."""
CHECK_S = 0.25
"""Seconds between two looks whether a full collection is due."""
FEW_BLOCKS = 60_000
"""Blocks of memory beyond the fewest since the last full collection, that is about 20,000 objects,
which a collection visits in 4 ms on a quiet machine, 40 on a busy one."""
PATIENCE_S = 60.0
"""Seconds for which a full collection that is due waits for so few blocks; after twice as many it
takes two times the blocks, and so on."""
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
    being made: 70 ms beside 128 answers with log-probabilities, 430 beside larger ones. One that is
    due waits until there are few objects, that is until the large requests have ended; the longer
    it waits, the more it takes. There is no hurry: a request leaves no garbage that only a
    collection finds (tests/runtime/server/http/test_garbage.py). Nothing is frozen after the
    start, where a cycle that forms later would stay for good; a model that is loaded then adds
    few objects, as its tokenizer is native code.

    The number of objects is read from the allocator: `gc.get_objects` would hand out tuples that
    other threads are still filling, and `tuple(...)` fails there with a SystemError
    (python/cpython#59313). So a single long list counts as one object. Collections of young objects
    stay Python's: they find the cycles of errors before much gathers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = gc.get_threshold()[2]
        self._last = time.monotonic()
        self._fewest = sys.getallocatedblocks()

    def start(self) -> None:
        """Look from now on, until the loop ends."""
        gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
        self._look()

    def _look(self) -> None:
        now, blocks = time.monotonic(), sys.getallocatedblocks()
        self._fewest = min(self._fewest, blocks)
        if gc.get_count()[2] <= self._due:  # Python would begin none either
            self._last = now
        elif blocks - self._fewest <= FEW_BLOCKS * max(1.0, (now - self._last) / PATIENCE_S):
            gc.collect()
            self._last, self._fewest = now, sys.getallocatedblocks()
            self._loop.run_in_executor(None, give_back_freed_memory)
        self._loop.call_later(CHECK_S, self._look)
