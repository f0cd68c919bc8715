"""Runs a child process to completion and leaves no stray process if the wait is interrupted."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

_UNWIND_S = 30.0
"""Time for the program to clean up after SIGTERM."""


def call(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program and return its exit code. Its stdout goes to our stderr; stdin is empty.

    Ctrl-C, SIGTERM and SIGHUP stop the program first and are raised once it has exited.
    """
    with _unwinding():
        # Own session: it gets Ctrl-C only from here, and not while it cleans up.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, env=environment, start_new_session=True
        )
        try:
            return process.wait()
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process; kill it on timeout or at a second Ctrl-C."""
    process.terminate()
    try:
        process.wait(_UNWIND_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
        process.kill()
        process.wait()


@contextmanager
def _unwinding() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP raise SystemExit instead of ending this process."""

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
