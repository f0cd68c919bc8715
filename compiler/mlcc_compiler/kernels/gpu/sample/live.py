"""Which slices of a row a workgroup still has to read, of what `slices` told of them.

A list in workgroup memory, in the row's order, made again for every pass: as limits rise and what
is looked for narrows, fewer slices can hold any of it.
"""

from __future__ import annotations

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sample.slices import KEY, Slices
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, ceil_div, int32, shared, when

_GROUP = 16  # threads whose counts are added up by one, in the sum of all before a thread


class LiveSlices:
    """The same list in every thread; each has some neighbouring slices in registers too."""

    def __init__(self, gpu: Gpu, slices: Slices, told: Expr, row: Expr, thread: Expr) -> None:
        self.slices, self.told, self.row, self.thread = slices, told, row, thread
        self.own = ceil_div(slices.count, gpu.threads)
        """Slices of a thread."""
        self.keys = Local(self.own, "uint32")
        """Of its slices: the images of their largest logits; 0 past the last slice."""
        self.length = Local(1, "int32")
        """Slices in the list."""
        self._list = shared((slices.count,), "int32")
        self._counts = shared((gpu.threads,), "int32")
        self._groups = shared((gpu.threads // _GROUP,), "int32")
        with T.serial(self.own) as j:
            place = self.place(j)
            key = bind(told[row, KEY, T.min(place, slices.count - 1)])
            self.keys[j] = T.Select(place < slices.count, key, T.uint32(0))

    def place(self, j: Expr) -> Expr:
        """Which slice of the row a thread's j-th is."""
        return bind(self.thread * self.own + int32(j))

    def sum_of(self, plane: int, j: Expr) -> Expr:
        """What is told of a thread's j-th slice, which must be one: a sum."""
        return bind(T.reinterpret("float32", self.told[self.row, plane, self.place(j)]))

    def at(self, slot: Expr) -> Expr:
        """The slice at a place of the list."""
        return self._list[slot]

    def choose(self, key: Expr, begin: Expr, end: Expr) -> None:
        """List the slices that have a logit of this image or above, and one of the indices from
        `begin` to `end`. Contains barriers; more are needed between reading and the next call."""
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
        groups = self._counts.shape[0] // _GROUP
        with when(thread < groups):
            store(self._groups, self._total(self._counts, thread * _GROUP, _GROUP), thread)
        barrier()
        group = bind(thread // _GROUP)
        slot = Local(1, "int32")
        slot[0] = self._total(self._groups, T.int32(0), group)
        slot[0] = slot[0] + self._total(self._counts, group * _GROUP, thread % _GROUP)
        self.length[0] = self._total(self._groups, T.int32(0), groups)
        with T.serial(self.own) as j, when(wanted(j)):
            store(self._list, self.place(j), slot[0])
            slot[0] = slot[0] + 1
        barrier()

    @staticmethod
    def _total(cells: Expr, first: Expr, count: Expr) -> Expr:
        total = Local(1, "int32")
        total[0] = T.int32(0)
        begin = bind(first)
        with T.serial(count) as k:
            total[0] = total[0] + cells[begin + int32(k)]
        return bind(total[0])
