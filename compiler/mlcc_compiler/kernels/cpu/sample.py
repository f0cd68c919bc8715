"""Sampling one token per row of logits: temperature, top-k, top-p, min-p, inverse CDF; or argmax.

The filters are those of Hugging Face and in its order. Nothing is sorted: top-k and top-p keep the
logits above a threshold, and the threshold is found by bisection, each step one pass over the row.
Uniforms come from the caller, so this knows nothing of seeds; penalties and masks come before it.
"""

from collections.abc import Callable, Sequence

from mlcc.engine.tables import StepLayout
from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.vector_math import (
    Registers,
    bind,
    each,
    exp,
    lanes_of,
    max_lanes,
    maximum,
    reduce_lanes,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import sample_arguments

_VECTORS = 64  # vectors per block; blocks are added up in float64
_UNROLL = 4  # independent sums, to hide the latency of an addition
_STRIDE = 8.0  # first guess of how far below the largest logit a threshold lies
_GUESSES = 48  # halvings of the value; after them, halvings of the bits, which must end
_LOWEST = -3.4028234663852886e38
_NO_INDEX = 0x7FFFFFFF

Terms = Callable[[Expr, int], list[Expr]]
"""(index, lanes) -> the terms there, one vector each."""


def sample(isa: Isa, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `sample_arguments`."""

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr) -> None:
        step = Step(layout, words)
        with T.parallel(logits.shape[0]) as row, T.If(row < step.count("rows")), T.Then():
            _Row(vocab, isa.lanes, step, (logits, tokens, logprobs), row).emit()

    return kernel(body, **sample_arguments(vocab, layout))


class _Row:
    """Emits the sampling of one row."""

    def __init__(
        self, vocab: int, lanes: int, step: Step, arrays: Sequence[Expr], row: Expr
    ) -> None:
        self.vocab, self.lanes, self.row = vocab, lanes, row
        self.logits, self.tokens, self.logprobs = arrays
        self.temperature, self.top_k, self.top_p, self.min_p, self.uniform = (
            bind(step.row(row, name))
            for name in ("temperature", "top_k", "top_p", "min_p", "uniform")
        )
        self.block = _VECTORS * lanes
        self.rest = vocab % (lanes * _UNROLL)
        self.blocks = -(-(vocab - self.rest) // self.block)
        """Those of whole steps; what is left over counts as one more."""

    def emit(self) -> None:
        self.top, best = self._argmax()
        (total,) = self._sums(1, lambda i, k: [_number(exp(self._x(i, k) - spread(self.top, k)))])
        token = Registers(1, 1, "int32")
        token[0] = best
        with T.If(self.temperature > T.float32(0)), T.Then():
            self._draw(token)
        store(self.tokens, token[0], self.row)
        logit = self.logits[self.row, token[0]]
        store(self.logprobs, logit - self.top - T.Cast("float32", T.log(total)), self.row)

    def _x(self, i: Expr, k: int) -> Expr:
        return self.logits[self.row, span(i, k)]

    def _argmax(self) -> tuple[Expr, Expr]:
        """The largest logit, and the first index that has it."""
        lanes = self.lanes
        best, index = Registers(_UNROLL, lanes), Registers(_UNROLL, lanes, "int32")
        for u in range(_UNROLL):
            best[u] = spread(-T.infinity("float32"), lanes)
            index[u] = spread(T.int32(0), lanes)

        def take(i: Expr, u: int) -> None:
            x = bind(self._x(i, lanes))
            better = x > best[u]
            here = T.Ramp(i, 1, lanes) if lanes > 1 else i
            index[u] = T.Select(better, here, index[u])
            best[u] = T.Select(better, x, best[u])

        with T.serial(self.vocab // (lanes * _UNROLL)) as j:
            for u in range(_UNROLL):
                take((j * _UNROLL + u) * lanes, u)
        return self._first_best(best, index)

    def _first_best(self, best: Registers, index: Registers) -> tuple[Expr, Expr]:
        """Join the lanes, then the rest one by one."""
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
            with T.If(self._x(i, 1) > top[0]), T.Then():
                top[0], first[0] = self._x(i, 1), i
        return top[0], first[0]

    def _sums(
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
        """The sums over what does not fill a step, one by one."""
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

    def _draw(self, token: Registers) -> None:
        """token[0] = the token that the uniform falls on, if any mass is left."""
        mass = T.alloc_buffer((self.vocab,), "float32", scope="local")  # too large for the stack
        inverse = bind(T.float32(1) / self.temperature)

        def fill(i: Expr, k: int) -> None:
            value = exp((self._x(i, k) - spread(self.top, k)) * spread(inverse, k))
            store(mass, _number(value), span(i, k))

        each(self.vocab, self.lanes, fill)
        limit = Registers(1, 1)
        limit[0] = T.float32(_LOWEST)
        with T.If(T.And(self.top_k > 0, self.top_k < self.vocab)), T.Then():
            self._search(mass, limit, by_count=True)
        with T.If(self.top_p < T.float32(1)), T.Then():
            self._search(mass, limit, by_count=False)
        self._invert(mass, limit[0], token)

    def _kept(self, mass: Expr, limit: Expr, i: Expr, k: int) -> list[Expr]:
        """[mass, count] of the logits from `limit` on."""
        above = bind(self._x(i, k)) >= spread(limit, k)
        zero, one = spread(0.0, k), spread(1.0, k)
        return [T.Select(above, mass[span(i, k)], zero), T.Select(above, one, zero)]

    def _search(self, mass: Expr, limit: Registers, by_count: bool) -> None:
        """Raise limit[0] to the largest value from which on there is enough count, or mass."""
        start = bind(limit[0])
        total, everything = self._sums(2, lambda i, k: self._kept(mass, start, i, k))
        if by_count:
            goal = bind(T.Cast("float64", self.top_k))
        else:
            goal = bind(T.Cast("float64", self.top_p) * total)
        keys, counts = Registers(2, 1, "int64"), Registers(2, 1, "float64")
        keys[0], keys[1] = _key(start), _key(self.top) + 1
        counts[0], counts[1] = everything, T.float64(0)
        tries, reach = Registers(1, 1, "int32"), Registers(1, 1)
        tries[0], reach[0] = T.int32(0), T.float32(_STRIDE)
        with T.While(T.And(keys[1] - keys[0] > 1, counts[0] - counts[1] > T.float64(1))):
            key = self._middle(start, keys, tries, reach)
            edge = bind(_value(key))
            above, count = self._sums(2, lambda i, k: self._kept(mass, edge, i, k))
            enough = (count if by_count else above) >= goal
            with T.If(T.And(enough, count > T.float64(0))):
                with T.Then():
                    keys[0], counts[0] = key, count
                with T.Else():
                    keys[1], counts[1] = key, count
        limit[0] = _value(keys[0])

    def _middle(self, start: Expr, keys: Registers, tries: Registers, reach: Registers) -> Expr:
        """The key to try next: halfway in value while that helps, else halfway in bits."""
        low, high = bind(_value(keys[0])), bind(_value(keys[1]))
        value = Registers(1, 1)
        value[0] = low * T.float32(0.5) + high * T.float32(0.5)
        with T.If(keys[0] == _key(start)), T.Then():
            value[0] = T.max(value[0], high - reach[0])
            reach[0] = reach[0] * T.float32(8)
        tries[0] = tries[0] + 1
        key = Registers(1, 1, "int64")
        key[0] = _key(value[0])
        inside = T.And(key[0] > keys[0], key[0] < keys[1])
        with T.If(T.Not(T.And(inside, tries[0] < _GUESSES))), T.Then():
            key[0] = T.shift_right(keys[0] + keys[1], T.int64(1))
        return bind(key[0])

    def _invert(self, mass: Expr, limit: Expr, token: Registers) -> None:
        """Drop what the filters dropped, then walk to where the uniform falls: blocks, then one."""
        least = bind(T.min(self.min_p, T.float32(1)))
        count = self.blocks + (self.rest > 0)
        parts = T.alloc_buffer((count,), "float64")

        def drop(i: Expr, k: int) -> list[Expr]:
            value = bind(mass[span(i, k)])
            keep = T.And(self._x(i, k) >= spread(limit, k), value >= spread(least, k))
            value = bind(T.Select(keep, value, spread(0.0, k)))
            store(mass, value, span(i, k))
            return [value]

        (total,) = self._sums(1, drop, lambda block, part: store(parts, part, block))
        left, block = Registers(1, 1, "float64"), Registers(2, 1, "int32")
        left[0] = T.Cast("float64", self.uniform) * total
        block[0] = T.int32(0)
        with T.While(T.And(block[0] < count - 1, left[0] >= parts[block[0]])):
            left[0] = left[0] - parts[block[0]]
            block[0] = block[0] + 1
        index = Registers(1, 1, "int32")
        index[0] = T.min(block[0] * self.block, self.vocab - self.rest)
        end = bind(T.min(index[0] + self.block, self.vocab))
        with T.While(T.And(index[0] < end, left[0] >= T.float64(0))):
            weight = bind(mass[index[0]])
            with T.If(weight > T.float32(0)), T.Then():
                token[0] = index[0]
                left[0] = left[0] - T.Cast("float64", weight)
            index[0] = index[0] + 1


def _number(x: Expr) -> Expr:
    """x, and 0 if it is NaN; x is never negative."""
    zero = spread(0.0, lanes_of(x))
    return T.Select(x > zero, x, zero)


def _key(value: Expr) -> Expr:
    """An int64 that orders as the floats do; -0 counts as 0."""
    bits = bind(T.reinterpret("int32", value + T.float32(0)))
    return bind(T.Cast("int64", _flip(bits)))


def _value(key: Expr) -> Expr:
    """The float of a key."""
    return T.reinterpret("float32", _flip(bind(T.Cast("int32", key))))


def _flip(bits: Expr) -> Expr:
    sign = T.shift_right(bits, T.int32(31))
    return T.bitwise_xor(bits, T.bitwise_and(sign, T.int32(0x7FFFFFFF)))
