"""The executor of compiled libraries on CPUs and on GPUs behind WebGPU, over libmlcc_executor.

libmlcc_executor is a Python extension module with TVM's runtime inside; Python uses the standard
library only. The native code maps weights, allocates caches, and checks each step before it runs.
Python writes steps into one buffer of the native side. On a GPU `submit` queues the step and the
copy of its results; `collect` waits for that copy, but not for later steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from mlcc.artifact.expert_weights import expert_matrices
from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import AdaptersInfo, CacheInfo, EmbeddingsInfo, page_shape
from mlcc.device.check_batch import BadBatchError, check_embeddings, check_pages
from mlcc.device.compiled import webgpu
from mlcc.device.compiled.errors import error_of
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import CPU, DeviceHandle
from mlcc.device.kernel_log import KernelUse
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, pairs_of
from mlcc.engine.batch.tables import TOKEN_COLUMNS, StepLayout
from mlcc.engine.lora import AdapterMatrix, no_adapters
from mlcc.errors import ArtifactError, DeviceError
from mlcc.util import executor_library as c


class CompiledExecutor:
    """Runs steps of a library on one device. A CPU computes within `submit`.

    ranks: the rank of this process in tensor parallelism (`device/parallel/cpu_executor.py`).
    Raises ArtifactError for another interface, DeviceError if the library does not load,
    CapacityError if something does not fit. Not thread-safe, but calls may come from different
    threads.
    """

    def __init__(
        self,
        model: CompiledModel,
        capacity: Capacity,
        handle: DeviceHandle = CPU,
        threads: int = 1,
        progress: Callable[[int, int], None] = lambda done, total: None,
        ranks: c.Ranks = c.ALONE,
    ) -> None:
        self.capacity = capacity
        self.handle = handle
        self.depth = 1 if handle.kind == "cpu" else 2
        self.page_bytes = tuple(cache.bytes_per_page for cache in model.caches)
        self._embeddings = model.embeddings
        self._path, path = model.library, bytes(model.library.absolute())
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._library = webgpu.library() if handle.kind == webgpu.KIND else c.load()
        if model.linked and self._library.linked(model.linked):
            name = c.LINKED + model.linked
            self._path, path = Path(name), name.encode()
        elif model.library.suffix == ".a":
            raise ArtifactError(
                f"{model.library.name} is to be linked, and this program does not: link it, and "
                f"call {model.linked}link() of mlcc_{model.library.stem}.h at the start"
            )
        self._closed = False
        total = sum(weight.stop - weight.start for weight in model.weights)
        callback = _ProgressCallback(progress, total)
        with self._typed("opening the model"):
            self._executor = self._library.open(
                path,
                model.interface,
                threads,
                c.DEVICES[handle.kind],
                handle.index,
                tuple(name.encode() for name in model.functions),
                tuple(_weight(w, model.streamed) for w in model.weights),
                _groups(capacity, model.embeddings),
                _caches(model.caches, capacity.pools, model.embeddings),
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
                callback.report,
                _adapters(model.adapters),
                ranks,
                sum(1 << TOKEN_COLUMNS.index(name) for name in capacity.layout.token_columns),
            )
        callback.finish()
        with self._typed("making room for steps"):
            self._words = memoryview(self._executor.step(capacity.layout.words)).cast("i")

    def step_buffer(self) -> memoryview[int]:
        """Memory for the words of the next batch; a batch written there is not copied."""
        return self._words

    def adjustments_buffer(self) -> memoryview[int]:
        """Memory for the adjustments of the next batch."""
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
            if adjustments.layout != self._adjust_layout:
                raise BadBatchError("adjustments of another layout")
            used = adjustments.used_words
            if adjustments.words is not self._adjustments:
                self._adjustments[:used] = adjustments.words[:used]
        try:
            return self._executor.submit(adjustments is not None)
        except self._library.Failed as failure:
            raise self._error(failure, "computing a step") from None

    def _stage(self, batch: Batch) -> None:
        """Copy the batch into the step buffer, unless it was written there."""
        if self._closed:
            raise DeviceError("the executor is closed")
        layout = self.capacity.layout
        if batch.layout is not layout and batch.layout != layout:
            raise BadBatchError("a batch of another layout")
        if batch.words is not self._words:
            used = batch.used_words
            if not 0 <= used <= layout.words:
                raise BadBatchError(f"a batch of {used} words")
            self._words[:used] = batch.words[:used]

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before."""
        try:
            tokens, logprobs, likeliest, theirs = self._executor.collect(ticket)
        except self._library.Failed as failure:
            raise self._error(failure, "collecting a step") from None
        return Result(tokens, logprobs, pairs_of(likeliest, theirs) if likeliest else None)

    def follow(self) -> None:
        """Run the steps of rank 0 until it closes; for the other ranks. Raises DeviceLostError if
        rank 0 exits without closing."""
        with self._typed("following rank 0"):
            self._executor.follow()

    def logits(self, batch: Batch) -> memoryview[float]:
        """Run a batch and return its logits f32[r, vocab] instead of sampling: for evaluation."""
        self._stage(batch)
        return self._rows(batch.num_rows, self.capacity.vocab_size)

    def vectors(self, batch: Batch, width: int) -> memoryview[float]:
        """Run a batch of an encoder and return its rows, f32[r, width]."""
        self._stage(batch)
        return self._rows(batch.num_rows, width)

    def alignment(self, batch: Batch, width: int) -> memoryview[float]:
        """Run a batch for the weights of the alignment heads, f32[r, width]. Raises
        UnsupportedError if the library has none."""
        self._stage(batch)
        with self._typed("aligning words"):
            values = self._executor.alignment(batch.num_rows * width)
        return memoryview(values).cast("f", (batch.num_rows, width))

    def _rows(self, rows: int, width: int) -> memoryview[float]:
        """The output of `forward` for the step in the buffer, f32[rows, width]."""
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
        """The contents of pages: tensors in the order of the manifest, in each tensor page after
        page."""
        check_pages(self.capacity, group, ids, self.page_bytes)
        with self._typed("reading pages"):
            return bytes(
                self._executor.read_pages(group, tuple(ids), len(ids) * self.page_bytes[group])
            )

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Write contents that `read_pages` returned into pages `ids`."""
        check_pages(self.capacity, group, ids, self.page_bytes, len(data))
        with self._typed("writing pages"):
            self._executor.write_pages(group, tuple(ids), data)

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Write rows that tokens name by ids from the vocabulary's end on. Raises UnsupportedError
        if the library reads none."""
        width = self._embeddings.width if self._embeddings else 0
        check_embeddings(self.capacity, slots, width, len(rows))
        with self._typed("writing embeddings"):
            self._executor.write_pages(len(self.capacity.groups), tuple(slots), rows)

    def use(self) -> c.Use:
        """Workspace, graph replays and time since it was opened."""
        with self._typed("counting"):
            return c.Use(*self._executor.use())

    def watch(self, on: bool = True) -> None:
        """Start or stop the log of time and bytes of every kernel call."""
        with self._typed("watching kernels"):
            self._executor.watch(on)

    def kernels(self) -> list[KernelUse]:
        """The kernel log since `watch`, unordered."""
        with self._typed("watching kernels"):
            return [KernelUse(*row) for row in self._executor.kernels()]

    def copy_time(self, count: int) -> int:
        """Nanoseconds that the device takes to copy so many bytes."""
        with self._typed("copying"):
            return self._executor.copy(count)

    def counts(self) -> dict[str, int]:
        """Counters of the GPU since the process opened it: dispatches, submits, reads started and
        reads finished, and the like. Empty for a CPU."""
        with self._typed("counting"):
            found: dict[str, int] = json.loads(self._executor.counts())
        return found

    def close(self) -> None:
        """Free pages, weights and library, and release the step buffers."""
        if not self._closed:
            self._closed = True
            self._words.release()
            if buffer := self.__dict__.pop("_adjustments", None):
                buffer.release()
            self._executor.close()

    @contextmanager
    def _typed(self, doing: str) -> Iterator[None]:
        """Turn native failures into typed errors."""
        try:
            yield
        except self._library.Failed as failure:
            raise self._error(failure, doing) from None

    def _error(self, failure: Exception, doing: str) -> Exception:
        status, text = failure.args
        return error_of(status, text, doing, self._path, self.handle)


class _ProgressCallback:
    """Reports progress of `total` bytes from a C callback, through which no exception may pass: it
    is raised later by `finish`."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._total = progress, total
        self._failed: BaseException | None = None

    def report(self, done: int) -> None:
        """Called by C."""
        try:
            if self._failed is None:
                self._progress(done, self._total)
        except BaseException as error:  # Ctrl-C too
            self._failed = error

    def finish(self) -> None:
        """Raise the exception of the progress callback, if there was one."""
        if self._failed is not None:
            raise self._failed


def _weight(weight: TensorEntry, streamed: bool) -> c.Weight:
    matrices = expert_matrices(weight.name) if streamed else 0
    return bytes(weight.path), weight.start, weight.dtype.encode(), tuple(weight.shape), matrices


def _groups(capacity: Capacity, embeddings: EmbeddingsInfo | None) -> tuple[c.Group, ...]:
    """The cache groups, then the embeddings: a group without columns in a step."""
    groups = tuple(
        (c.KINDS[group.kind], group.page_size, pool, most_pages)
        for group, pool, most_pages in zip(
            capacity.groups, capacity.pools, capacity.most_pages, strict=True
        )
    )
    if embeddings is None:
        return groups
    return (*groups, (c.KINDS["embeddings"], 1, embeddings.rows, embeddings.hidden))


def _caches(
    caches: Sequence[CacheInfo], pools: Sequence[int], embeddings: EmbeddingsInfo | None
) -> tuple[c.Cache, ...]:
    found = tuple(
        (g, spec.dtype.encode(), (pool, *page_shape(spec)))
        for g, (cache, pool) in enumerate(zip(caches, pools, strict=True))
        for spec in cache.tensors
    )
    if embeddings is None:
        return found
    return (*found, (len(caches), b"float32", (embeddings.rows, embeddings.width)))


def _adapters(room: AdaptersInfo | None) -> c.Adapters:
    if room is None:
        return 0, 0, ()
    return room.slots, room.rank, tuple((rows, columns) for _, rows, columns in room.shapes)


def _layout(layout: StepLayout) -> c.Layout:
    header, sequences, rows, copies, tokens, pages = (
        (table.offset, table.entries) for table in layout.tables
    )
    return header, sequences, rows, copies, tokens, pages, layout.words
