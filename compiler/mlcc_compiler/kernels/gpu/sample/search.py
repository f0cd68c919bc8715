"""The search by which sampling finds thresholds and tokens; see `sample` for what it looks for."""

from __future__ import annotations

import math

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sample.kept import (
    DRAW,
    EPSILON,
    FLOOR,
    SLICE,
    TOP_K,
    TOP_P,
    TYPICAL,
    Kept,
    measures,
)
from mlcc_compiler.kernels.gpu.sample.parts import (
    INFINITY,
    NOTHING,
    BinSums,
    exponential,
    image,
    logit,
)
from mlcc_compiler.kernels.gpu.sample.row import Row
from mlcc_compiler.kernels.gpu.sample.slices import HEATED
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, int32, real, when

_BITS = 4
_BINS = 1 << _BITS
_KEY_BITS = 32
_HIGHEST = 0xFFFFFFFF
_ROUNDING = 1e-6  # of a logit: more than adding a few numbers to it loses


class Search:
    """The state of the search; the same in every thread of the workgroup."""

    def __init__(self, row: Row) -> None:
        self.row, self.live, self.slices = row, row.live, row.slices
        self.index_bits = max((row.vocab - 1).bit_length(), _BITS)
        self.sums = BinSums(row.gpu, _BINS + 1, row.thread)
        self.kept = Kept(row)
        self.ends, self.shift = Local(2, "uint32"), Local(1, "uint32")
        """The first and last place where what is looked for can be, and where the next digit is."""
        self.above, self.goal, self.whole = Local(), Local(), Local()
        """The sum of weights past the last place, what it has to reach, and the mass of all places
        where the first of them is not 0."""
        self.active, self.token = Local(1, "int32"), Local(1, "int32")
        self.floor, self.enough = Local(1, "uint32"), Local(1, "int32")
        """Of FLOOR: an image that top-k's is not below, and whether there are slices enough."""
        self.sliced = Local(1, "int32")
        """Whether SLICE finds the slice of the token."""
        self.peak, self.peak_key, self.inverse = Local(), Local(1, "uint32"), Local()
        """Of a stage: the logit whose mass is 1, its image, and the inverse of the temperature."""
        self.token[0] = row.best
        self.ends[0], self.ends[1], self.shift[0] = (T.uint32(0) for _ in range(3))
        self.above[0], self.goal[0], self.whole[0] = (real(0) for _ in range(3))
        self.active[0], self.enough[0], self.sliced[0] = (T.int32(0) for _ in range(3))
        self.floor[0] = T.uint32(NOTHING)

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
        slice_bits = (self.slices.count - 1).bit_length()
        digits = T.Select(stage == SLICE, ceil_div(slice_bits, _BITS), digits)
        passes = T.Select(measures(stage), 1, digits)
        return self._drawn(T.Select(self.kept.wished(stage), passes, 0))

    def _drawn(self, passes: Expr) -> Expr:
        """None, of a greedy row."""
        return T.Select(self.row.wish["temperature"] > real(0), passes, 0)

    def _begin(self, stage: Expr) -> None:
        """Before a stage's first pass: where to look, if there are masses."""
        row, kept, top = self.row, self.kept, self.row.top_key
        finite = tirx.all(top > T.uint32(NOTHING), top < T.uint32(INFINITY))
        draws = tirx.any(stage == SLICE, stage == DRAW)
        with when(stage == EPSILON):
            kept.min_p()
        self.peak[0], self.peak_key[0], self.inverse[0] = row.top, top, real(1)
        with when(draws):
            self.peak_key[0] = kept.ceiling[0]
            self.peak[0] = logit(bind(kept.ceiling[0]))
            self.inverse[0] = kept.inverse
        with when(stage == SLICE):
            plain = tirx.all(finite, kept.untouched, row.wish["dynatemp_range"] <= real(0))
            self.sliced[0] = int32(plain) if self.slices.count > 1 else T.int32(0)
        goes_on = bind(T.Select(stage == DRAW, self.sliced[0], T.int32(0)))
        with when(goes_on == 0):
            self._begin_anywhere(stage)
        with when(goes_on != 0):
            self._begin_in_slice()
        self.active[0] = int32(tirx.all(finite, tirx.any(stage != SLICE, self.sliced[0] != 0)))

    def _begin_anywhere(self, stage: Expr) -> None:
        """Look in all that filters have left, but for what cannot be it."""
        row, kept = self.row, self.kept
        self.above[0], self.whole[0] = real(0), real(0)
        by_key = tirx.any(stage == FLOOR, stage == TOP_K, stage == TOP_P)
        self.ends[0] = T.Select(by_key, kept.limit[0], T.uint32(0))
        self.ends[1] = T.Select(by_key, kept.ceiling[0], T.uint32(_HIGHEST))
        with when(stage == TOP_K):
            self.ends[0] = T.max(self.ends[0], self.floor[0])
        with when(tirx.all(stage == TOP_P, kept.untouched)):
            self.whole[0] = row.total
            self.ends[0] = T.max(self.ends[0], self._nucleus_floor())
        with when(stage == SLICE):
            self.ends[1] = T.uint32(self.slices.count - 1)
        with when(stage == DRAW):
            self.ends[1] = T.uint32(row.vocab - 1)
        width = bind(self.ends[1] - self.ends[0])
        self.shift[0] = T.uint32(0)
        for shift in range(_BITS, _KEY_BITS, _BITS):
            with when(T.shift_right(width, T.uint32(shift)) != T.uint32(0)):
                self.shift[0] = T.uint32(shift)
        with when(stage == DRAW):
            self.shift[0] = T.uint32(self.index_bits - _BITS)

    def _nucleus_floor(self) -> Expr:
        """An image that top-p's is not below: were all logits below it as large as it is, they had
        less than the mass that top-p drops. Halved, for what rounding may do."""
        row = self.row
        dropped = bind(real(1) - T.min(T.max(row.wish["top_p"], real(0)), real(1)))
        share = bind(T.log(T.max(dropped * real(0.5), real(1e-30))) + T.log(row.total))
        slack = bind(T.max(row.top, -row.top) * real(_ROUNDING))
        key = image(bind(row.top + (share - real(math.log(row.vocab))) - slack))
        return bind(T.min(key, row.top_key))

    def _begin_in_slice(self) -> None:
        """Go on in the slice that was found: its sum is part of the goal's, and so is what lies
        before it."""
        size, vocab = self.slices.size, self.row.vocab
        first = bind((self.slices.count - 1 - int32(self.ends[0])) * size)
        self.ends[0] = T.Cast("uint32", T.max(vocab - first - size, 0))
        self.ends[1] = T.Cast("uint32", vocab - 1 - first)
        self.shift[0] = T.uint32(size.bit_length() - 1 - _BITS)

    def _step(self, stage: Expr, digit: Expr) -> None:
        """One pass."""
        kept, vocab = self.kept, self.row.vocab
        values = Local(_BINS + 1)
        shift, active = bind(self.shift[0]), bind(self.active[0])
        low, high = bind(self.ends[0]), bind(self.ends[1])
        by_key = tirx.any(stage == TOP_K, stage == TOP_P)
        begin, end = Local(1, "int32"), Local(1, "int32")
        begin[0], end[0] = T.int32(0), T.int32(vocab)
        with when(stage == DRAW):
            begin[0] = T.max(vocab - 1 - int32(high), 0)
            end[0] = vocab - int32(low)
        least = bind(T.Select(by_key, T.max(low, kept.limit[0]), kept.limit[0]))
        self.live.choose(least, bind(begin[0]), bind(end[0]))
        with when(active != 0):
            for c in range(_BINS + 1):
                values[c] = real(0)
            with when(measures(stage)):
                kept.weigh(stage, values)
            with when(tirx.any(stage == FLOOR, stage == SLICE)):
                self._weigh_slices(stage, shift, values)
            with when(tirx.Not(tirx.any(measures(stage), stage == FLOOR, stage == SLICE))):
                self._weigh(stage, shift, values)
        self.sums.emit(values, active != 0)
        with when(tirx.all(active != 0, measures(stage))):
            kept.conclude(stage, self.sums)
        with when(tirx.all(active != 0, tirx.Not(measures(stage)))):
            with when(tirx.all(digit == 0, tirx.any(stage != DRAW, self.sliced[0] == 0))):
                self._aim(stage)
            self._narrow(stage, shift)

    def _weigh(self, stage: Expr, shift: Expr, values: Local) -> None:
        """This thread's sums of weights by digit, and its number of elements."""
        row = self.row
        peak, peak_key, inverse = bind(self.peak[0]), bind(self.peak_key[0]), bind(self.inverse[0])

        def count(i: Expr, x: Expr, key: Expr) -> None:
            place = Local(1, "uint32")
            place[0] = T.Select(stage == DRAW, T.Cast("uint32", row.vocab - 1 - i), key)
            with when(stage == TYPICAL):
                place[0] = T.uint32(_HIGHEST) - self.kept.distance(x)
            weight = Local()
            weight[0] = real(1)
            with when(tirx.all(self.kept.has(key), stage != TOP_K)):
                weight[0] = row.mass(x, key, peak, peak_key, inverse)
            with when(self.kept.has(key)):
                self._count(bind(place[0]), bind(weight[0]), shift, values)

        with row.live_blocks() as each:
            each(count)

    def _weigh_slices(self, stage: Expr, shift: Expr, values: Local) -> None:
        """The same with slices for elements: by their largest logits, or in order by their mass."""
        peak, inverse = bind(self.peak[0]), bind(self.inverse[0])
        with T.serial(self.live.own) as j:
            key = bind(self.live.keys[j])
            with when(tirx.all(key > T.uint32(NOTHING), self.kept.has(key))):
                place, weight = Local(1, "uint32"), Local()
                place[0], weight[0] = key, real(1)
                with when(stage == SLICE):
                    place[0] = T.Cast("uint32", self.slices.count - 1 - self.live.place(j))
                    share = exponential(bind((logit(key) - peak) * inverse))
                    weight[0] = self.live.sum_of(HEATED, j) * share
                self._count(bind(place[0]), bind(weight[0]), shift, values)

    def _count(self, place: Expr, weight: Expr, shift: Expr, values: Local) -> None:
        """Add an element to its digit's sum, if that is where is looked."""
        low = bind(self.ends[0])
        with when(tirx.all(place >= low, place <= self.ends[1])):
            digit = bind(T.shift_right(place - low, shift))
            for c in range(_BINS):
                values[c] = values[c] + T.Select(digit == T.uint32(c), weight, real(0))
            values[_BINS] = values[_BINS] + real(1)

    def _aim(self, stage: Expr) -> None:
        """Set the goal, as the first pass has seen the whole mass, or one before it."""
        total = Local()
        total[0] = real(0)
        with T.serial(_BINS) as i:
            total[0] = total[0] + self.sums.totals[_BINS - 1 - int32(i)]
        counts = tirx.any(stage == FLOOR, stage == TOP_K)
        wish, share = self.row.wish, Local()
        share[0] = T.Select(stage == TOP_P, wish["top_p"], wish["uniform"])
        with when(stage == TYPICAL):
            share[0] = wish["typical_p"]
        mass = bind(T.Select(self.whole[0] > real(0), self.whole[0], total[0]))
        self.goal[0] = T.Select(counts, T.Cast("float32", wish["top_k"]), bind(share[0] * mass))
        self.enough[0] = int32(total[0] >= self.goal[0])

    def _narrow(self, stage: Expr, shift: Expr) -> None:
        """Go on in the lowest digit that has weight and that the sum above it leaves short of the
        goal; in drawing, a sum that equals the goal is short of it. In the highest with weight, if
        the goal is 0."""
        above, before, count = Local(), Local(), Local()
        digit = Local(1, "int32")
        draws = tirx.any(stage == SLICE, stage == DRAW)
        above[0], before[0], count[0] = self.above[0], self.above[0], real(0)
        digit[0] = T.int32(-1)
        with T.serial(_BINS) as i:
            c = bind(_BINS - 1 - int32(i))
            weight = bind(self.sums.totals[c])
            short = tirx.any(
                above[0] < self.goal[0],
                tirx.all(draws, above[0] == self.goal[0]),
                digit[0] < 0,
            )
            with when(tirx.all(weight > real(0), short)):
                digit[0], before[0], count[0] = c, above[0], weight
            above[0] = above[0] + weight
        with when(digit[0] >= 0):
            self.above[0] = before[0]
            low = bind(self.ends[0] + T.shift_left(T.Cast("uint32", digit[0]), shift))
            last = bind(T.shift_left(T.uint32(1), shift) - T.uint32(1))
            self.ends[1] = low + T.min(last, self.ends[1] - low)
            self.ends[0] = low
            self._found(stage, low)
            with when(tirx.Not(draws)):
                # a digit's one element is found; masses do not tell how many there are in the new
                # digit, so for them the elements of the old one are counted
                counts = tirx.any(stage == FLOOR, stage == TOP_K)
                held = T.Select(counts, count[0], self.sums.totals[_BINS])
                self.active[0] = int32(held > real(1))
        with when(tirx.any(digit[0] < 0, shift == T.uint32(0))):
            self.active[0] = T.int32(0)
        self.shift[0] = T.Select(shift > T.uint32(_BITS), shift - T.uint32(_BITS), T.uint32(0))

    def _found(self, stage: Expr, low: Expr) -> None:
        """What a stage makes of the first place where what it looks for can be."""
        kept = self.kept
        with when(stage == DRAW):
            self.token[0] = self.row.vocab - 1 - int32(low)
        with when(tirx.all(stage == FLOOR, self.enough[0] != 0)):
            self.floor[0] = low
        with when(stage == TYPICAL):
            kept.reach[0] = T.uint32(_HIGHEST) - low
        with when(tirx.any(stage == TOP_K, stage == TOP_P)):
            kept.limit[0] = T.max(kept.limit[0], low)
