"""The digit search for thresholds and tokens; `sample.py` describes it."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sampling.filters import FilterState
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import INFINITY, NO_KEY, BinSums, logit
from mlcc_compiler.kernels.gpu.sampling.partial import TEMPERED
from mlcc_compiler.kernels.gpu.sampling.row import Row
from mlcc_compiler.kernels.gpu.sampling.stages import (
    BITS,
    BY_INDEX,
    BY_KEY,
    COUNTS,
    DRAW,
    ENDS,
    FLOOR,
    MEASURES,
    SEARCHES,
    SLICE,
    SLICE_STAGES,
    TOP_K,
    TOP_P,
    TYPICAL,
    among,
    index_bits,
    passes,
)
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, real, when

_BINS = 1 << BITS
_KEY_BITS = 32
_HIGHEST = 0xFFFFFFFF


class Search:
    """The state of the search; the same in every thread of the workgroup."""

    def __init__(self, row: Row) -> None:
        self.row, self.candidates, self.slices = row, row.candidates, row.slices
        self.sums = BinSums(row.gpu, _BINS + 1, row.thread)
        self.filter_state = FilterState(row)
        self.ends, self.shift = Local(2, "uint32"), Local(1, "uint32")
        """The first and last place where what is looked for can be, and where the next digit is."""
        self.above, self.goal, self.whole = Local(), Local(), Local()
        """The sum of weights past the last place, what it has to reach, and the mass of all places
        where the first of them is not 0."""
        self.active, self.token = Local(1, "int32"), Local(1, "int32")
        self.enough = Local(1, "int32")
        """Whether the goal is within what there is."""
        self.sliced = Local(1, "int32")
        """Whether SLICE finds the slice of the token."""
        self.last = Local(1, "int32")
        """The index whose place is 0, where places are indices."""
        self.peak, self.peak_key, self.inverse = Local(), Local(1, "uint32"), Local()
        """Of a stage: the logit whose mass is 1, its image, and the inverse of the temperature."""
        self.token[0] = row.best
        self.ends[0], self.ends[1], self.shift[0] = (T.uint32(0) for _ in range(3))
        self.above[0], self.goal[0], self.whole[0] = (real(0) for _ in range(3))
        self.active[0], self.enough[0], self.sliced[0] = (T.int32(0) for _ in range(3))

    def emit(self) -> None:
        """Set `token`: the drawn one, or the row's best if it is greedy or without masses."""
        with T.serial(DRAW + 1) as i:
            stage = int32(i)
            self._begin(stage)
            with T.serial(passes(self.row, stage)) as digit:
                self._pass(stage, int32(digit))
            with T.serial(T.Select(among(stage, *ENDS), passes(self.row, stage), 0)):
                self.filter_state.fit(stage)
            self.filter_state.finish_stage(stage, self.sums, bind(self.active[0]))

    def _begin(self, stage: Expr) -> None:
        """Before a stage's first pass: set the search range, if there are masses."""
        row, filter_state, top = self.row, self.filter_state, self.row.top_key
        finite = bind(int32(tirx.all(top > T.uint32(NO_KEY), top < T.uint32(INFINITY))))
        self.active[0] = finite
        self.peak_key[0], self.inverse[0] = top, real(1)
        with when(among(stage, *BY_INDEX)):
            self.peak_key[0] = filter_state.ceiling[0]
            self.inverse[0] = filter_state.inverse
        self.peak[0] = logit(bind(self.peak_key[0]))
        self.last[0] = T.int32(row.vocab - 1)
        with when(stage == SLICE):
            self.last[0] = T.int32(self.slices.count - 1)
            plain = tirx.all(filter_state.unfiltered, row.parameters["dynatemp_range"] <= real(0))
            several = T.int32(1 if self.slices.count > 1 else 0)
            self.sliced[0] = T.Select(plain, several * finite, T.int32(0))
            self.active[0] = self.sliced[0]
        goes_on = bind(T.Select(stage == DRAW, self.sliced[0], T.int32(0)))
        with when(goes_on == 0):
            self._begin_anywhere(stage)
        with when(goes_on != 0):
            self._begin_in_slice()

    def _begin_anywhere(self, stage: Expr) -> None:
        """Search all remaining logits that can qualify."""
        filter_state = self.filter_state
        self.above[0], self.whole[0] = real(0), real(0)
        self.ends[0], self.ends[1] = T.uint32(0), T.uint32(_HIGHEST)
        with when(among(stage, *BY_KEY)):
            self.ends[0] = T.max(filter_state.limit[0], filter_state.floor[0])
            self.ends[1] = filter_state.ceiling[0]
        with when(tirx.all(stage == TOP_P, filter_state.floor[0] != T.uint32(0))):
            self.whole[0] = self.row.total
        with when(among(stage, *BY_INDEX)):
            self.ends[1] = T.Cast("uint32", self.last[0])
        width = bind(self.ends[1] - self.ends[0])
        self.shift[0] = T.uint32(0)
        with T.serial(1, _KEY_BITS // BITS) as i:
            shift = bind(T.Cast("uint32", int32(i) * BITS))
            with when(T.shift_right(width, shift) != T.uint32(0)):
                self.shift[0] = shift
        with when(stage == DRAW):
            self.shift[0] = T.uint32(index_bits(self.row) - BITS)

    def _begin_in_slice(self) -> None:
        """Continue in the slice that was found: the goal is reduced by the sums before it."""
        size, vocab = self.slices.size, self.row.vocab
        first = bind((self.slices.count - 1 - int32(self.ends[0])) * size)
        self.ends[0] = T.Cast("uint32", T.max(vocab - first - size, 0))
        self.ends[1] = T.Cast("uint32", vocab - 1 - first)
        self.shift[0] = T.uint32(size.bit_length() - 1 - BITS)

    def _pass(self, stage: Expr, digit: Expr) -> None:
        """Read the candidates once, and continue in the digit that was found."""
        values = Local(_BINS + 1)
        active = bind(self.active[0])
        self._list(stage)
        with when(active != 0):
            for c in range(_BINS + 1):
                values[c] = real(0)
            self._weigh(stage, values)
        self.sums.emit(values, active != 0)
        with when(tirx.all(active != 0, among(stage, *SEARCHES))):
            with when(tirx.all(digit == 0, tirx.any(stage != DRAW, self.sliced[0] == 0))):
                self._set_goal(stage)
            self._narrow(stage)

    def _list(self, stage: Expr) -> None:
        """List the slices with remaining logits in the search range."""
        begin, end, least = Local(1, "int32"), Local(1, "int32"), Local(1, "uint32")
        begin[0], end[0] = T.int32(0), T.int32(self.row.vocab)
        least[0] = self.filter_state.limit[0]
        with when(stage == DRAW):
            begin[0] = T.max(self.last[0] - int32(self.ends[1]), 0)
            end[0] = self.last[0] + 1 - int32(self.ends[0])
        with when(among(stage, TOP_K, TOP_P)):
            least[0] = T.max(least[0], self.ends[0])
        self.candidates.select(bind(least[0]), bind(begin[0]), bind(end[0]))

    def _weigh(self, stage: Expr, values: Local) -> None:
        """This thread's sums over remaining logits: by digit, with the number of elements last; or
        those of a stage without search."""
        row, filter_state, low = self.row, self.filter_state, bind(self.ends[0])
        peak, peak_key, inverse = bind(self.peak[0]), bind(self.peak_key[0]), bind(self.inverse[0])
        shift, high, last = bind(self.shift[0]), bind(self.ends[1]), bind(self.last[0])

        def element(index: Expr, x: Expr, key: Expr) -> None:
            weight, place = Local(), Local(1, "uint32")
            weight[0], place[0] = real(1), key
            with when(tirx.Not(among(stage, *COUNTS))):
                weight[0] = row.mass(x, key, peak, peak_key, inverse)
            with when(stage == SLICE):
                weight[0] = weight[0] * self.candidates.sum_of(TEMPERED, index)
            with when(among(stage, *MEASURES)):
                filter_state.measure(stage, x, bind(weight[0]), values)
            with when(among(stage, *ENDS)):
                filter_state.widen(stage, x, key)
            with when(stage == TYPICAL):
                place[0] = T.uint32(_HIGHEST) - filter_state.distance(x)
            with when(among(stage, *BY_INDEX)):
                place[0] = T.Cast("uint32", last - index)
            among_places = tirx.all(place[0] >= low, place[0] <= high)
            with when(tirx.all(among(stage, *SEARCHES), among_places)):
                digit = bind(T.shift_right(place[0] - low, shift))
                for c in range(_BINS):
                    values[c] = values[c] + T.Cast("float32", digit == T.uint32(c)) * weight[0]
                values[_BINS] = values[_BINS] + real(1)

        def left(index: Expr, x: Expr, key: Expr) -> None:
            with when(filter_state.has(key)):
                element(index, x, key)

        row.each(among(stage, *SLICE_STAGES), left)

    def _set_goal(self, stage: Expr) -> None:
        """Set the goal, once the first pass has seen the whole mass."""
        total = Local()
        total[0] = real(0)
        with T.serial(_BINS) as i:
            total[0] = total[0] + self.sums.totals[_BINS - 1 - int32(i)]
        parameters, share, mass = self.row.parameters, Local(), Local()
        share[0], mass[0] = parameters["uniform"], total[0]
        with when(self.whole[0] > real(0)):
            mass[0] = self.whole[0]
        with when(stage == TYPICAL):
            share[0] = parameters["typical_p"]
        with when(stage == TOP_P):
            share[0] = parameters["top_p"]
        with when(among(stage, *COUNTS)):
            share[0], mass[0] = T.Cast("float32", parameters["top_k"]), real(1)
        self.goal[0] = share[0] * mass[0]
        self.enough[0] = int32(total[0] >= self.goal[0])

    def _narrow(self, stage: Expr) -> None:
        """Continue in the lowest digit that has weight and whose sum above is less than the goal;
        in drawing, a sum equal to the goal counts as less. In the highest with weight, if the goal
        is 0."""
        above, before, count = Local(), Local(), Local()
        digit, shift = Local(1, "int32"), bind(self.shift[0])
        draws = among(stage, *BY_INDEX)
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
            width = bind(T.shift_left(T.uint32(1), shift) - T.uint32(1))
            self.ends[1] = low + T.min(width, self.ends[1] - low)
            self.ends[0] = low
            self._finish_search(stage, low)
            with when(tirx.Not(among(stage, *COUNTS))):
                # a digit's one element is found; masses do not tell how many there are in the new
                # digit, so for them the elements of the old one are counted
                count[0] = self.sums.totals[_BINS]
            with when(tirx.all(tirx.Not(draws), count[0] <= real(1))):
                self.active[0] = T.int32(0)
        with when(tirx.any(digit[0] < 0, shift == T.uint32(0))):
            self.active[0] = T.int32(0)
        self.shift[0] = T.max(shift, T.uint32(BITS)) - T.uint32(BITS)

    def _finish_search(self, stage: Expr, low: Expr) -> None:
        """Apply a stage's result: the first place where its target can be."""
        filter_state = self.filter_state
        with when(stage == DRAW):
            self.token[0] = self.last[0] - int32(low)
        with when(tirx.all(stage == FLOOR, self.enough[0] != 0)):
            filter_state.floor[0] = low
        with when(stage == TYPICAL):
            filter_state.reach[0] = T.uint32(_HIGHEST) - low
        with when(among(stage, TOP_K, TOP_P)):
            filter_state.limit[0] = T.max(filter_state.limit[0], low)
