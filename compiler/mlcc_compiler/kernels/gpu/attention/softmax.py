"""Online softmax over blocks of keys (Milakov and Gimelshein, 2018), for a tile of query rows."""

from __future__ import annotations

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.plan import PAD
from mlcc_compiler.kernels.gpu.attention.sequences import LOWEST, sink_weight
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, real, shared, when, zeros


class OnlineSoftmax:
    """Emits the softmax for a workgroup, in which all threads take part: `threads` / `rows` of them
    share a row, and each exponentiates a part of its keys."""

    def __init__(self, rows: int, keys: int, threads: int, thread: Expr) -> None:
        self.keys, self.rows, self.parts = keys, rows, threads // rows
        self.weights = shared((keys, rows + PAD))
        """Weights of a block of keys; before `update`, its scores."""
        self.factors = shared((rows,))
        """Factors by which a block scales the sums of those before it."""
        self.row, self.part = bind(thread % rows), bind(thread // rows)
        self.best, self.total = zeros(1, LOWEST), zeros(1)
        """This thread's: the largest score of its row, and the sum of its part of the weights."""

    def update(self) -> None:
        """Turn a block's scores into weights e ** (score - the row's largest so far); `factors` are
        the corrections of earlier sums. Every thread scans its whole row, and exponentiates a part
        of it."""
        top = zeros(1)
        top[0] = self.best[0]
        with T.serial(self.keys) as key:
            top[0] = T.max(top[0], self.weights[key, self.row])
        # held in registers in between: TVM would put a barrier into a loop that changes cells
        each = self.keys // self.parts
        first, held = bind(self.part * each), zeros(each)
        for i in range(each):
            held[i] = self.weights[first + i, self.row]
        barrier()
        factor = bind(T.exp(self.best[0] - top[0]))
        self.best[0] = top[0]
        self.total[0] = self.total[0] * factor
        for i in range(each):
            hidden = held[i] <= real(LOWEST)
            held[i] = T.if_then_else(hidden, real(0), T.exp(held[i] - top[0]))
            self.total[0] = self.total[0] + held[i]
            store(self.weights, held[i], first + i, self.row)
        with when(self.part == 0):
            store(self.factors, factor, self.row)
        barrier()

    def sum_weights(self, scratch: Expr, sink: Callable[[Expr], Expr] | None = None) -> None:
        """factors become the sum of each row's weights over all blocks, plus its sink's, if
        sink(row) is given; `scratch` has one number for each thread."""
        store(scratch, self.total[0], self.part * self.rows + self.row)
        barrier()
        with when(self.part == 0):
            total = zeros(1)
            for part in range(self.parts):
                total[0] = total[0] + scratch[part * self.rows + self.row]
            if sink is not None:
                total[0] = total[0] + sink_weight(bind(sink(self.row)), self.best[0])
            store(self.factors, total[0], self.row)
        barrier()


class TwoPassSoftmax:
    """Emits the softmax of a tile that goes through its keys twice. `threads` / `rows` of the
    threads share a row, each with a part of a block's keys. Scores are LOWEST of hidden keys."""

    def __init__(self, rows: int, keys: int, threads: int, thread: Expr) -> None:
        self.rows, self.parts = rows, threads // rows
        self.keys = keys // self.parts
        """Keys of a block for each thread, from `first` on."""
        self.row, self.part = bind(thread % rows), bind(thread // rows)
        self.first = bind(self.part * self.keys)
        self.scratch = shared((threads,))
        self.sums = shared((rows,))
        """The sum of each row's weights, after `merge`."""
        self.best, self.total = zeros(1, LOWEST), zeros(1)
        """The largest score: of this thread's keys, after `merge` of its row's. The sum of its
        weights relative to that."""

    def add(self, scores: Local) -> None:
        """First pass: a block's scores of this thread's keys."""
        top = zeros(1)
        top[0] = self.best[0]
        for i in range(self.keys):
            top[0] = T.max(top[0], scores[i])
        self.total[0] = self.total[0] * T.exp(self.best[0] - top[0])
        self.best[0] = top[0]
        for i in range(self.keys):
            self.total[0] = self.total[0] + self.weight(scores[i])

    def weight(self, score: Expr) -> Expr:
        """e ** (score - the largest), 0 of a hidden key."""
        return T.if_then_else(score <= real(LOWEST), real(0), T.exp(score - self.best[0]))

    def merge(self, sink: Callable[[Expr], Expr] | None = None) -> None:
        """Between the passes: the parts of each row become one, with its sink's weight, if
        sink(row) is given."""
        store(self.scratch, self.best[0], self.part * self.rows + self.row)
        barrier()
        top = zeros(1, LOWEST)
        for part in range(self.parts):
            top[0] = T.max(top[0], self.scratch[part * self.rows + self.row])
        barrier()
        share = bind(self.total[0] * T.exp(self.best[0] - top[0]))
        self.best[0] = top[0]
        store(self.scratch, share, self.part * self.rows + self.row)
        barrier()
        with when(self.part == 0):
            total = zeros(1)
            for part in range(self.parts):
                total[0] = total[0] + self.scratch[part * self.rows + self.row]
            if sink is not None:
                total[0] = total[0] + sink_weight(bind(sink(self.row)), self.best[0])
            store(self.sums, total[0], self.row)
        barrier()
