"""Shortens the pauses of the event loop: those of the garbage collector, and those while another
thread holds the interpreter's lock."""

from __future__ import annotations

import gc
import sys

SWITCH_S = 0.0005
"""Seconds that a thread runs Python before it lets a waiting one run. The event loop gives the
lock back at each read and write, so beside a thread that checks a large body it waits this long for
each of them. Python's default is ten times as much."""


def shorten_pauses() -> None:
    """Call once, when all is loaded. The objects that exist by then stay until the process ends:
    the collector no longer visits them, which took 100 ms each time."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)
