"""The processes of the ranks behind 0: children of this one, which read what to open from their
input, and let go as it closes. What they then do is `follower.py`'s.

A pipe to and from each says that the other end is there: it hangs up as a process ends, however
that ends.
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
"""What a child runs."""
_PATIENCE, _SOON = 5.0, 0.2
"""Seconds for a child to end once its rank is over, and to be seen that it has."""


class Followers:
    """Of one model; all end with `end`. Raises UnsupportedError where there can be none."""

    def __init__(self) -> None:
        if not sys.executable:
            raise UnsupportedError(
                "a model of several ranks needs a Python that starts others; compile it again "
                "without --tp"
            )
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, given: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Another rank's process, which opens what it is given meanwhile."""
        child = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
        )
        self.children.append(child)
        with suppress(BrokenPipeError):  # it has ended, which is seen where ranks meet
            pickle.dump(given, input_of(child))
            input_of(child).flush()

    @property
    def outputs(self) -> list[int]:
        """Descriptors that hang up as the children end."""
        return [output_of(child).fileno() for child in self.children]

    def told(self) -> MlccError | None:
        """Of the first that has ended, what it said, or which signal ended it."""
        found = (self.end_of(rank, _SOON) for rank in range(1, len(self.children) + 1))
        return next(filter(None, found), None)

    def hear(self) -> None:
        """A line of each, which is empty. Raises what one says that failed instead."""
        for rank, child in enumerate(self.children, 1):
            if output_of(child).peek(1)[:1] != b"\n":  # type: ignore[attr-defined]
                raise self.end_of(rank, _PATIENCE) or DeviceLostError(f"rank {rank} goes astray")
            output_of(child).readline()

    def end_of(self, rank: int, patience: float) -> MlccError | None:
        """How it ended; None if it does not within so many seconds."""
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
        """Rank 0 has ended: they see it by their pipes, if they were not told. Idempotent."""
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
    """What it reads."""
    assert child.stdin is not None
    return child.stdin


def output_of(child: subprocess.Popen[bytes]) -> IO[bytes]:
    """What it says."""
    assert child.stdout is not None
    return child.stdout
