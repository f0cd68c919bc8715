"""A row of logits as sampling sees it: loads, the largest, the sum of exponentials, masses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from mlcc.engine.tables import FILTERS
from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sample.parts import NOTHING, image
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

_AHEAD = 8  # loads under way in a thread: a row comes from far, and one workgroup waits for it
_LOWEST = -3.4028234663852886e38
NO_INDEX = 0x7FFFFFFF
_VANISHES = -104.0  # e to this is 0 in float32

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
        with T.serial(ceil_div(end - begin, threads * _AHEAD)) as block:
            loaded = Local(_AHEAD)
            first = bind(begin + int32(block) * (threads * _AHEAD) + self.thread)
            for u in range(_AHEAD):
                index = T.min(first + u * threads, self.vocab - 1)
                loaded[u] = self.logits[self.row, index]

            def each(body: Body) -> None:
                # a loop, for drivers to unroll: its text is long, and some compile slowly
                with T.serial(_AHEAD) as u:
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
    """A row of logits and its parameters. Emits the first pass over it."""

    def __init__(self, gpu: Gpu, logits: Expr, step: Step, row: Expr, thread: Expr) -> None:
        super().__init__(gpu, logits, row, thread)
        names = ("temperature", "top_k", "top_p", "min_p", "uniform", *FILTERS)
        self.wish = {name: bind(step.row(row, name)) for name in names}
        self._first_pass()

    def _first_pass(self) -> None:
        """Set top (the largest logit), top_key (its image), best (the first index that has it) and
        total (the sum over the row of exp(logit - top)), in one pass with a running maximum."""
        key, index, peak, total = Local(1, "uint32"), Local(1, "int32"), Local(), Local()
        key[0], index[0], peak[0], total[0] = T.uint32(0), T.int32(0), real(_LOWEST), real(0)
        higher = Local()

        def highest(i: Expr, x: Expr, k: Expr) -> None:
            with when(k > key[0]):
                index[0], key[0] = i, k
            with when(k > T.uint32(NOTHING)):
                higher[0] = T.max(higher[0], x)

        def sum_up(_: Expr, x: Expr, k: Expr) -> None:
            with when(k > T.uint32(NOTHING)):
                total[0] = total[0] + _share(x - higher[0])

        with self.blocks(T.int32(0), T.int32(self.vocab)) as each:
            higher[0] = peak[0]
            each(highest)
            total[0] = total[0] * _share(peak[0] - higher[0])
            each(sum_up)
            peak[0] = higher[0]
        self.top_key, self.best = self.best_of(key[0], index[0])
        self.top = bind(self.logits[self.row, self.best])
        self.total = self.over_threads(total[0] * _share(peak[0] - self.top), add)

    def mass(self, x: Expr, key: Expr, peak: Expr, peak_key: Expr, inverse: Expr) -> Expr:
        """The probability of x relative to the peak's, whose mass is 1 to the bit; 0 for what is
        above it. inverse: of the temperature."""
        share = _share((x - peak) * inverse)
        mass = T.Select(tirx.all(key > T.uint32(NOTHING), key < peak_key), share, real(0))
        return bind(T.Select(key == peak_key, real(1), mass))


def _share(power: Expr) -> Expr:
    """e ** power of a power <= 0: none so low that a driver's exponential might overflow within."""
    return T.exp(bind(T.max(power, real(_VANISHES))))
