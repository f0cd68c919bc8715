"""The executor of a model that several GPUs compute together (tensor parallelism): rank 0 is in
this process, where the engine is; the others are its children, each with a GPU. **No GPU has run
it**: its tests have the emulated device and a stand-in for NCCL
(tests/targets/cuda/test_gpu_ranks.py).

Steps are sent to the other ranks by their stdin; results are exchanged by NCCL, queued with the
kernels, so that ranks wait for each other only on their GPUs. Such a wait never ends if a rank is
gone, so a thread watches the pipes and aborts NCCL when one hangs up.
"""

from __future__ import annotations

import os
import select
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import DeviceHandle
from mlcc.device.parallel.experimental import nccl
from mlcc.device.parallel.rank_processes import RankProcesses, input_of
from mlcc.device.tvm.executor import TvmExecutor
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.errors import DeviceError, DeviceLostError, MlccError

STEP, LOGITS = 0, 1
_HEADER = struct.Struct("<3i")
"""The command (STEP or LOGITS), and the number of words of the step and its adjustments."""
_WORD = 4
_GLANCE_MS = 100
"""Poll interval for processes that exited."""


class RankedGpuExecutor(TvmExecutor):
    """A `TvmExecutor` per rank; `models` and `handles` are per rank.

    Raises what opening any rank raises, and later DeviceLostError once a rank has exited.
    """

    def __init__(
        self,
        models: Sequence[CompiledModel],
        capacity: Capacity,
        handles: Sequence[DeviceHandle],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._ranks, self._ended, self._over = RankProcesses(), Event(), Event()
        self._watching: Thread | None = None
        count = len(handles)
        try:
            name = nccl.unique_id()
            for rank in range(1, count):
                model = replace(models[rank], library=models[rank].library.absolute())
                own = {"model": model, "capacity": capacity, "handle": handles[rank]}
                self._ranks.start({**own, "ranks": (name, rank, count)})
            self._ranks.wait_ready()  # all have started, or join would hang
            self._collectives = nccl.join(name, 0, count, handles[0].index)
            self._watching = Thread(target=self._watch, name="ranks", daemon=True)
            self._watching.start()
            super().__init__(models[0], capacity, handles[0], progress, self._collectives)
            self._ranks.wait_ready()  # all have opened their part
        except BaseException as error:
            cause = self._ranks.first_error() if isinstance(error, DeviceError) else None
            self._end()
            raise cause or error from None

    @property
    def processes(self) -> list[int]:
        """Process ids of the other ranks."""
        return [child.pid for child in self._ranks.children]

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """`TvmExecutor.submit` on all ranks. Raises DeviceLostError if a rank has exited."""
        with self._together():
            self._send(STEP, batch, adjustments)
            return super().submit(batch, adjustments)

    def collect(self, ticket: int) -> Result:
        """`TvmExecutor.collect` of rank 0. Raises DeviceLostError if a rank has exited."""
        with self._together():
            return super().collect(ticket)

    def logits(self, batch: Batch) -> npt.NDArray[np.float32]:
        """`TvmExecutor.logits` on all ranks. Raises DeviceLostError if a rank has exited."""
        with self._together():
            self._send(LOGITS, batch, None)
            return super().logits(batch)

    def close(self) -> None:
        """Close this rank and stop the others."""
        super().close()
        self._end()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Run one operation on all ranks. If it fails on one, all are stopped: they would hang."""
        self._check()
        try:
            yield
        except (MlccError, OSError):
            if not self._ended.is_set():
                cause = self._ranks.first_error()
                self._give_up()
                if cause is None:
                    raise
            self._check()
        self._check()

    def _check(self) -> None:
        """Raises DeviceLostError once a rank has exited; results since then are invalid."""
        if self._ended.is_set():
            lost = DeviceLostError("another rank ended or failed; open the model again")
            raise self._ranks.first_error() or lost

    def _send(self, what: int, batch: Batch, adjustments: Adjustments | None) -> None:
        words = batch.words[: batch.used_words].tobytes()
        more = b"" if adjustments is None else adjustments.words[: adjustments.used_words].tobytes()
        message = _HEADER.pack(what, len(words) // _WORD, len(more) // _WORD) + words + more
        for child in self._ranks.children:
            input_of(child).write(message)
            input_of(child).flush()

    def _watch(self) -> None:
        """The watching thread: runs until closed or until a rank exits."""
        hang_ups = select.poll()
        for descriptor in self._ranks.outputs:
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
        self._ranks.end()


def run_rank(given: dict[str, Any], commands: IO[bytes], reply: Callable[[str], None]) -> None:
    """The main loop of a rank other than 0: open its part, reply when started and when opened, then
    run the steps that rank 0 sends. The process ends with rank 0."""
    Thread(target=_end_with, args=(commands.fileno(),), daemon=True).start()
    name, rank, count = given.pop("ranks")
    nccl.load()
    reply("")
    collectives = nccl.join(name, rank, count, given["handle"].index)
    executor = TvmExecutor(collectives=collectives, **given)
    reply("")
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


def _end_with(descriptor: int) -> None:
    """A thread that exits the process when the pipe from rank 0 hangs up, even if the GPU hangs."""
    hang_ups = select.poll()
    hang_ups.register(descriptor, 0)
    while not hang_ups.poll():
        pass
    os._exit(0)
