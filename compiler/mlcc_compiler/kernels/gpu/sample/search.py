"""The search by which sampling finds thresholds and tokens; see `sample` for what it looks for."""

from __future__ import annotations

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sample.parts import INFINITY, NOTHING, BinSums
from mlcc_compiler.kernels.gpu.sample.row import Row
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, int32, real, when

_BITS = 4
_BINS = 1 << _BITS
_KEY_BITS = 32
_TOP_K, _TOP_P, _DRAW = range(3)


class Search:
    """The state of the search; the same in every thread of the workgroup."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.index_bits = max((row.vocab - 1).bit_length(), _BITS)
        self.sums = BinSums(row.gpu, _BINS + 1, row.thread)
        self.limit = Local(1, "uint32")
        """Logits whose image is below are dropped."""
        self.ends = Local(2, "uint32")
        """The first and last place where what is looked for can be."""
        self.above, self.goal = Local(), Local()
        """The sum of weights past the last place, and what it has to reach."""
        self.active, self.token = Local(1, "int32"), Local(1, "int32")
        self.limit[0], self.token[0] = T.uint32(NOTHING), row.best
        self.ends[0], self.ends[1] = T.uint32(0), T.uint32(0)
        self.above[0], self.goal[0] = real(0), real(0)
        self.active[0] = T.int32(0)

    def emit(self) -> None:
        """Set `token`: the one drawn, or the row's best if it is greedy or without masses."""
        with T.serial(_DRAW + 1) as i:
            stage = int32(i)
            self._begin(stage)
            with T.serial(self._passes(stage)) as digit:
                self._step(stage, int32(digit))

    def _passes(self, stage: Expr) -> Expr:
        """How many a stage has; 0 if the row does without it.

        From the parameters of the row alone: these are read-only, at an index that all threads
        share, so WGSL takes a loop of so many turns for uniform, and barriers are allowed in it.
        """
        row = self.row
        by_k = tirx.all(stage == _TOP_K, row.top_k > 0, row.top_k < row.vocab)
        by_p = tirx.all(stage == _TOP_P, row.top_p < real(1))
        filters = T.Select(tirx.any(by_k, by_p), _KEY_BITS // _BITS, 0)
        drawing = T.Select(stage == _DRAW, ceil_div(self.index_bits, _BITS), filters)
        return T.Select(row.temperature > real(0), drawing, 0)

    def _begin(self, stage: Expr) -> None:
        """Before a stage's first pass: any place is possible, if there are masses."""
        top = self.row.top_key
        self.ends[0] = T.uint32(0)
        self.ends[1] = T.Select(stage == _DRAW, T.uint32(self.row.vocab - 1), T.uint32(0xFFFFFFFF))
        self.above[0] = real(0)
        self.active[0] = int32(tirx.all(top > T.uint32(NOTHING), top < T.uint32(INFINITY)))

    def _step(self, stage: Expr, digit: Expr) -> None:
        """One pass."""
        first_shift = T.Select(stage == _DRAW, self.index_bits - _BITS, _KEY_BITS - _BITS)
        shift = bind(T.Cast("uint32", T.max(first_shift - digit * _BITS, 0)))
        values = Local(_BINS + 1)
        active = bind(self.active[0])
        with when(active != 0):
            self._weigh(stage, shift, values)
        self.sums.emit(values, active != 0)
        with when(active != 0):
            with when(digit == 0):
                self._aim(stage)
            self._narrow(stage, shift)

    def _weigh(self, stage: Expr, shift: Expr, values: Local) -> None:
        """This thread's sums of weights by digit, and its number of elements."""
        row = self.row
        for c in range(_BINS + 1):
            values[c] = real(0)
        low, high, limit = bind(self.ends[0]), bind(self.ends[1]), bind(self.limit[0])
        draws = stage >= _DRAW
        begin, end = Local(1, "int32"), Local(1, "int32")
        begin[0], end[0] = T.int32(0), T.int32(row.vocab)
        with when(draws):
            begin[0] = T.max(row.vocab - 1 - int32(high), 0)
            end[0] = row.vocab - int32(low)

        def count(i: Expr, x: Expr, key: Expr) -> None:
            place = bind(T.Select(draws, T.Cast("uint32", row.vocab - 1 - i), key))
            with when(tirx.all(key >= limit, place >= low, place <= high)):
                weight = Local()
                weight[0] = real(1)
                with when(stage != _TOP_K):
                    mass = row.mass(x, key)
                    dropped = tirx.all(draws, mass < row.least)
                    weight[0] = T.Select(dropped, real(0), mass)
                digit = bind(T.shift_right(place - low, shift))
                for c in range(_BINS):
                    values[c] = values[c] + T.Select(digit == T.uint32(c), weight[0], real(0))
                values[_BINS] = values[_BINS] + real(1)

        with row.blocks(begin[0], end[0]) as each:
            each(count)

    def _aim(self, stage: Expr) -> None:
        """Set the goal, as the first pass has seen the whole mass."""
        row = self.row
        total = Local()
        total[0] = real(0)
        with T.serial(_BINS) as i:
            total[0] = total[0] + self.sums.totals[_BINS - 1 - int32(i)]
        share = T.Select(stage == _TOP_P, row.top_p, row.uniform)
        self.goal[0] = T.Select(
            stage == _TOP_K, T.Cast("float32", row.top_k), bind(share * total[0])
        )

    def _narrow(self, stage: Expr, shift: Expr) -> None:
        """Go on in the lowest digit that has weight and that the sum above it leaves short of the
        goal; in drawing, a sum that equals the goal is short of it. In the highest with weight, if
        the goal is 0."""
        above, before, count = Local(), Local(), Local()
        digit = Local(1, "int32")
        above[0], before[0], count[0] = self.above[0], self.above[0], real(0)
        digit[0] = T.int32(-1)
        with T.serial(_BINS) as i:
            c = bind(_BINS - 1 - int32(i))
            weight = bind(self.sums.totals[c])
            short = tirx.any(
                above[0] < self.goal[0],
                tirx.all(stage == _DRAW, above[0] == self.goal[0]),
                digit[0] < 0,
            )
            with when(tirx.all(weight > real(0), short)):
                digit[0], before[0], count[0] = c, above[0], weight
            above[0] = above[0] + weight
        with when(digit[0] >= 0):
            self.above[0] = before[0]
            low = bind(self.ends[0] + T.shift_left(T.Cast("uint32", digit[0]), shift))
            self.ends[0] = low
            self.ends[1] = low + (T.shift_left(T.uint32(1), shift) - T.uint32(1))
            with when(stage == _DRAW):
                self.token[0] = self.row.vocab - 1 - int32(low)
            with when(stage != _DRAW):
                self.limit[0] = T.max(self.limit[0], low)
                # a digit's one element is found; masses do not tell how many there are in the new
                # digit, so for them the elements of the old one are counted
                held = T.Select(stage == _TOP_K, count[0], self.sums.totals[_BINS])
                self.active[0] = int32(held > real(1))
        with when(digit[0] < 0):
            self.active[0] = T.int32(0)
