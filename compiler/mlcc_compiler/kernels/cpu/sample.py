"""Sampling one token per row of logits: temperature, top-k, top-p, min-p, inverse CDF; or argmax.

The filters are those of Hugging Face and in its order. Nothing is sorted: top-k and top-p keep the
logits above a threshold, and the threshold is found by bisection, each step one pass over the row.
Uniforms come from the caller, so this knows nothing of seeds; penalties and masks come before it.
"""

from collections.abc import Sequence

from mlcc.engine.tables import StepLayout
from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.logits import LogitsRow, number
from mlcc_compiler.kernels.cpu.vector_math import (
    Registers,
    bind,
    each,
    exp,
    span,
    spread,
)
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.step import Step, step_argument

_STRIDE = 8.0  # first guess of how far below the largest logit a threshold lies
_GUESSES = 48  # halvings of the value; after them, halvings of the bits, which must end
_LOWEST = -3.4028234663852886e38


def sample(isa: Isa, vocab: int, layout: StepLayout) -> PrimFunc:
    """(logits f32[r, vocab], step) -> (tokens i32[r], logprobs f32[r]); parameters are the step's.

    Temperature 0 takes the largest logit, the first of equals. logprobs are of the raw logits.
    NaN logits are never chosen; a row of nothing but NaN or -inf gives token 0.
    """

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr) -> None:
        step = Step(layout, words)
        with T.parallel(logits.shape[0]) as row, T.If(row < step.count("rows")), T.Then():
            _Row(vocab, isa.lanes, step, (logits, tokens, logprobs), row).emit()

    outputs = {"tokens": i32("r"), "logprobs": f32("r")}
    return kernel(body, logits=f32("r", vocab), step=step_argument(layout), **outputs)


class _Row(LogitsRow):
    """Emits the sampling of one row."""

    def __init__(
        self, vocab: int, lanes: int, step: Step, arrays: Sequence[Expr], row: Expr
    ) -> None:
        logits, self.tokens, self.logprobs = arrays
        super().__init__(vocab, lanes, logits, row)
        self.temperature, self.top_k, self.top_p, self.min_p, self.uniform = (
            bind(step.row(row, name))
            for name in ("temperature", "top_k", "top_p", "min_p", "uniform")
        )

    def emit(self) -> None:
        self.top, best = self.argmax()
        (total,) = self.sums(1, lambda i, k: [number(exp(self.x(i, k) - spread(self.top, k)))])
        token = Registers(1, 1, "int32")
        token[0] = best
        with T.If(self.temperature > T.float32(0)), T.Then():
            self._draw(token)
        store(self.tokens, token[0], self.row)
        logit = self.logits[self.row, token[0]]
        store(self.logprobs, logit - self.top - T.Cast("float32", T.log(total)), self.row)

    def _draw(self, token: Registers) -> None:
        """token[0] = the token that the uniform falls on, if any mass is left."""
        mass = T.alloc_buffer((self.vocab,), "float32", scope="local")  # too large for the stack
        inverse = bind(T.float32(1) / self.temperature)

        def fill(i: Expr, k: int) -> None:
            value = exp((self.x(i, k) - spread(self.top, k)) * spread(inverse, k))
            store(mass, number(value), span(i, k))

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
        above = bind(self.x(i, k)) >= spread(limit, k)
        zero, one = spread(0.0, k), spread(1.0, k)
        return [T.Select(above, mass[span(i, k)], zero), T.Select(above, one, zero)]

    def _search(self, mass: Expr, limit: Registers, by_count: bool) -> None:
        """Raise limit[0] to the largest value from which on there is enough count, or mass."""
        start = bind(limit[0])
        total, everything = self.sums(2, lambda i, k: self._kept(mass, start, i, k))
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
            above, count = self.sums(2, lambda i, k: self._kept(mass, edge, i, k))
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
            keep = T.And(self.x(i, k) >= spread(limit, k), value >= spread(least, k))
            value = bind(T.Select(keep, value, spread(0.0, k)))
            store(mass, value, span(i, k))
            return [value]

        (total,) = self.sums(1, drop, lambda block, part: store(parts, part, block))
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
