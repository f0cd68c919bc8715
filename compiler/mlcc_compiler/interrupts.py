"""Signals that must not leave a mess: SIGTERM unwinds like Ctrl-C, and short steps are not torn.

Acts in the main thread only, where Python runs signal handlers; elsewhere it does nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_TERMINATING = ("SIGTERM", "SIGHUP")
_ALL = ("SIGINT", *_TERMINATING)


@contextmanager
def unwind_on_termination() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP raise SystemExit(128 + n), so that `finally` blocks run."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ours = {n: unwind for n in _numbers(_TERMINATING) if signal.getsignal(n) is signal.SIG_DFL}
    with _handlers(ours):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """While inside, signals wait; the first one that came is delivered at the end."""
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)

    ignored = (signal.SIG_IGN, None)
    ours = {n: remember for n in _numbers(_ALL) if signal.getsignal(n) not in ignored}
    with _handlers(ours):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handlers(handlers: dict[int, Any]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _numbers(names: tuple[str, ...]) -> list[int]:
    if threading.current_thread() is not threading.main_thread():
        return []
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
