"""The executor of a model that several GPUs compute together (tensor parallelism): rank 0 is in
this process, where the engine is; the others are its children, each with a GPU. **No GPU has run
it**: its tests have the emulated device and a stand-in for NCCL (tests/targets/cuda/test_ranks.py).

A step goes to the others through the pipes of their inputs, and what they computed through NCCL,
queued with the kernels: no rank waits for another but on its GPU. There a rank that is gone is
waited for without end, so a thread sees its pipe hang up, and aborts.
"""

from __future__ import annotations

import os
import select
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.arrays import mapped
from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import CacheInfo
from mlcc.device.device import DeviceHandle
from mlcc.device.parallel.experimental import nccl
from mlcc.device.parallel.rank_processes import Followers, input_of
from mlcc.device.tvm.executor import TvmExecutor
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.errors import DeviceError, DeviceLostError, MlccError

STEP, LOGITS = 0, 1
_HEADER = struct.Struct("<3i")
"""What is asked, and how many words follow: of a step, and of its adjustments."""
_WORD = 4
_GLANCE_MS = 100
"""Between two looks for processes that ended."""


class RankedGpuExecutor(TvmExecutor):
    """As TvmExecutor has it; `weights` and `handles` are those of each rank.

    Raises what opening any of the ranks raises, and from then on DeviceLostError once one has
    ended.
    """

    def __init__(
        self,
        library: Path,
        weights: Sequence[Sequence[TensorEntry]],
        caches: Sequence[CacheInfo],
        capacity: Capacity,
        functions: Collection[str],
        handles: Sequence[DeviceHandle],
        interface: str,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._others, self._ended, self._over = Followers(), Event(), Event()
        self._watching: Thread | None = None
        alike: dict[str, Any] = {
            "library": library.absolute(),
            "caches": caches,
            "capacity": capacity,
            "functions": tuple(functions),
            "interface": interface,
        }
        count = len(handles)
        try:
            name = nccl.unique_id()
            for rank in range(1, count):
                own = {"weights": weights[rank], "handle": handles[rank]}
                self._others.start({**alike, **own, "ranks": (name, rank, count)})
            self._others.hear()  # all are there, or joining would wait without end
            self._collectives = nccl.join(name, 0, count, handles[0].index)
            self._watching = Thread(target=self._watch, name="ranks", daemon=True)
            self._watching.start()
            super().__init__(
                weights=_arrays(weights[0]),
                handle=handles[0],
                progress=progress,
                collectives=self._collectives,
                **alike,
            )
            self._others.hear()  # all are open
        except BaseException as error:
            told = self._others.told() if isinstance(error, DeviceError) else None
            self._end()
            raise told or error from None

    @property
    def processes(self) -> list[int]:
        """The ids of the other ranks' processes."""
        return [child.pid for child in self._others.children]

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """As TvmExecutor has it. Raises DeviceLostError if a rank has ended."""
        with self._together():
            self._tell(STEP, batch, adjustments)
            return super().submit(batch, adjustments)

    def collect(self, ticket: int) -> Result:
        """Likewise."""
        with self._together():
            return super().collect(ticket)

    def logits(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Likewise."""
        with self._together():
            self._tell(LOGITS, batch, None)
            return super().logits(batch)

    def close(self) -> None:
        """End the other ranks too."""
        super().close()
        self._end()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What comes out of it is of all ranks. One that fails in it ends them: they would wait."""
        self._check()
        try:
            yield
        except (MlccError, OSError):
            if not self._ended.is_set():
                told = self._others.told()
                self._give_up()
                if told is None:
                    raise
            self._check()
        self._check()

    def _check(self) -> None:
        """Raises DeviceLostError once a rank has ended: what was computed since is nothing."""
        if self._ended.is_set():
            lost = DeviceLostError("another rank ended or failed; open the model again")
            raise self._others.told() or lost

    def _tell(self, what: int, batch: Batch, adjustments: Adjustments | None) -> None:
        words = batch.words[: batch.used_words].tobytes()
        more = b"" if adjustments is None else adjustments.words[: adjustments.used_words].tobytes()
        said = _HEADER.pack(what, len(words) // _WORD, len(more) // _WORD) + words + more
        for child in self._others.children:
            input_of(child).write(said)
            input_of(child).flush()

    def _watch(self) -> None:
        """A thread: until it is over, or a rank has ended."""
        hang_ups = select.poll()
        for descriptor in self._others.outputs:
            hang_ups.register(descriptor, 0)
        while not self._over.is_set():
            if hang_ups.poll(_GLANCE_MS):
                self._give_up()
                return

    def _give_up(self) -> None:
        self._ended.set()
        nccl.abort(self._collectives)

    def _end(self) -> None:
        self._over.set()
        if self._watching is not None:
            self._watching.join()
            nccl.abort(self._collectives)
        self._others.end()


def follow(given: dict[str, Any], commands: IO[bytes], say: Callable[[str], None]) -> None:
    """What a rank behind 0 does: opens its part, says that it is there and that it is open, and
    computes what it is told. The process ends with rank 0."""
    Thread(target=_end_with, args=(commands.fileno(),), daemon=True).start()
    name, rank, count = given.pop("ranks")
    nccl.load()
    say("")
    collectives = nccl.join(name, rank, count, given["handle"].index)
    weights = _arrays(given.pop("weights"))
    executor = TvmExecutor(weights=weights, collectives=collectives, **given)
    say("")
    layout = executor.capacity.layout
    adjust = AdjustLayout.of(layout, executor.capacity.vocab_size)
    tickets = deque[int]()
    while header := commands.read(_HEADER.size):
        what, words, more = _HEADER.unpack(header)
        batch = Batch(layout, _words(commands, words))
        if what == LOGITS:
            executor.logits(batch)
            continue
        adjustments = Adjustments(adjust, _words(commands, more)) if more else None
        tickets.append(executor.submit(batch, adjustments))
        if len(tickets) >= executor.depth:
            executor.collect(tickets.popleft())


def _words(commands: IO[bytes], count: int) -> memoryview:
    return memoryview(commands.read(_WORD * count)).cast("i")


def _arrays(weights: Sequence[TensorEntry]) -> list[Any]:
    return list(mapped(dict(enumerate(weights))).values())


def _end_with(descriptor: int) -> None:
    """A thread: whatever the GPU waits for, the process ends as the pipe from rank 0 hangs up."""
    hang_ups = select.poll()
    hang_ups.register(descriptor, 0)
    while not hang_ups.poll():
        pass
    os._exit(0)
