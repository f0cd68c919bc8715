"""Panics of libraries written in Rust: PyO3 raises them as what is no `Exception`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def is_panic(error: BaseException) -> bool:
    """Whether it is one. Its type has no module to import it from."""
    return type(error).__name__ == "PanicException"


@contextmanager
def muted() -> Iterator[None]:
    """Nothing reaches stderr, where Rust prints a panic before Python hears of it. That holds for
    all of this process: for moments in which nothing else runs."""
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
