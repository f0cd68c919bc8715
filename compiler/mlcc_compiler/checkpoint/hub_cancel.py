"""Ctrl-C during a download. The hub's library waits for its threads, perhaps for gigabytes.

The threads are told to stop through the progress bar that they call; if a stalled connection
keeps one from hearing it, the process ends after a grace.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

GRACE_SECONDS = 2.0


@contextmanager
def cancellable() -> Iterator[type[Any]]:
    """Gives the `tqdm_class` for snapshot_download, which is to be called inside.

    Ctrl-C raises KeyboardInterrupt there as ever. If the block has not ended GRACE_SECONDS later,
    the process exits with 130: so hold nothing that needs cleaning up.
    """
    cancelled = threading.Event()
    killer = threading.Timer(GRACE_SECONDS, _exit)
    killer.daemon = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not cancelled.is_set():
            cancelled.set()
            killer.start()
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield _bar(cancelled)
    finally:
        killer.cancel()
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _bar(cancelled: threading.Event) -> type[Any]:
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined, unused-ignore]

    class Bar(tqdm):  # type: ignore[misc, unused-ignore]
        """The library's bar, which stops the thread that moves it once Ctrl-C was typed."""

        def update(self, n: float | None = 1) -> Any:
            if cancelled.is_set():
                raise InterruptedError("cancelled")
            return super().update(n)

    return Bar


def _exit() -> None:
    print("Aborted!", file=sys.stderr, flush=True)
    os._exit(130)
