"""A row of logits on a CPU: vector loads, maximum, sums, and bounds."""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    each,
    max_lanes,
    maximum,
    reduce_lanes,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.frame import Expr

_VECTORS = 64  # vectors per block; blocks are added up in float64
_UNROLL = 4  # independent sums, to hide the latency of an addition
_NO_INDEX = 0x7FFFFFFF
HIGHEST = 3.4028234663852886e38
LOWEST = -HIGHEST

Terms = Callable[[Expr, int], list[Expr]]
"""(index, lanes) -> the terms there, one vector each."""
Test = Callable[[Expr], Expr]
"""A vector of logits -> which of them are selected."""


class Row:
    """Passes over one row of logits f32[r, vocab]."""

    def __init__(self, vocab: int, lanes: int, logits: Expr, row: Expr) -> None:
        self.vocab, self.lanes, self.logits, self.row = vocab, lanes, logits, row
        self.block = _VECTORS * lanes
        self.rest = vocab % (lanes * _UNROLL)
        self.blocks = -(-(vocab - self.rest) // self.block)
        """Those of whole steps; what is left over counts as one more."""

    def x(self, i: Expr, k: int) -> Expr:
        """k logits from index i on."""
        return self.logits[self.row, span(i, k)]

    def argmax(self) -> tuple[Expr, Expr]:
        """The largest logit, and its first index."""
        lanes = self.lanes
        best, index = Registers(_UNROLL, lanes), Registers(_UNROLL, lanes, "int32")
        for u in range(_UNROLL):
            best[u] = spread(-T.infinity("float32"), lanes)
            index[u] = spread(T.int32(0), lanes)

        def take(i: Expr, u: int) -> None:
            x = bind(self.x(i, lanes))
            better = x > best[u]
            here = T.Ramp(i, 1, lanes) if lanes > 1 else i
            index[u] = T.Select(better, here, index[u])
            best[u] = T.Select(better, x, best[u])

        with T.serial(self.vocab // (lanes * _UNROLL)) as j:
            for u in range(_UNROLL):
                take((j * _UNROLL + u) * lanes, u)
        return self._first_best(best, index)

    def _first_best(self, best: Registers, index: Registers) -> tuple[Expr, Expr]:
        """Combine the lanes, then the remaining elements one by one."""
        top, first = Registers(1, 1), Registers(1, 1, "int32")
        lanes = self.lanes
        a, b = maximum(best[0], best[1]), maximum(best[2], best[3])
        top[0] = max_lanes(maximum(a, b))
        none = spread(T.int32(_NO_INDEX), lanes)
        first[0] = T.int32(_NO_INDEX)
        for u in range(_UNROLL):
            where = T.Select(best[u] == spread(top[0], lanes), index[u], none)
            first[0] = T.min(first[0], reduce_lanes(where, T.min))
        with T.serial(self.rest) as j:
            i = self.vocab - self.rest + j
            with T.If(self.x(i, 1) > top[0]), T.Then():
                top[0], first[0] = self.x(i, 1), i
        return top[0], first[0]

    def sums(
        self, count: int, terms: Terms, keep: Callable[[Expr, Expr], None] | None = None
    ) -> list[Expr]:
        """Emit the sums over the row of `count` terms, in float64 from block to block.

        `keep(block, sum)` may store what a block adds to the first of them.
        """
        totals = Registers(count, 1, "float64")
        for t in range(count):
            totals[t] = T.float64(0)

        def add(block: Expr, parts: list[Expr]) -> None:
            for t, part in enumerate(parts):
                totals[t] = totals[t] + part
            if keep is not None:
                keep(block, parts[0])

        with T.serial(self.blocks) as block:
            add(block, self._block_sums(count, terms, block))
        if self.rest:
            add(T.int32(self.blocks), self._rest_sums(count, terms))
        return [bind(totals[t]) for t in range(count)]

    def _block_sums(self, count: int, terms: Terms, block: Expr) -> list[Expr]:
        """The sums over a block; the last one may be short, but of whole steps."""
        lanes, step = self.lanes, self.lanes * _UNROLL
        sums = Registers(count * _UNROLL, lanes)
        for i in range(count * _UNROLL):
            sums[i] = spread(0.0, lanes)
        start = bind(block * self.block)
        with T.serial(T.min(self.block // step, self.vocab // step - T.floordiv(start, step))) as j:
            for u in range(_UNROLL):
                for t, term in enumerate(terms(start + (j * _UNROLL + u) * lanes, lanes)):
                    sums[t * _UNROLL + u] = sums[t * _UNROLL + u] + term
        return [bind(T.Cast("float64", self._join(sums, t))) for t in range(count)]

    def _rest_sums(self, count: int, terms: Terms) -> list[Expr]:
        """The sums over the remaining elements, one by one."""
        sums = Registers(count, 1)
        for t in range(count):
            sums[t] = T.float32(0)
        with T.serial(self.rest) as j:
            for t, term in enumerate(terms(self.vocab - self.rest + j, 1)):
                sums[t] = sums[t] + term
        return [bind(T.Cast("float64", sums[t])) for t in range(count)]

    def _join(self, sums: Registers, t: int) -> Expr:
        a, b, c, d = (sums[t * _UNROLL + u] for u in range(_UNROLL))
        return sum_lanes((a + b) + (c + d))

    def ends(self, test: Test) -> tuple[Expr, Expr]:
        """The smallest and the largest selected logit; HIGHEST and LOWEST if none is."""
        low = {k: Registers(1, k) for k in {self.lanes, 1}}
        high = {k: Registers(1, k) for k in {self.lanes, 1}}
        for k in low:
            low[k][0], high[k][0] = spread(HIGHEST, k), spread(LOWEST, k)

        def take(i: Expr, k: int) -> None:
            x = bind(self.x(i, k))
            meant = test(x)
            low[k][0] = T.min(low[k][0], T.Select(meant, x, spread(HIGHEST, k)))
            high[k][0] = T.max(high[k][0], T.Select(meant, x, spread(LOWEST, k)))

        each(self.vocab, self.lanes, take)
        lowest = reduce_lanes(low[self.lanes][0], T.min)
        highest = reduce_lanes(high[self.lanes][0], T.max)
        return bind(T.min(lowest, low[1][0])), bind(T.max(highest, high[1][0]))
