"""A row of logits as sampling sees it: loads, the largest, the sum of exponentials, masses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from mlcc.engine.tables import FILTERS
from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sample.live import LiveSlices
from mlcc_compiler.kernels.gpu.sample.parts import NOTHING, exponential, image, logit
from mlcc_compiler.kernels.gpu.sample.slices import AHEAD, SUM, Slices
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    bind,
    ceil_div,
    int32,
    largest,
    real,
    reduce,
    when,
)
from mlcc_compiler.kernels.step import Step

NO_INDEX = 0x7FFFFFFF

Body = Callable[[Expr, Expr, Expr], None]
"""(index of a logit, the logit, its image) -> statements."""


class RowReader:
    """A row of logits, in a workgroup: passes over it, and what threads found."""

    def __init__(self, gpu: Gpu, logits: Expr, row: Expr, thread: Expr) -> None:
        self.gpu, self.logits, self.row, self.thread = gpu, logits, row, thread
        self.vocab = int(logits.shape[1])

    @contextlib.contextmanager
    def blocks(self, begin: Expr, end: Expr) -> Iterator[Callable[[Body], None]]:
        """Over this thread's share of the logits from `begin` to `end`, neighbours to neighbours,
        a few at a time; gives each(body), which emits body(index, logit, image) for each of them.
        The image is 0 for those past the end."""
        threads = self.gpu.threads
        with T.serial(ceil_div(end - begin, threads * AHEAD)) as block:
            loaded = Local(AHEAD)
            first = bind(begin + int32(block) * (threads * AHEAD) + self.thread)
            for u in range(AHEAD):
                index = T.min(first + u * threads, self.vocab - 1)
                loaded[u] = self.logits[self.row, index]

            def each(body: Body) -> None:
                # a loop, for drivers to unroll: its text is long, and some compile slowly
                with T.serial(AHEAD) as u:
                    index = bind(first + int32(u) * threads)
                    x = bind(loaded[u])
                    body(index, x, bind(T.Select(index < end, image(x), T.uint32(0))))

            yield each

    def best_of(self, key: Expr, index: Expr) -> tuple[Expr, Expr]:
        """The largest of the threads' images, and the first of the indices that go with it."""
        top = self.over_threads(key, largest)
        first = T.Select(key == top, index, T.int32(NO_INDEX))
        return top, self.over_threads(first, lambda a, b: T.min(a, b))

    def over_threads(self, value: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
        """`combine` of all threads' values."""
        return reduce(self.gpu, bind(value), combine, self.thread, self.gpu.threads)


class Row(RowReader):
    """A row of logits and its parameters. Emits what is known of it from its slices alone."""

    def __init__(
        self, gpu: Gpu, logits: Expr, step: Step, told: Expr, row: Expr, thread: Expr
    ) -> None:
        super().__init__(gpu, logits, row, thread)
        names = ("temperature", "top_k", "top_p", "min_p", "uniform", *FILTERS)
        self.wish = {name: bind(step.row(row, name)) for name in names}
        self.slices = Slices.of(gpu, self.vocab)
        self.live = LiveSlices(gpu, self.slices, told, row, thread)
        self._whole()

    def _whole(self) -> None:
        """Set top (the largest logit), top_key (its image), best (the first index that has it) and
        total (the sum over the row of exp(logit - top)), reading one slice."""
        key, place, index, total = Local(1, "uint32"), Local(1, "int32"), Local(1, "int32"), Local()
        key[0], place[0], index[0] = T.uint32(0), T.int32(0), T.int32(NO_INDEX)
        with T.serial(self.live.own) as j, when(self.live.keys[j] > key[0]):
            key[0], place[0] = self.live.keys[j], self.live.place(j)
        self.top_key, best = self.best_of(key[0], place[0])
        with T.serial(self.slices.size // self.gpu.threads) as part:
            i = bind(best * self.slices.size + int32(part) * self.gpu.threads + self.thread)
            x = image(bind(self.logits[self.row, T.min(i, self.vocab - 1)]))
            with when(tirx.all(i < self.vocab, x == self.top_key)):
                index[0] = T.min(index[0], i)
        self.best = self.over_threads(index[0], lambda a, b: T.min(a, b))
        self.top = bind(self.logits[self.row, self.best])
        total[0] = real(0)
        with T.serial(self.live.own) as j, when(self.live.keys[j] > T.uint32(NOTHING)):
            share = exponential(logit(bind(self.live.keys[j])) - self.top)
            total[0] = total[0] + self.live.sum_of(SUM, j) * share
        self.total = self.over_threads(total[0], add)

    @contextlib.contextmanager
    def live_blocks(self) -> Iterator[Callable[[Body], None]]:
        """`blocks`, over the slices in the list of those that can matter."""
        threads, size = self.gpu.threads, self.slices.size
        parts, length = size // threads, bind(self.live.length[0])
        with T.serial(ceil_div(length * parts, AHEAD)) as block:
            loaded, indices = Local(AHEAD), Local(AHEAD, "int32")
            first = bind(int32(block) * AHEAD)
            for u in range(AHEAD):
                slot = bind((first + u) // parts)
                place = self.live.at(T.min(slot, length - 1))
                index = bind(place * size + (first + u) % parts * threads + self.thread)
                loaded[u] = self.logits[self.row, T.min(index, self.vocab - 1)]
                indices[u] = T.Select(slot < length, index, T.int32(self.vocab))

            def each(body: Body) -> None:
                with T.serial(AHEAD) as u:
                    index, x = bind(indices[u]), bind(loaded[u])
                    body(index, x, bind(T.Select(index < self.vocab, image(x), T.uint32(0))))

            yield each

    def mass(self, x: Expr, key: Expr, peak: Expr, peak_key: Expr, inverse: Expr) -> Expr:
        """The probability of x relative to the peak's, whose mass is 1 to the bit; 0 for what is
        above it. inverse: of the temperature."""
        share = exponential((x - peak) * inverse)
        mass = T.Select(tirx.all(key > T.uint32(NOTHING), key < peak_key), share, real(0))
        return bind(T.Select(key == peak_key, real(1), mass))
