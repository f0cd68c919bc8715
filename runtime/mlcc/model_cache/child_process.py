"""Runs a program and waits for it, and leaves no stray process whichever way the waiting ends."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

_UNWIND_S = 30.0
"""How long the program may take to put away what it was writing."""


def call(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The program's exit code. Its standard output goes to our stderr; it has no input.

    Ctrl-C, SIGTERM and SIGHUP end the program first, and unwind from here once it is gone.
    """
    with _unwinding():
        # In a session of its own: it hears of Ctrl-C once, from here, and not while it cleans up.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, env=environment, start_new_session=True
        )
        try:
            return process.wait()
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end; make it, if it takes too long or the user has no patience."""
    process.terminate()
    try:
        process.wait(_UNWIND_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
        process.kill()
        process.wait()


@contextmanager
def _unwinding() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP raise SystemExit instead of ending us on the spot."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {n: signal.getsignal(n) for n in numbers}
    changed = [n for n in numbers if before[n] is not signal.SIG_IGN]  # nohup stays nohup
    for number in changed:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])
