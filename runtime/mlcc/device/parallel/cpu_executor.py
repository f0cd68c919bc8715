"""Tensor parallelism on CPUs: rank 0 runs in this process with the engine, the others in children.

Each rank has its shard of the weights and caches, and its share of the cores. Steps are broadcast
through shared memory, and all-reduce runs there too (runtime/native/src/ranks/ranks.cc).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.parallel.rank_processes import RankProcesses
from mlcc.engine.batch.batch import Capacity
from mlcc.errors import DeviceLostError, UnsupportedError
from mlcc.util import executor_library as c


class RankedExecutor(CompiledExecutor):
    """A `CompiledExecutor` per rank. models: each rank's; threads: of all ranks together.

    Raises what opening any rank raises, UnsupportedError where child processes cannot run, and
    later DeviceLostError once a rank has exited.
    """

    def __init__(
        self,
        models: Sequence[CompiledModel],
        capacity: Capacity,
        threads: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        if not hasattr(os, "memfd_create"):
            raise UnsupportedError(
                "a model of several ranks needs Linux; compile it again without --tp"
            )
        self._ranks = RankProcesses()
        count = len(models)
        alike: dict[str, Any] = {"capacity": capacity, "threads": max(1, threads // count)}
        self._memory = os.memfd_create("mlcc-ranks")
        try:
            for rank in range(1, count):
                ranks: c.Ranks = (
                    rank,
                    count,
                    self._memory,
                    (0,),
                )  # 0: its stdin, a pipe from this process
                model = replace(models[rank], library=models[rank].library.absolute())
                given = {**alike, "model": model, "ranks": ranks}
                self._ranks.start(given, [self._memory])
            own: c.Ranks = (0, count, self._memory, tuple(self._ranks.outputs))
            super().__init__(models[0], progress=progress, ranks=own, **alike)
        except BaseException as error:
            cause = self._ranks.first_error() if isinstance(error, DeviceLostError) else None
            self._end()
            raise cause or error from None

    @property
    def processes(self) -> list[int]:
        """Process ids of the other ranks."""
        return [child.pid for child in self._ranks.children]

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """Raises UnsupportedError: each rank has the pages of its own heads."""
        raise _moves_no_pages()

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Raises UnsupportedError, as `read_pages`."""
        raise _moves_no_pages()

    def close(self) -> None:
        """Close this rank and stop the others."""
        super().close()
        self._end()

    def _error(self, failure: Exception, doing: str) -> Exception:
        error = super()._error(failure, doing)
        return (self._ranks.first_error() or error) if isinstance(error, DeviceLostError) else error

    def _end(self) -> None:
        self._ranks.end()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _moves_no_pages() -> UnsupportedError:
    return UnsupportedError(
        "the pages of a model of several ranks lie in as many processes and do not move; compile "
        "the model without --tp for that"
    )
