"""Starts the processes of ranks 1 .. N-1 (`rank_main.py`); they exit when their stdin closes.

Each child gets its arguments by stdin, as a pickle. A pipe in each direction detects the end of a
process, however it ends: the pipe hangs up.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from mlcc import errors
from mlcc.errors import DeviceLostError, MlccError, UnsupportedError

MODULE = "mlcc.device.parallel.rank_main"
"""The module that a child runs."""
_PATIENCE, _SOON = 5.0, 0.2
"""Timeouts in seconds: for a child to exit at shutdown, and to notice that it has exited."""


class RankProcesses:
    """The child processes of one model; `end` stops all. Raises UnsupportedError if this program
    cannot start Python processes."""

    def __init__(self) -> None:
        if not sys.executable:
            raise UnsupportedError(
                "a model of several ranks needs a Python that starts others; compile it again "
                "without --tp"
            )
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, given: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Start the process of the next rank; it opens its part of the model in parallel."""
        child = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
        )
        self.children.append(child)
        with suppress(BrokenPipeError):  # an early exit is noticed when the ranks meet
            pickle.dump(given, input_of(child))
            input_of(child).flush()

    @property
    def outputs(self) -> list[int]:
        """File descriptors that hang up when the children exit."""
        return [output_of(child).fileno() for child in self.children]

    def first_error(self) -> MlccError | None:
        """The error of the first child that has exited: its message or its signal; None = none."""
        found = (self.error_of(rank, _SOON) for rank in range(1, len(self.children) + 1))
        return next(filter(None, found), None)

    def wait_ready(self) -> None:
        """Wait for an empty line from each child. Raises the error of a child that failed."""
        for rank, child in enumerate(self.children, 1):
            if output_of(child).peek(1)[:1] != b"\n":  # type: ignore[attr-defined]
                raise self.error_of(rank, _PATIENCE) or DeviceLostError(
                    f"rank {rank} sent no ready line"
                )
            output_of(child).readline()

    def error_of(self, rank: int, patience: float) -> MlccError | None:
        """The error with which a rank exited; None if it still runs after `patience` seconds."""
        child, which = self.children[rank - 1], f"rank {rank} of {len(self.children) + 1}"
        try:
            code = child.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        if line := output_of(child).readline():
            kind, text = json.loads(line)
            known: type[MlccError] = getattr(errors, kind, errors.DeviceError)
            return known(f"{which}: {text}")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return DeviceLostError(f"{which} ended ({how}); open the model again")

    def end(self) -> None:
        """Stop the children by closing their stdin, then wait for them. Idempotent."""
        for child in self.children:
            with suppress(OSError):
                input_of(child).close()
        for child in self.children:
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            output_of(child).close()
        self.children = []


def input_of(child: subprocess.Popen[bytes]) -> IO[bytes]:
    """The stdin of a child."""
    assert child.stdin is not None
    return child.stdin


def output_of(child: subprocess.Popen[bytes]) -> IO[bytes]:
    """The stdout of a child."""
    assert child.stdout is not None
    return child.stdout
