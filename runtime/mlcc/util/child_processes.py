"""Processes that run a Python function, by multiprocessing: how they start, and how it is noticed
that one did not."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any


def child_process(name: str, target: Callable[..., object], *args: object) -> SpawnProcess:
    """A process, not started yet, that ends with this one and leaves Ctrl-C to it: a console sends
    it to all processes. It ignores it before it imports what target and arguments need, as the
    Ctrl-C of an impatient user would else end in a traceback."""
    call = _Call((target, args))
    return multiprocessing.get_context("spawn").Process(
        target=_run, args=(call,), name=name, daemon=True
    )


class _Call:
    """A function and its arguments, unpickled once Ctrl-C is ignored."""

    def __init__(self, value: tuple[Callable[..., object], tuple[object, ...]]) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return _loads, (bytes(ForkingPickler.dumps(self._value)),)


def _loads(data: bytes) -> Any:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return pickle.loads(data)


def _run(call: tuple[Callable[..., object], tuple[object, ...]]) -> None:
    target, args = call
    target(*args)


def await_first_message(connection: Connection, process: SpawnProcess) -> None:
    """Return when a process that was just started has sent something. Raises EOFError if it ended
    before.

    On Windows a process fetches its end of the pipe out of this process once it runs. If it ends
    before that, this process keeps that end, and `recv` alone would wait forever.
    """
    wait([connection, process.sentinel])
    if not connection.poll():
        raise EOFError
