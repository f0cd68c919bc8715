"""A row of logits in sampling: loads, the largest, the sum of exponentials, masses."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.engine.batch.tables import FILTERS
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling.candidate_set import CandidateSet
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import NO_KEY, logit, ordered_bits, safe_exp
from mlcc_compiler.kernels.gpu.sampling.partial import AHEAD, SUM, Slices
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    ceil_div,
    int32,
    largest,
    real,
    reduce,
    shared,
    when,
)
from mlcc_compiler.kernels.step import Step

NO_INDEX = 0x7FFFFFFF
_GROUP = 16  # threads whose values are combined by one

Body = Callable[[Expr, Expr, Expr], None]
"""(index of a logit, the logit, its key) -> statements."""


class RowReader:
    """A row of logits, read by a workgroup: passes over it, and reductions over threads."""

    def __init__(self, gpu: Gpu, logits: Expr, slices: Slices, row: Expr, thread: Expr) -> None:
        self.gpu, self.logits, self.row, self.thread = gpu, logits, row, thread
        self.slices, self.vocab = slices, slices.vocab

    def in_slice(self, place: Expr, body: Callable[[Expr, Expr], None]) -> None:
        """Emit body(index, key) for each of this thread's logits of one slice."""
        with T.serial(self.slices.size // self.gpu.threads) as part:
            first = place * self.slices.size + int32(part) * self.gpu.threads
            index = bind(first + self.thread)
            key = ordered_bits(bind(self.logits[self.row, T.min(index, self.vocab - 1)]))
            with when(index < self.vocab):
                body(index, key)

    def best_of(self, key: Expr, index: Expr) -> tuple[Expr, Expr]:
        """The largest of the threads' keys, and the first of the indices that have it."""
        top = self.over_threads(key, largest)
        first = T.Select(key == top, index, T.int32(NO_INDEX))
        return top, self.over_threads(first, lambda a, b: T.min(a, b))

    def over_threads(self, value: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
        """Reduce all threads' values by `combine`. Contains barriers. Without subgroups by two
        short loops: the text of a tree of eight levels is long, and this is called often."""
        gpu, thread, value = self.gpu, self.thread, bind(value)
        if gpu.subgroup:
            return reduce(gpu, value, combine, thread, gpu.threads)
        groups, dtype = gpu.threads // _GROUP, str(value.ty.dtype)
        cells, parts = shared((gpu.threads,), dtype), shared((groups,), dtype)
        store(cells, value, thread)
        barrier()
        total = Local(1, dtype)
        with when(thread < groups):
            total[0] = cells[thread * _GROUP]
            with T.serial(1, _GROUP) as k:
                total[0] = combine(total[0], cells[thread * _GROUP + int32(k)])
            store(parts, total[0], thread)
        barrier()
        total[0] = parts[0]
        with T.serial(1, groups) as k:
            total[0] = combine(total[0], parts[int32(k)])
        barrier()  # so that the cells may be written again
        return bind(total[0])


class Row(RowReader):
    """A row of logits and its sampling parameters. Emits what its slices' statistics determine."""

    def __init__(
        self, gpu: Gpu, logits: Expr, step: Step, slice_stats: Expr, row: Expr, thread: Expr
    ) -> None:
        super().__init__(gpu, logits, Slices.of(gpu, int(logits.shape[1])), row, thread)
        names = ("temperature", "top_k", "top_p", "min_p", "uniform", *FILTERS)
        self.parameters = {name: bind(step.row(row, name)) for name in names}
        self.candidates = CandidateSet(gpu, self.slices, slice_stats, row, thread)
        self._whole()

    def _whole(self) -> None:
        """Set top (the largest logit), top_key (its key), best (the first index that has it) and
        total (the sum over the row of exp(logit - top)), reading one slice."""
        key, place = self.candidates.best_of_own()
        self.top_key, place = self.best_of(key, place)
        index, total = Local(1, "int32"), Local()
        index[0] = T.int32(NO_INDEX)

        def find(i: Expr, k: Expr) -> None:
            with when(k == self.top_key):
                index[0] = T.min(index[0], i)

        self.in_slice(place, find)
        self.best = self.over_threads(index[0], lambda a, b: T.min(a, b))
        self.top = bind(self.logits[self.row, self.best])
        total[0] = real(0)
        with T.serial(self.candidates.own) as j, when(self.candidates.keys[j] > T.uint32(NO_KEY)):
            share = safe_exp(logit(bind(self.candidates.keys[j])) - self.top)
            total[0] = total[0] + self.candidates.sum_of(SUM, self.candidates.place(j)) * share
        self.total = self.over_threads(total[0], add)

    def each(self, over_slices: Expr, body: Body) -> None:
        """Emit body(index, logit, key) for each of this thread's elements: its logits in listed
        slices, a few at a time, neighbours to neighbours; or, with `over_slices`, its own slices,
        represented by their largest logits. Past the end the key is 0."""
        threads, candidates = self.gpu.threads, self.candidates
        loaded, indices = Local(AHEAD), Local(AHEAD, "int32")
        parts, count = self.slices.size // threads, Local(1, "int32")
        count[0] = candidates.length[0] * parts
        with when(over_slices):
            count[0] = T.int32(candidates.own)
        with T.serial(ceil_div(bind(count[0]), AHEAD)) as block:
            first = bind(int32(block) * AHEAD)
            with when(tirx.Not(over_slices)):
                for u in range(AHEAD):
                    index = candidates.at((first + u) // parts) * self.slices.size
                    index = bind(index + (first + u) % parts * threads + self.thread)
                    loaded[u] = self.logits[self.row, T.min(index, self.vocab - 1)]
                    indices[u] = index
            with when(over_slices), T.serial(AHEAD) as u:
                indices[u] = candidates.place(first + int32(u))
                loaded[u] = logit(candidates.key(first + int32(u)))
            # a loop, for drivers to unroll: its text is long, and some compile slowly
            with T.serial(AHEAD) as u:
                index, x = bind(indices[u]), bind(loaded[u])
                key = Local(1, "uint32")
                key[0] = ordered_bits(x)
                with when(index >= self.vocab):
                    key[0] = T.uint32(0)
                body(index, x, bind(key[0]))

    def mass(self, x: Expr, key: Expr, peak: Expr, peak_key: Expr, inverse: Expr) -> Expr:
        """The probability of x relative to the peak's, whose mass is exactly 1; 0 for logits above
        it. inverse: 1 / temperature."""
        mass = Local()
        mass[0] = real(0)
        with when(tirx.all(key > T.uint32(NO_KEY), key < peak_key)):
            mass[0] = safe_exp((x - peak) * inverse)
        with when(key == peak_key):
            mass[0] = real(1)
        return bind(mass[0])
