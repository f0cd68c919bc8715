"""Signal handling: SIGTERM unwinds like Ctrl-C, and short critical sections are not interrupted.

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


class Unwinding:
    """Signals received so far. TVM turns an exception in a callback into its own error, or drops
    it, so the signal is recorded and checked again."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        raise _exception(number)

    def check(self, error: BaseException | None = None) -> None:
        """Raise KeyboardInterrupt or SystemExit if a signal was received and `error` is not that
        already."""
        if self.received and (error is None or isinstance(error, Exception)):
            raise _exception(self.received[0]) from error


@contextmanager
def unwinding() -> Iterator[Unwinding]:
    """Inside, SIGTERM and SIGHUP raise SystemExit(128 + n), so that `finally` blocks run; Ctrl-C
    raises KeyboardInterrupt as usual."""
    state = Unwinding()
    default = (signal.SIG_DFL, signal.default_int_handler)
    ours = {n: state.handle for n in _numbers(_ALL) if signal.getsignal(n) in default}
    with _handlers(ours):
        yield state


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, signals are held back; the first one received is delivered at the end."""
    received: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(number)

    ignored = (signal.SIG_IGN, None)
    ours = {n: record for n in _numbers(_ALL) if signal.getsignal(n) not in ignored}
    with _handlers(ours):
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def _handlers(handlers: dict[int, Any]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _numbers(names: tuple[str, ...]) -> list[int]:
    if threading.current_thread() is not threading.main_thread():
        return []
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
