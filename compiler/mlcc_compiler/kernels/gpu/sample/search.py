"""The search by which sampling finds thresholds and tokens; see `sample` for what it looks for."""

from __future__ import annotations

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sample.kept import (
    DRAW,
    EPSILON,
    TOP_K,
    TOP_P,
    TYPICAL,
    Kept,
    measures,
)
from mlcc_compiler.kernels.gpu.sample.parts import INFINITY, NOTHING, BinSums, logit
from mlcc_compiler.kernels.gpu.sample.row import Row
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, int32, real, when

_BITS = 4
_BINS = 1 << _BITS
_KEY_BITS = 32
_HIGHEST = 0xFFFFFFFF


class Search:
    """The state of the search; the same in every thread of the workgroup."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.index_bits = max((row.vocab - 1).bit_length(), _BITS)
        self.sums = BinSums(row.gpu, _BINS + 1, row.thread)
        self.kept = Kept(row)
        self.ends = Local(2, "uint32")
        """The first and last place where what is looked for can be."""
        self.above, self.goal = Local(), Local()
        """The sum of weights past the last place, and what it has to reach."""
        self.active, self.token = Local(1, "int32"), Local(1, "int32")
        self.peak, self.peak_key, self.inverse = Local(), Local(1, "uint32"), Local()
        """Of a stage: the logit whose mass is 1, its image, and the inverse of the temperature."""
        self.token[0] = row.best
        self.ends[0], self.ends[1] = T.uint32(0), T.uint32(0)
        self.above[0], self.goal[0] = real(0), real(0)
        self.active[0] = T.int32(0)

    def emit(self) -> None:
        """Set `token`: the one drawn, or the row's best if it is greedy or without masses."""
        with T.serial(DRAW + 1) as i:
            stage = int32(i)
            self._begin(stage)
            with T.serial(self._passes(stage)) as digit:
                self._step(stage, int32(digit))
            with T.serial(self._drawn(self.kept.fits(stage))):
                self.kept.fit(stage)

    def _passes(self, stage: Expr) -> Expr:
        """How many a stage has; 0 if the row does without it.

        From the parameters of the row alone: these are read-only, at an index that all threads
        share, so WGSL takes a loop of so many turns for uniform, and barriers are allowed in it.
        """
        digits = T.Select(stage == DRAW, ceil_div(self.index_bits, _BITS), _KEY_BITS // _BITS)
        passes = T.Select(measures(stage), 1, digits)
        return self._drawn(T.Select(self.kept.wished(stage), passes, 0))

    def _drawn(self, passes: Expr) -> Expr:
        """None, of a greedy row."""
        return T.Select(self.row.wish["temperature"] > real(0), passes, 0)

    def _begin(self, stage: Expr) -> None:
        """Before a stage's first pass: any place is possible, if there are masses."""
        row, kept, top = self.row, self.kept, self.row.top_key
        with when(stage == EPSILON):
            kept.min_p()
        self.peak[0], self.peak_key[0], self.inverse[0] = row.top, top, real(1)
        with when(stage == DRAW):
            self.peak_key[0] = kept.ceiling[0]
            self.peak[0] = logit(bind(kept.ceiling[0]))
            self.inverse[0] = kept.inverse
        self.ends[0] = T.uint32(0)
        self.ends[1] = T.Select(stage == DRAW, T.uint32(row.vocab - 1), T.uint32(_HIGHEST))
        self.above[0] = real(0)
        self.active[0] = int32(tirx.all(top > T.uint32(NOTHING), top < T.uint32(INFINITY)))

    def _step(self, stage: Expr, digit: Expr) -> None:
        """One pass."""
        first_shift = T.Select(stage == DRAW, self.index_bits - _BITS, _KEY_BITS - _BITS)
        shift = bind(T.Cast("uint32", T.max(first_shift - digit * _BITS, 0)))
        values = Local(_BINS + 1)
        active = bind(self.active[0])
        with when(active != 0):
            for c in range(_BINS + 1):
                values[c] = real(0)
            with when(measures(stage)):
                self.kept.weigh(stage, values)
            with when(tirx.Not(measures(stage))):
                self._weigh(stage, shift, values)
        self.sums.emit(values, active != 0)
        with when(tirx.all(active != 0, measures(stage))):
            self.kept.conclude(stage, self.sums)
        with when(tirx.all(active != 0, tirx.Not(measures(stage)))):
            with when(digit == 0):
                self._aim(stage)
            self._narrow(stage, shift)

    def _weigh(self, stage: Expr, shift: Expr, values: Local) -> None:
        """This thread's sums of weights by digit, and its number of elements."""
        row = self.row
        low, high = bind(self.ends[0]), bind(self.ends[1])
        peak, peak_key, inverse = bind(self.peak[0]), bind(self.peak_key[0]), bind(self.inverse[0])
        draws = stage == DRAW
        begin, end = Local(1, "int32"), Local(1, "int32")
        begin[0], end[0] = T.int32(0), T.int32(row.vocab)
        with when(draws):
            begin[0] = T.max(row.vocab - 1 - int32(high), 0)
            end[0] = row.vocab - int32(low)

        def count(i: Expr, x: Expr, key: Expr) -> None:
            place = Local(1, "uint32")
            place[0] = T.Select(draws, T.Cast("uint32", row.vocab - 1 - i), key)
            with when(stage == TYPICAL):
                place[0] = T.uint32(_HIGHEST) - self.kept.distance(x)
            place = bind(place[0])
            with when(tirx.all(self.kept.has(key), place >= low, place <= high)):
                weight = Local()
                weight[0] = real(1)
                with when(stage != TOP_K):
                    weight[0] = row.mass(x, key, peak, peak_key, inverse)
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
        wish, share = row.wish, Local()
        share[0] = T.Select(stage == TOP_P, wish["top_p"], wish["uniform"])
        with when(stage == TYPICAL):
            share[0] = wish["typical_p"]
        self.goal[0] = T.Select(
            stage == TOP_K, T.Cast("float32", wish["top_k"]), bind(share[0] * total[0])
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
                tirx.all(stage == DRAW, above[0] == self.goal[0]),
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
            with when(stage == DRAW):
                self.token[0] = self.row.vocab - 1 - int32(low)
            with when(stage == TYPICAL):
                self.kept.reach[0] = T.uint32(_HIGHEST) - low
            with when(tirx.any(stage == TOP_K, stage == TOP_P)):
                self.kept.limit[0] = T.max(self.kept.limit[0], low)
            with when(stage != DRAW):
                # a digit's one element is found; masses do not tell how many there are in the new
                # digit, so for them the elements of the old one are counted
                held = T.Select(stage == TOP_K, count[0], self.sums.totals[_BINS])
                self.active[0] = int32(held > real(1))
        with when(digit[0] < 0):
            self.active[0] = T.int32(0)
