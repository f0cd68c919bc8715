"""The executor of a model that several processes compute together on CPUs (tensor parallelism):
rank 0 is in this process, where the engine is; the others are its children, and follow it. Those of
GPUs are `gpu_ranks.py`'s.

Each has its own part of the weights and of the caches, and as many threads of its own as its share
of the cores. Steps go to all through memory that they share, and so do the sums of what they
computed (runtime/native/src/ranks.cc).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import CacheInfo
from mlcc.device.compiled import library as c
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.parallel.rank_processes import Followers
from mlcc.engine.batch.batch import Capacity
from mlcc.errors import DeviceLostError, UnsupportedError


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
        if not hasattr(os, "memfd_create"):
            raise UnsupportedError(
                "a model of several ranks needs Linux; compile it again without --tp"
            )
        self._others = Followers()
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
        try:
            for rank in range(1, count):
                ranks: c.Ranks = (rank, count, self._memory, (0,))  # whose input is a pipe of ours
                given = {**alike, "weights": weights[rank], "ranks": ranks}
                self._others.start(given, [self._memory])
            own: c.Ranks = (0, count, self._memory, tuple(self._others.outputs))
            super().__init__(weights=weights[0], progress=progress, ranks=own, **alike)
        except BaseException as error:
            told = self._others.told() if isinstance(error, DeviceLostError) else None
            self._end()
            raise told or error from None

    @property
    def processes(self) -> list[int]:
        """The ids of the other ranks' processes."""
        return [child.pid for child in self._others.children]

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

    def _error(self, failure: Exception, doing: str) -> Exception:
        error = super()._error(failure, doing)
        return (self._others.told() or error) if isinstance(error, DeviceLostError) else error

    def _end(self) -> None:
        self._others.end()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _moves_no_pages() -> UnsupportedError:
    return UnsupportedError(
        "the pages of a model of several ranks lie in as many processes and do not move; compile "
        "the model without --tp for that"
    )
