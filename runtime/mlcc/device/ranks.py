"""The executor of a model that several processes compute together (tensor parallelism): rank 0 is
in this process, where the engine is; the others are its children, and follow it.

Each has its own part of the weights and of the caches, and as many threads of its own as its share
of the cores. Steps go to all through memory that they share, and so do the sums of what they
computed (runtime/native/src/ranks.cc). A pipe to and from each child says that the other end is
there: it hangs up as a process ends, however that ends.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlcc import errors
from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import CacheInfo
from mlcc.device import executor_library as c
from mlcc.device.compiled import CompiledExecutor
from mlcc.engine.batch import Capacity
from mlcc.errors import DeviceLostError, MlccError, UnsupportedError

FOLLOWER = "mlcc.device.follower"
"""The module that a child runs."""
_PATIENCE = 5.0
"""Seconds for a child to end once its rank is over."""


class RankedExecutor(CompiledExecutor):
    """As CompiledExecutor has it; `weights` are those of each rank, `threads` all ranks' together.

    Raises what opening any of the ranks raises, UnsupportedError where there can be no other
    processes, and from then on DeviceLostError once a rank has ended.
    """

    def __init__(
        self,
        library: Path,
        weights: Sequence[Sequence[TensorEntry]],
        caches: Sequence[CacheInfo],
        capacity: Capacity,
        functions: Collection[str],
        threads: int,
        interface: str,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        if not hasattr(os, "memfd_create") or not sys.executable:
            raise UnsupportedError(
                "a model of several ranks needs Linux and a Python that starts others; compile it "
                "again without --tp"
            )
        count = len(weights)
        share = max(1, threads // count)
        alike: dict[str, Any] = {
            "library": library.absolute(),
            "caches": caches,
            "capacity": capacity,
            "functions": tuple(functions),
            "threads": share,
            "interface": interface,
        }
        self._memory = os.memfd_create("mlcc-ranks")
        self._others: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(1, count):
                ranks: c.Ranks = (rank, count, self._memory, (0,))  # whose input is a pipe of ours
                self._start({**alike, "weights": weights[rank], "ranks": ranks})
            ends = tuple(_output(each).fileno() for each in self._others)
            own: c.Ranks = (0, count, self._memory, ends)
            super().__init__(weights=weights[0], progress=progress, ranks=own, **alike)
        except BaseException as error:
            told = self._told() if isinstance(error, DeviceLostError) else None
            self._end()
            raise told or error from None

    @property
    def processes(self) -> list[int]:
        """The ids of the other ranks' processes."""
        return [child.pid for child in self._others]

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """Refused: each rank has the pages of its own heads."""
        raise _moves_no_pages()

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Refused likewise."""
        raise _moves_no_pages()

    def close(self) -> None:
        """End the other ranks too."""
        super().close()
        self._end()

    def _start(self, given: dict[str, Any]) -> None:
        """Another rank's process, which opens its part meanwhile."""
        child = subprocess.Popen(
            [sys.executable, "-m", FOLLOWER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._memory,),
        )
        self._others.append(child)
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which is seen where ranks meet
            pickle.dump(given, child.stdin)
            child.stdin.flush()

    def _error(self, failure: Exception, doing: str) -> Exception:
        error = super()._error(failure, doing)
        return (self._told() or error) if isinstance(error, DeviceLostError) else error

    def _told(self) -> MlccError | None:
        """What a rank that has ended said, or which signal ended it."""
        for rank, child in enumerate(self._others, 1):
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(0.2)
                line = _output(child).readline()
                if line:
                    kind, text = json.loads(line)
                    known: type[MlccError] = getattr(errors, kind, errors.DeviceError)
                    return known(f"rank {rank} of {len(self._others) + 1}: {text}")
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                return DeviceLostError(
                    f"rank {rank} of {len(self._others) + 1} ended ({how}); open the model again"
                )
        return None

    def _end(self) -> None:
        """Rank 0 has ended: the others see it by their pipes, if they were not told."""
        for child in self._others:
            assert child.stdin is not None
            with suppress(OSError):
                child.stdin.close()
        for child in self._others:
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            _output(child).close()
        self._others = []
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _output(child: subprocess.Popen[bytes]) -> Any:
    assert child.stdout is not None
    return child.stdout


def _moves_no_pages() -> UnsupportedError:
    return UnsupportedError(
        "the pages of a model of several ranks lie in as many processes and do not move; compile "
        "the model without --tp for that"
    )
