"""The executor of compiled libraries, on a CPU or a GPU behind WebGPU: libmlcc_executor, which has
TVM's runtime inside, by ctypes.

The standard library alone. Weights are mapped and caches allocated there; a step is written by
Python into the one buffer that is lent, and checked there before it runs. On a GPU `submit` only
queues it, the copy of its results included; `collect` waits for that copy, and for no step behind.
"""

from __future__ import annotations

import ctypes
import json
from array import array
from collections.abc import Callable, Collection, Sequence
from ctypes import byref, c_double, c_int32, c_int64, c_void_p
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import CacheInfo, page_shape
from mlcc.device import executor_library as c
from mlcc.device import webgpu
from mlcc.device.check import require
from mlcc.device.executor_errors import error_of
from mlcc.device.place import CPU, Place
from mlcc.engine.adjust_tables import AdjustLayout
from mlcc.engine.adjustments import Adjustments
from mlcc.engine.batch import Batch, Capacity, Result, pairs_of
from mlcc.engine.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc.errors import DeviceError


class CompiledExecutor:
    """Steps of a library on one device. A CPU computes within `submit`.

    weights: where they lie, in the order of the manifest. functions: those that the library
    exports, as the manifest lists them. interface: the manifest's, which must be the library's own.
    Raises ArtifactError if it is not, DeviceError if the library does not load, CapacityError if
    something does not fit. Any thread may call, one after the other.
    """

    def __init__(
        self,
        library: Path,
        weights: Sequence[TensorEntry],
        caches: Sequence[CacheInfo],
        capacity: Capacity,
        functions: Collection[str],
        threads: int = 1,
        interface: str | None = None,
        place: Place = CPU,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._executor = c_void_p()
        self.capacity = capacity
        self.place = place
        self.depth = 1 if place.kind == "cpu" else 2
        self._path = library
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._library = webgpu.library() if place.kind == webgpu.KIND else c.load()
        options = self._options(weights, caches, functions, threads, interface)
        telling = _Telling(progress, sum(weight.stop - weight.start for weight in weights))
        options.progress = telling.callback
        status = self._library.open(byref(options), byref(self._executor))
        self._check(status, "opening the model")
        telling.finish()
        self._words = self._lent(self._library.step, capacity.layout.words)
        rows = capacity.max_rows
        self._tokens, self._logprobs = array("i", bytes(4 * rows)), array("f", bytes(4 * rows))
        most = MOST_TOP_LOGPROBS * rows
        self._top = array("i", bytes(4 * most)), array("f", bytes(4 * most))
        self._ticket, self._counts = c_int64(), (c_int32(), c_int32())
        self._into = tuple(  # made once: a step's time is spent in kernels
            into
            for arrays, count in zip(
                ((self._tokens, self._logprobs), self._top), self._counts, strict=True
            )
            for into in (*(c_void_p(a.buffer_info()[0]) for a in arrays), byref(count))
        )

    def _options(
        self,
        weights: Sequence[TensorEntry],
        caches: Sequence[CacheInfo],
        functions: Collection[str],
        threads: int,
        interface: str | None,
    ) -> c.Options:
        capacity, layout = self.capacity, self.capacity.layout
        mapped = [
            c.Weight(bytes(w.path), w.start, w.dtype.encode(), len(w.shape), _int64(w.shape))
            for w in weights
        ]
        groups = [
            c.Group(c.KINDS[group.kind], group.page_size, pool, most_pages)
            for group, pool, most_pages in zip(
                capacity.groups, capacity.pools, capacity.most_pages, strict=True
            )
        ]
        tensors = [
            c.Cache(g, spec.dtype.encode(), 1 + len(shape), _int64((pool, *shape)))
            for g, (cache, pool) in enumerate(zip(caches, capacity.pools, strict=True))
            for spec in cache.tensors
            for shape in (page_shape(spec),)
        ]
        names = [name.encode() for name in functions]
        return c.Options(
            c.ABI,
            threads,
            bytes(self._path.absolute()),
            None if interface is None else interface.encode(),
            (ctypes.c_char_p * len(names))(*names),
            len(names),
            len(mapped),
            (c.Weight * len(mapped))(*mapped),
            len(groups),
            len(tensors),
            (c.Group * len(groups))(*groups),
            (c.Cache * len(tensors))(*tensors),
            _layout(layout),
            c.Bounds(
                capacity.vocab_size,
                capacity.context,
                capacity.max_step_tokens,
                capacity.max_batch,
                capacity.max_rows,
                self._adjust_layout.max_rows,
                self._adjust_layout.words,
            ),
            c.DEVICES[self.place.kind],
            self.place.index,
        )

    def lend(self) -> memoryview:
        """Memory for the words of the next batch: what is planned into it is not copied here."""
        return self._words

    def lend_adjustments(self) -> memoryview:
        """The same for the adjustments of the next batch."""
        return self._adjustments

    @cached_property
    def _adjustments(self) -> memoryview:
        return self._lent(self._library.adjustments, self._adjust_layout.words)

    def _lent(self, function: Any, words: int) -> memoryview:
        place = c_void_p()
        self._check(function(self._executor, byref(place)), "making room for steps")
        memory: Any = (c_int32 * words).from_address(place.value or 0)
        memory.executor = self  # who holds a batch in it, holds the executor
        return memoryview(memory).cast("B").cast("i")

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Run a batch. Raises BadBatchError if its numbers exceed what is there, DeviceError with
        the kernel's message if it fails."""
        self._stage(batch)
        if adjustments is not None:
            require(adjustments.layout == self._adjust_layout, "adjustments of another layout")
            used = adjustments.used_words
            if adjustments.words is not self._adjustments:
                self._adjustments[:used] = adjustments.words[:used]
        status = self._library.submit(self._executor, adjustments is not None, byref(self._ticket))
        if status != c.OK:
            self._check(status, "computing a step")
        return self._ticket.value

    def _stage(self, batch: Batch) -> None:
        """The batch into the buffer, unless it was planned there."""
        if not self._executor:
            raise DeviceError("the executor is closed")
        layout = self.capacity.layout
        require(batch.layout is layout or batch.layout == layout, "a batch of another layout")
        if batch.words is not self._words:
            used = batch.used_words
            require(0 <= used <= layout.words, f"a batch of {used} words")
            self._words[:used] = batch.words[:used]

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before."""
        status = self._library.collect(self._executor, ticket, *self._into)
        if status != c.OK:
            self._check(status, "collecting a step")
        rows, top = self._counts
        n, likeliest = rows.value, None
        if entries := n * top.value:
            tokens_of_rows, logprobs_of_rows = self._top
            likeliest = pairs_of(tokens_of_rows[:entries], logprobs_of_rows[:entries])
        return Result(self._tokens[:n].tolist(), self._logprobs[:n].tolist(), likeliest)

    def logits(self, batch: Batch) -> memoryview[float]:
        """Run a batch and return its logits f32[r, vocab] instead of sampling: for evaluation."""
        self._stage(batch)
        rows, vocab = batch.num_rows, self.capacity.vocab_size
        values = (ctypes.c_float * (rows * vocab))()
        self._check(self._library.logits(self._executor, values, len(values)), "computing a step")
        found: memoryview[float] = memoryview(values).cast("B").cast("f", (rows, vocab))
        return found

    def log_likelihood(self, batch: Batch, targets: Sequence[int]) -> float:
        """Run a batch and sum, over its rows, the natural log of each target's probability."""
        self._stage(batch)
        found = c_double()
        status = self._library.likelihood(
            self._executor, (c_int32 * len(targets))(*targets), len(targets), byref(found)
        )
        self._check(status, "computing a step")
        return found.value

    def use(self) -> c.Use:
        """What it took since it was opened."""
        found = c.Use()
        self._check(self._library.use(self._executor, byref(found)), "counting")
        return found

    def watch(self, on: bool = True) -> None:
        """Take time and bytes of every kernel call from now on, or no more."""
        self._check(self._library.watch(self._executor, on), "watching kernels")

    def kernels(self) -> list[c.Kernel]:
        """What was seen since `watch`, in no order."""
        room = (c.Kernel * 1024)()
        count = c_int32()
        status = self._library.kernels(self._executor, room, len(room), byref(count))
        self._check(status, "watching kernels")
        return room[: count.value]

    def copy_time(self, count: int) -> int:
        """Nanoseconds that the device takes to copy so many bytes."""
        found = c_int64()
        self._check(self._library.copy(self._executor, count, byref(found)), "copying")
        return found.value

    def counts(self) -> dict[str, int]:
        """What the GPU was told since the process opened it: dispatches, submits, reads that were
        started and those of them that it has finished, and the like. Empty for a CPU."""
        text = ctypes.c_char_p()
        self._check(self._library.counts(self._executor, byref(text)), "counting")
        told: dict[str, int] = json.loads(text.value or b"{}")
        return told

    def close(self) -> None:
        """Free pages, weights and library, and take back what was lent."""
        if self._executor:
            self._words.release()
            if lent := self.__dict__.pop("_adjustments", None):
                lent.release()
            self._library.close(self._executor)
        self._executor = c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_executor", None):
            self._library.close(self._executor)

    def _check(self, status: int, doing: str) -> None:
        """Raise what a status stands for."""
        if status != c.OK:
            text = self._library.error().decode("utf-8", "replace")
            raise error_of(status, text, doing, self._path, self.place)


class _Telling:
    """Tells how many of `total` bytes are in place, from within a call of C, which no exception
    may cross."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._failed: BaseException | None = None

        def tell(context: int, done: int) -> None:
            try:
                if self._failed is None:
                    progress(done, total)
            except BaseException as error:  # Ctrl-C too
                self._failed = error

        self.callback = c.PROGRESS(tell)

    def finish(self) -> None:
        """Raise what was raised meanwhile."""
        if self._failed is not None:
            raise self._failed


def _int64(values: Sequence[int]) -> ctypes.Array[c_int64]:
    return (c_int64 * len(values))(*values)


def _layout(layout: StepLayout) -> c.Layout:
    tables = [c.Table(table.offset, table.entries) for table in layout.tables]
    return c.Layout(*tables, layout.words)
