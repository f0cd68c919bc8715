"""Detects panics of Rust libraries, which PyO3 raises as a `BaseException`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def is_panic(error: BaseException) -> bool:
    """Whether an exception is a Rust panic. Its type cannot be imported, only compared by name."""
    return type(error).__name__ == "PanicException"


@contextmanager
def muted() -> Iterator[None]:
    """Silence stderr, where Rust prints a panic before Python sees it. This affects the whole
    process; use it only while nothing else runs."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
