"""Candidate set: the slices of a row that a workgroup still has to read, chosen by `partial.py`'s
statistics.

A list in workgroup memory, in the row's order, rebuilt for every pass: as limits rise and the
search narrows, fewer slices can contain candidates.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling.partial import AHEAD, KEY, Slices
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, ceil_div, int32, shared, when

_GROUP = 16  # threads whose counts are added up by one, in the sum of all before a thread


class CandidateSet:
    """The same list in every thread; each also holds some neighbouring slices' keys in
    registers."""

    def __init__(
        self, gpu: Gpu, slices: Slices, slice_stats: Expr, row: Expr, thread: Expr
    ) -> None:
        self.slices, self.slice_stats, self.row, self.thread = slices, slice_stats, row, thread
        self.own = ceil_div(slices.count, gpu.threads)
        """Slices of a thread."""
        self.keys = Local(self.own, "uint32")
        """Of its slices: the images of their largest logits; 0 past the last slice."""
        self.length = Local(1, "int32")
        """Slices in the list."""
        self._list = shared((slices.count + AHEAD,), "int32")
        self._counts = shared((gpu.threads,), "int32")
        self._groups = shared((gpu.threads // _GROUP,), "int32")
        with T.serial(self.own) as j:
            place = self.place(j)
            key = bind(slice_stats[row, KEY, T.min(place, slices.count - 1)])
            self.keys[j] = T.Select(place < slices.count, key, T.uint32(0))

    def place(self, j: Expr) -> Expr:
        """Index in the row of a thread's j-th slice."""
        return bind(self.thread * self.own + int32(j))

    def key(self, j: Expr) -> Expr:
        """The key of the largest logit of a thread's j-th slice; 0 beyond the last."""
        key = Local(1, "uint32")
        key[0] = T.uint32(0)
        with when(j < self.own):
            key[0] = self.keys[j]
        return bind(key[0])

    def sum_of(self, plane: int, place: Expr) -> Expr:
        """A sum from a slice's statistics."""
        return bind(T.reinterpret("float32", self.slice_stats[self.row, plane, place]))

    def best_of_own(self) -> tuple[Expr, Expr]:
        """The largest key of a thread's slices, and the first slice that has it."""
        key, place = Local(1, "uint32"), Local(1, "int32")
        key[0], place[0] = T.uint32(0), T.int32(0)
        with T.serial(self.own) as j, when(self.keys[j] > key[0]):
            key[0], place[0] = self.keys[j], self.place(j)
        return bind(key[0]), bind(place[0])

    def update_best(self, place: Expr, key: Expr) -> None:
        """Replace a slice's largest key, after some of its logits were used up."""
        with T.serial(self.own) as j, when(self.place(j) == place):
            self.keys[j] = key

    def at(self, slot: Expr) -> Expr:
        """The slice at an index of the list."""
        return self._list[slot]

    def select(self, key: Expr, begin: Expr, end: Expr) -> None:
        """List the slices that contain a logit of at least this key and an index from `begin` to
        `end`; then some past the row, for readers of several at once. Contains barriers; callers
        need one between reading and the next call."""
        size, thread = self.slices.size, self.thread

        def wanted(j: Expr) -> Expr:
            first = bind(self.place(j) * size)
            return tirx.all(self.keys[j] >= key, first < end, first + size > begin)

        count = Local(1, "int32")
        count[0] = T.int32(0)
        with T.serial(self.own) as j, when(wanted(j)):
            count[0] = count[0] + 1
        store(self._counts, count[0], thread)
        barrier()
        groups, group = self._counts.shape[0] // _GROUP, bind(thread // _GROUP)
        before, total = Local(1, "int32"), Local(1, "int32")
        before[0], total[0] = T.int32(0), T.int32(0)
        with T.serial(_GROUP) as k:  # of a thread's group of threads: all, and those before it
            own = bind(self._counts[group * _GROUP + int32(k)])
            total[0] = total[0] + own
            with when(int32(k) < thread % _GROUP):
                before[0] = before[0] + own
        with when(thread % _GROUP == 0):
            store(self._groups, total[0], group)
        barrier()
        total[0] = T.int32(0)
        with T.serial(groups) as k:
            with when(int32(k) == group):
                before[0] = before[0] + total[0]
            total[0] = total[0] + self._groups[int32(k)]
        self.length[0] = total[0]
        with T.serial(self.own) as j, when(wanted(j)):
            store(self._list, self.place(j), before[0])
            before[0] = before[0] + 1
        with when(thread < AHEAD):
            store(self._list, T.int32(self.slices.count), total[0] + thread)
        barrier()
