"""The executor of compiled libraries, on a CPU or a GPU behind WebGPU: libmlcc_executor, which has
TVM's runtime inside, as a Python module.

The standard library alone. Weights are mapped and caches allocated there; a step is written by
Python into the one buffer that is lent, and checked there before it runs. On a GPU `submit` only
queues it, the copy of its results included; `collect` waits for that copy, and for no step behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from mlcc.artifact.expert_weights import expert_matrices
from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import AdaptersInfo, CacheInfo, page_shape
from mlcc.device.check_batch import check_pages, require
from mlcc.device.compiled import library as c
from mlcc.device.compiled import webgpu
from mlcc.device.compiled.errors import error_of
from mlcc.device.device import CPU, DeviceHandle
from mlcc.device.kernel_log import KernelUse
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, pairs_of
from mlcc.engine.batch.tables import StepLayout
from mlcc.engine.lora import AdapterMatrix, no_adapters
from mlcc.errors import DeviceError


class CompiledExecutor:
    """Steps of a library on one device. A CPU computes within `submit`.

    weights: where they lie, in the order of the manifest. functions: those that the library
    exports, as the manifest lists them. interface: the manifest's, which must be the library's own.
    linked: the prefix of the model's static library, which is taken if the program has linked it.
    streamed: memory may not hold all experts, so steps fetch from their file those that they chose.
    ranks: which of several processes that compute the model together this is
    (`device/parallel/cpu_executor.py`). Raises ArtifactError if it is not, DeviceError if the
    library does not load, CapacityError if something does not fit. Any thread may call, one after
    the other.
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
        handle: DeviceHandle = CPU,
        progress: Callable[[int, int], None] = lambda done, total: None,
        adapters: AdaptersInfo | None = None,
        linked: str = "",
        streamed: bool = False,
        ranks: c.Ranks = c.ALONE,
    ) -> None:
        self.capacity = capacity
        self.handle = handle
        self.depth = 1 if handle.kind == "cpu" else 2
        self.page_bytes = tuple(cache.bytes_per_page for cache in caches)
        self._path, path = library, bytes(library.absolute())
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._library = webgpu.library() if handle.kind == webgpu.KIND else c.load()
        if linked and self._library.linked(linked):
            self._path, path = Path(c.LINKED + linked), (c.LINKED + linked).encode()
        self._closed = False
        telling = _Telling(progress, sum(weight.stop - weight.start for weight in weights))
        with self._typed("opening the model"):
            self._executor = self._library.open(
                path,
                interface,
                threads,
                c.DEVICES[handle.kind],
                handle.index,
                tuple(name.encode() for name in functions),
                tuple(_weight(w, streamed) for w in weights),
                _groups(capacity),
                _caches(caches, capacity.pools),
                _layout(capacity.layout),
                (
                    capacity.vocab_size,
                    capacity.context,
                    capacity.max_step_tokens,
                    capacity.max_batch,
                    capacity.max_rows,
                    self._adjust_layout.max_rows,
                    self._adjust_layout.words,
                ),
                telling.tell,
                _adapters(adapters),
                ranks,
            )
        telling.finish()
        with self._typed("making room for steps"):
            self._words = memoryview(self._executor.step(capacity.layout.words)).cast("i")

    def step_buffer(self) -> memoryview[int]:
        """Memory for the words of the next batch: what is planned into it is not copied here."""
        return self._words

    def adjustments_buffer(self) -> memoryview[int]:
        """The same for the adjustments of the next batch."""
        return self._adjustments

    @cached_property
    def _adjustments(self) -> memoryview[int]:
        with self._typed("making room for steps"):
            return memoryview(self._executor.adjustments(self._adjust_layout.words)).cast("i")

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot for adapters. Raises UnsupportedError if there is none."""
        if not self.capacity.layout.adapter_slots:
            raise no_adapters()
        records = tuple(
            (
                m.tensor,
                int(m.transposed),
                m.row,
                m.column,
                m.rows,
                m.columns,
                m.dtype.encode(),
                m.data,
                m.scale,
            )
            for m in matrices
        )
        with self._typed("writing an adapter"):
            self._executor.adapter(slot, records)

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Run a batch. Raises BadBatchError if its numbers exceed what is there, DeviceError with
        the kernel's message if it fails."""
        self._stage(batch)
        if adjustments is not None:
            require(adjustments.layout == self._adjust_layout, "adjustments of another layout")
            used = adjustments.used_words
            if adjustments.words is not self._adjustments:
                self._adjustments[:used] = adjustments.words[:used]
        try:
            return self._executor.submit(adjustments is not None)
        except self._library.Failed as failure:
            raise self._error(failure, "computing a step") from None

    def _stage(self, batch: Batch) -> None:
        """The batch into the buffer, unless it was planned there."""
        if self._closed:
            raise DeviceError("the executor is closed")
        layout = self.capacity.layout
        require(batch.layout is layout or batch.layout == layout, "a batch of another layout")
        if batch.words is not self._words:
            used = batch.used_words
            require(0 <= used <= layout.words, f"a batch of {used} words")
            self._words[:used] = batch.words[:used]

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before."""
        try:
            tokens, logprobs, likeliest, theirs = self._executor.collect(ticket)
        except self._library.Failed as failure:
            raise self._error(failure, "collecting a step") from None
        return Result(tokens, logprobs, pairs_of(likeliest, theirs) if likeliest else None)

    def follow(self) -> None:
        """Compute what rank 0 is asked, until it is closed: of another rank. Raises
        DeviceLostError if rank 0 ended otherwise."""
        with self._typed("following rank 0"):
            self._executor.follow()

    def logits(self, batch: Batch) -> memoryview[float]:
        """Run a batch and return its logits f32[r, vocab] instead of sampling: for evaluation."""
        self._stage(batch)
        return self._rows(batch.num_rows, self.capacity.vocab_size)

    def vectors(self, batch: Batch, width: int) -> memoryview[float]:
        """The same of an encoder, whose rows have so many numbers: f32[r, width]."""
        self._stage(batch)
        return self._rows(batch.num_rows, width)

    def _rows(self, rows: int, width: int) -> memoryview[float]:
        """What `forward` gives for the step in the buffer."""
        with self._typed("computing a step"):
            values = self._executor.logits(rows * width)
        found: memoryview[float] = memoryview(values).cast("f", (rows, width))
        return found

    def log_likelihood(self, batch: Batch, targets: Sequence[int]) -> float:
        """Run a batch and sum, over its rows, the natural log of each target's probability."""
        self._stage(batch)
        with self._typed("computing a step"):
            return self._executor.likelihood(tuple(targets))

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """What pages hold: tensor after tensor as the manifest lists them, in each page after
        page."""
        check_pages(self.capacity, group, ids, self.page_bytes)
        with self._typed("reading pages"):
            return bytes(
                self._executor.read_pages(group, tuple(ids), len(ids) * self.page_bytes[group])
            )

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Put it into others."""
        check_pages(self.capacity, group, ids, self.page_bytes, len(data))
        with self._typed("writing pages"):
            self._executor.write_pages(group, tuple(ids), data)

    def use(self) -> c.Use:
        """What it took since it was opened."""
        with self._typed("counting"):
            return c.Use(*self._executor.use())

    def watch(self, on: bool = True) -> None:
        """Take time and bytes of every kernel call from now on, or no more."""
        with self._typed("watching kernels"):
            self._executor.watch(on)

    def kernels(self) -> list[KernelUse]:
        """What was seen since `watch`, in no order."""
        with self._typed("watching kernels"):
            return [KernelUse(*row) for row in self._executor.kernels()]

    def copy_time(self, count: int) -> int:
        """Nanoseconds that the device takes to copy so many bytes."""
        with self._typed("copying"):
            return self._executor.copy(count)

    def counts(self) -> dict[str, int]:
        """What the GPU was told since the process opened it: dispatches, submits, reads that were
        started and those of them that it has finished, and the like. Empty for a CPU."""
        with self._typed("counting"):
            told: dict[str, int] = json.loads(self._executor.counts())
        return told

    def close(self) -> None:
        """Free pages, weights and library, and take back what was lent."""
        if not self._closed:
            self._closed = True
            self._words.release()
            if lent := self.__dict__.pop("_adjustments", None):
                lent.release()
            self._executor.close()

    @contextmanager
    def _typed(self, doing: str) -> Iterator[None]:
        """What fails meanwhile raises what it stands for."""
        try:
            yield
        except self._library.Failed as failure:
            raise self._error(failure, doing) from None

    def _error(self, failure: Exception, doing: str) -> Exception:
        status, text = failure.args
        return error_of(status, text, doing, self._path, self.handle)


class _Telling:
    """Tells how many of `total` bytes are in place, from within a call of C, which no exception
    may cross."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._total = progress, total
        self._failed: BaseException | None = None

    def tell(self, done: int) -> None:
        """Called by C."""
        try:
            if self._failed is None:
                self._progress(done, self._total)
        except BaseException as error:  # Ctrl-C too
            self._failed = error

    def finish(self) -> None:
        """Raise what was raised meanwhile."""
        if self._failed is not None:
            raise self._failed


def _weight(weight: TensorEntry, streamed: bool) -> c.Weight:
    matrices = expert_matrices(weight.name) if streamed else 0
    return bytes(weight.path), weight.start, weight.dtype.encode(), tuple(weight.shape), matrices


def _groups(capacity: Capacity) -> tuple[c.Group, ...]:
    return tuple(
        (c.KINDS[group.kind], group.page_size, pool, most_pages)
        for group, pool, most_pages in zip(
            capacity.groups, capacity.pools, capacity.most_pages, strict=True
        )
    )


def _caches(caches: Sequence[CacheInfo], pools: Sequence[int]) -> tuple[c.Cache, ...]:
    return tuple(
        (g, spec.dtype.encode(), (pool, *page_shape(spec)))
        for g, (cache, pool) in enumerate(zip(caches, pools, strict=True))
        for spec in cache.tensors
    )


def _adapters(room: AdaptersInfo | None) -> c.Adapters:
    if room is None:
        return 0, 0, ()
    return room.slots, room.rank, tuple((rows, columns) for _, rows, columns in room.shapes)


def _layout(layout: StepLayout) -> c.Layout:
    header, sequences, rows, copies, tokens, pages = (
        (table.offset, table.entries) for table in layout.tables
    )
    return header, sequences, rows, copies, tokens, pages, layout.words
