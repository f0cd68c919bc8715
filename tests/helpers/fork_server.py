"""Servers of the tests as forks of one process that has imported what they need.

A toy server imports for half a second, each of the three processes that it starts for a fifth, and
the tests start hundreds. A fork has the arguments, environment and streams of a new interpreter
(`tools/forked_programs.py`), and is a child of the tests' process, as a started program would be.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import util
from pathlib import Path
from typing import Any

from tools import forked_programs
from tools.forked_programs import NAMES

_SUBREAPER = 36
"""Linux's option by which a process becomes the parent of what its children leave behind."""
_BYTES = 1 << 17
"""Of the largest request: arguments and environment."""


class Popen(subprocess.Popen[str]):
    """A Python script with its arguments, `sys.executable` before it, as a fork of the server."""

    def _execute_child(self, *values: Any) -> None:
        given = dict(zip(NAMES, values, strict=True))
        streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self.pid, self._child_created = _fork(given["args"], given["env"], streams), True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ends))  # type: ignore[attr-defined]


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a Python script by a fork; by a new interpreter where there are no forks like these, or
    all that is started is forked already (`tools/mutants.py`)."""
    is_patched = subprocess.Popen._execute_child is forked_programs._execute_child  # type: ignore
    start = subprocess.Popen if sys.platform != "linux" or is_patched else Popen
    return start(command, **options)


def _fork(command: Sequence[str], env: Any, streams: Sequence[int]) -> int:
    """The process of a command. streams: descriptors, -1 = this process's."""
    server = _server()
    given = [fd >= 0 for fd in streams]
    request = {
        "command": [*command],
        "env": dict(env or os.environ),
        "cwd": str(Path.cwd()),
        "given": given,
    }
    with _subreaper():
        message = json.dumps(request).encode()
        socket.send_fds(server, [message], [fd for fd in streams if fd >= 0])
        return int(server.recv(32))


@contextmanager
def _subreaper() -> Iterator[None]:
    """Meanwhile this process gets the orphans among its descendants."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)


@cache
def _server() -> socket.socket:
    """A connection to the process that forks. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, **path})
    return ours


MODULES = (
    "multiprocessing.resource_tracker",
    "mlcc.server.serve",
    "mlcc.worker.process",
    "tests.helpers.toy.toy_model",
)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a console's, which is for the tests' process
    connection = socket.socket(fileno=int(sys.argv[1]))
    for name in MODULES:
        importlib.import_module(name)
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _BYTES, 3)
        if not message:
            return
        first, second = os.pipe()
        between = os.fork()
        if not between:
            if pid := os.fork():  # whose parent is the tests' process when this one has ended
                os.write(second, b"%d" % pid)
                os._exit(0)
            _run(json.loads(message), descriptors)
        os.waitpid(between, 0)
        connection.send(os.read(first, 32))
        for number in (*descriptors, first, second):
            os.close(number)


def _run(request: dict[str, Any], descriptors: list[int]) -> None:
    """Be the program of a request; does not return."""
    left = iter(descriptors)
    streams = [next(left) if is_given else -1 for is_given in request["given"]]
    command: list[str] = request["command"]
    util.spawnv_passfds = forked_programs._spawnv_passfds  # type: ignore[attr-defined]
    run = forked_programs._program(command)
    assert run, command
    forked_programs._become(run, command, streams, request)


if __name__ == "__main__":
    main()
