"""Gives memory that a process has freed back to the system.

glibc keeps what is freed between blocks that are still used, for each thread that allocates: after
a few large requests some hundred MiB, and what fragments grows for thousands of requests. Other
allocators (macOS, Windows, musl) return it by themselves.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

LARGE_BYTES = 1 << 20
"""A request or a value of more is followed by giving back, which takes milliseconds."""


def give_back_freed_memory() -> None:
    """Return free pages to the system. Takes milliseconds for each 100 MiB, without Python's lock;
    does nothing where the C library has no malloc_trim(3)."""
    if (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found
