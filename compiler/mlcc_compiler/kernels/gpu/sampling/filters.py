"""Filter state of a row of logits, and the filters that need only sums.

The remaining logits lie between two limits, stored as keys. Except top-k, typical-p and top-p,
which search (see `search.py`), every filter is one pass: sums over the remaining logits, and a
threshold from them.
"""

from __future__ import annotations

import math

from mlcc.engine.batch.filters import FORBIDDEN
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import (
    EXP_UNDERFLOW,
    NO_KEY,
    BinSums,
    inverse_of,
    logit,
    ordered_bits,
)
from mlcc_compiler.kernels.gpu.sampling.row import Row
from mlcc_compiler.kernels.gpu.sampling.stages import (
    EPSILON,
    ETA,
    MEAN,
    MEASURES,
    MIN_P,
    NUCLEUS,
    SIGMA,
    TEMPERATURE,
    TYPICAL_ENDS,
    XTC,
    XTC_ENDS,
    among,
    uses_stage,
)
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, largest, real, when

_RAISING = (SIGMA, EPSILON, ETA)
_TINY = 1e-37  # its logarithm is a number, everywhere
_EVEN = 1e-30
_HIGHEST_KEY = 0xFFFFFFFF
_ROUNDING = 1e-6  # of a logit: more than adding a few numbers to it loses


class FilterState:
    """The same in every thread of the workgroup, except `ends`."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.limit, self.ceiling = Local(1, "uint32"), Local(1, "uint32")
        """Logits whose image is below the one or above the other are dropped."""
        self.centre, self.reach = Local(), Local(1, "uint32")
        """Of typical-p: the mean of the logits, and the bits of how far from it a logit may be."""
        self.edge = Local(1, "uint32")
        """Of XTC: images from here on are of top choices."""
        self.floor = Local(1, "uint32")
        """An image that what top-k or top-p looks for is not below."""
        self.temperature = Local()
        self.ends = Local(2, "uint32")
        """A thread's: the inverted lowest and the highest image of what typical-p or XTC leaves."""
        self.limit[0], self.ceiling[0] = T.uint32(NO_KEY + 1), row.top_key
        self.centre[0], self.reach[0] = real(0), T.uint32(_HIGHEST_KEY)
        self.edge[0], self.floor[0] = T.uint32(_HIGHEST_KEY), T.uint32(0)
        self.temperature[0] = row.parameters["temperature"]
        self.ends[0], self.ends[1] = T.uint32(0), T.uint32(0)

    def has(self, key: Expr) -> Expr:
        """Whether a logit of this key remains: a number, not NaN or -inf."""
        return tirx.all(key >= self.limit[0], key <= self.ceiling[0])

    @property
    def unfiltered(self) -> Expr:
        """Whether no filter has dropped anything."""
        row = self.row
        return tirx.all(self.limit[0] == T.uint32(NO_KEY + 1), self.ceiling[0] == row.top_key)

    @property
    def inverse(self) -> Expr:
        """1 / temperature."""
        return inverse_of(bind(self.temperature[0]))

    def distance(self, x: Expr) -> Expr:
        """The bits of |x - centre|: they order as the distances do."""
        apart = bind(T.reinterpret("uint32", x - self.centre[0]))
        return bind(T.bitwise_and(apart, T.uint32(0x7FFFFFFF)))

    def measure(self, stage: Expr, x: Expr, weight: Expr, values: Local) -> None:
        """Add a remaining logit to this thread's sums: of the mass, of the mass times the distance
        of the logit below the largest, of its square, and of the choices. For standard deviations,
        each choice has the mass 1."""
        below, mass, first = Local(), Local(), Local()
        choice = bind(T.Cast("float32", x > real(FORBIDDEN)))
        below[0], mass[0] = x - self.row.top, weight
        with when(stage == SIGMA):
            mass[0] = choice
        with when(stage != SIGMA):
            below[0] = T.max(below[0], real(EXP_UNDERFLOW))
        first[0] = real(0)
        with when(mass[0] > real(0)):
            first[0] = mass[0] * below[0]
        values[0] = values[0] + mass[0]
        values[1] = values[1] + first[0]
        with when(first[0] < real(0)):
            values[2] = values[2] + first[0] * below[0]
        values[3] = values[3] + choice

    def widen(self, stage: Expr, x: Expr, key: Expr) -> None:
        """Extend this thread's ends to a logit that typical-p or XTC keeps: their tests are not on
        keys alone."""
        near = tirx.all(stage == TYPICAL_ENDS, self.distance(x) <= self.reach[0])
        likely = tirx.all(stage == XTC_ENDS, key >= self.edge[0])
        with when(tirx.any(near, likely)):
            self.ends[0] = T.max(self.ends[0], T.bitwise_not(key))
            self.ends[1] = T.max(self.ends[1], key)

    def fit(self, stage: Expr) -> None:
        """Set the limits to all threads' ends, which are reset. Contains barriers."""
        lowest = bind(T.bitwise_not(self.row.over_threads(bind(self.ends[0]), largest)))
        highest = self.row.over_threads(bind(self.ends[1]), largest)
        with when(tirx.all(highest > T.uint32(0), stage == TYPICAL_ENDS)):
            self.limit[0], self.ceiling[0] = lowest, highest
        with when(tirx.all(highest > T.uint32(0), stage == XTC_ENDS)):
            self.ceiling[0] = lowest
        self.ends[0], self.ends[1] = T.uint32(0), T.uint32(0)

    def finish_stage(self, stage: Expr, sums: BinSums, active: Expr) -> None:
        """Evaluate a stage without search from its sums, if it has any."""
        row, edge = self.row, Local()
        edge[0] = real(0)
        with when(tirx.all(active != 0, uses_stage(row, stage), among(stage, *MEASURES))):
            self._of_sums(stage, sums, edge)
        with when(stage == MIN_P):
            share = bind(T.min(row.parameters["min_p"], real(1)))
            edge[0] = logit(bind(self.ceiling[0])) + T.log(T.max(share, real(_TINY)))
        with when(stage == NUCLEUS):
            edge[0] = self._nucleus()
        key = bind(T.min(ordered_bits(bind(edge[0])), self.ceiling[0]))
        self._use(stage, key, active)

    def _of_sums(self, stage: Expr, sums: BinSums, edge: Local) -> None:
        """Set the threshold of a one-pass filter; the centre of typical-p; the temperature."""
        parameters, top = self.row.parameters, self.row.top
        total, first, second, choices = (bind(sums.totals[i]) for i in range(4))
        total = bind(T.max(total, real(_TINY)))
        mean, log_total = bind(first / total), bind(T.log(total))
        entropy = bind(log_total - mean)
        with when(stage == SIGMA):
            variance = bind(second / total - mean * mean)
            deviation = T.sqrt(bind(T.max(variance, real(0))))
            edge[0] = top - parameters["top_n_sigma"] * deviation
        with when(stage == MEAN):
            self.centre[0] = top + mean
        with when(among(stage, EPSILON, ETA, XTC)):
            share, least = Local(), Local()
            share[0] = parameters["epsilon"]
            with when(stage == ETA):
                share[0] = parameters["eta"]
            with when(stage == XTC):
                share[0] = parameters["xtc"]
            least[0] = T.log(T.max(share[0], real(_TINY)))
            with when(stage == ETA):
                least[0] = T.min(least[0], least[0] * real(0.5) - entropy)
            edge[0] = top + (least[0] + log_total)
        with when(tirx.all(stage == TEMPERATURE, choices > real(1))):
            self._set_temperature(entropy / T.log(choices))

    def _nucleus(self) -> Expr:
        """A lower bound of top-p's threshold: if all logits below it were as large as it is, they
        would have less than the mass that top-p drops. Halved, to allow for rounding."""
        row = self.row
        dropped = bind(real(1) - T.min(T.max(row.parameters["top_p"], real(0)), real(1)))
        share = bind(T.log(T.max(dropped * real(0.5), real(1e-30))) + T.log(row.total))
        slack = bind(T.max(row.top, -row.top) * real(_ROUNDING))
        return row.top + (share - real(math.log(row.vocab))) - slack

    def _use(self, stage: Expr, key: Expr, active: Expr) -> None:
        """Drop the logits below the threshold with this key; never the largest."""
        parameters, raised = (
            self.row.parameters,
            tirx.all(uses_stage(self.row, stage), among(stage, *_RAISING)),
        )
        with when(active != 0):
            with when(tirx.any(raised, tirx.all(stage == MIN_P, parameters["min_p"] > real(0)))):
                self.limit[0] = T.max(self.limit[0], key)
            with when(tirx.all(stage == XTC, parameters["xtc"] > real(0))):
                self.edge[0] = key
            with when(stage == NUCLEUS):
                self.floor[0] = T.Select(self.unfiltered, key, T.uint32(0))

    def _set_temperature(self, evenness: Expr) -> None:
        parameters = self.row.parameters
        even = bind(T.min(T.max(evenness, real(_EVEN)), real(1)))
        power = bind(T.exp(bind(T.log(even) * parameters["dynatemp_exponent"])))
        base, reach = parameters["temperature"], parameters["dynatemp_range"]
        low = bind(T.max(base - reach, real(0)))
        self.temperature[0] = low + (base + reach - low) * power
