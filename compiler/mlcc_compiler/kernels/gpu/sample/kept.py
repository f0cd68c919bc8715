"""What filters have left of a row of logits, and what those that need only sums make of it.

What is left lies between two logits, kept by their images. Beside top-k, typical-p and top-p, which
search (see `search`), every filter is one pass: sums over what is left, a threshold from them.
"""

from __future__ import annotations

from mlcc.engine.filters import FORBIDDEN
from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sample.parts import NOTHING, BinSums, image, logit
from mlcc_compiler.kernels.gpu.sample.row import Row
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, largest, real, when

SIGMA, TOP_K, MEAN, TYPICAL, TOP_P, EPSILON, ETA, XTC, HEAT, DRAW = range(10)
"""The stages, in order: filters (`mlcc.engine.filters`), of which typical-p has two."""
_SEARCHES = (TOP_K, TYPICAL, TOP_P, DRAW)
_VANISHES = -104.0  # e to this is 0 in float32
_TINY = 1e-37  # its logarithm is a number, everywhere
_EVEN = 1e-30
_LEAST_TEMPERATURE = 1e-36  # its inverse is finite
_HIGHEST_KEY = 0xFFFFFFFF


def measures(stage: Expr) -> Expr:
    """Whether a stage is one pass that adds up, not a search."""
    return tirx.all(*(stage != search for search in _SEARCHES))


class Kept:
    """The same in every thread of the workgroup."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.limit, self.ceiling = Local(1, "uint32"), Local(1, "uint32")
        """Logits whose image is below the one or above the other are dropped."""
        self.centre, self.reach = Local(), Local(1, "uint32")
        """Of typical-p: the mean of the logits, and the bits of how far from it a logit may be."""
        self.edge = Local(1, "uint32")
        """Of XTC: images from here on are of top choices."""
        self.temperature = Local()
        self.limit[0], self.ceiling[0] = T.uint32(NOTHING), row.top_key
        self.centre[0], self.reach[0] = real(0), T.uint32(_HIGHEST_KEY)
        self.edge[0] = T.uint32(_HIGHEST_KEY)
        self.temperature[0] = row.wish["temperature"]

    def wished(self, stage: Expr) -> Expr:
        """Whether a row has a stage, from its parameters alone. See `search` why."""
        row, wish, zero, one = self.row, self.row.wish, real(0), real(1)
        return tirx.any(
            tirx.all(stage == SIGMA, wish["top_n_sigma"] > zero),
            tirx.all(stage == TOP_K, wish["top_k"] > 0, wish["top_k"] < row.vocab),
            tirx.all(tirx.any(stage == MEAN, stage == TYPICAL), wish["typical_p"] < one),
            tirx.all(stage == TOP_P, wish["top_p"] < one),
            tirx.all(stage == EPSILON, wish["epsilon"] > zero),
            tirx.all(stage == ETA, wish["eta"] > zero),
            tirx.all(stage == XTC, wish["xtc"] > zero),
            tirx.all(stage == HEAT, wish["dynatemp_range"] > zero),
            stage == DRAW,
        )

    def has(self, key: Expr) -> Expr:
        """Whether a logit of this image is left."""
        return tirx.all(key >= self.limit[0], key <= self.ceiling[0])

    def distance(self, x: Expr) -> Expr:
        """The bits of how far x is from the centre: they order as the distances do."""
        apart = bind(T.reinterpret("uint32", x - self.centre[0]))
        return bind(T.bitwise_and(apart, T.uint32(0x7FFFFFFF)))

    def min_p(self) -> None:
        """Drop what is less likely than a share of the likeliest that is left."""
        share = bind(T.min(self.row.wish["min_p"], real(1)))
        with when(share > real(0)):
            self._raise(logit(bind(self.ceiling[0])) + T.log(T.max(share, real(_TINY))))

    def weigh(self, stage: Expr, values: Local) -> None:
        """This thread's sums: of the mass, of the mass times how far a logit is below the largest,
        of its square, and of the choices. For standard deviations, each choice has the mass 1."""
        row = self.row

        def sum_up(_: Expr, x: Expr, key: Expr) -> None:
            with when(tirx.all(key > T.uint32(NOTHING), self.has(key))):
                choice = bind(T.Select(x > real(FORBIDDEN), real(1), real(0)))
                below, weight = Local(), Local()
                below[0], weight[0] = x - row.top, choice
                with when(stage != SIGMA):
                    below[0] = T.max(below[0], real(_VANISHES))
                    weight[0] = row.mass(x, key, row.top, row.top_key, real(1))
                first = bind(T.Select(weight[0] > real(0), weight[0] * below[0], real(0)))
                values[0] = values[0] + weight[0]
                values[1] = values[1] + first
                values[2] = values[2] + T.Select(first < real(0), first * below[0], real(0))
                values[3] = values[3] + choice

        with row.blocks(T.int32(0), T.int32(row.vocab)) as each:
            each(sum_up)

    def conclude(self, stage: Expr, sums: BinSums) -> None:
        """What a stage makes of its sums."""
        wish, top = self.row.wish, self.row.top
        total, first, second, choices = (bind(sums.totals[i]) for i in range(4))
        total = bind(T.max(total, real(_TINY)))
        mean = bind(first / total)
        log_total = bind(T.log(total))
        entropy = bind(log_total - mean)
        with when(stage == SIGMA):
            variance = bind(second / total - mean * mean)
            deviation = T.sqrt(bind(T.max(variance, real(0))))
            self._raise(top - wish["top_n_sigma"] * deviation)
        with when(stage == MEAN):
            self.centre[0] = top + mean
        with when(stage == EPSILON):
            self._raise(top + (T.log(T.max(wish["epsilon"], real(_TINY))) + log_total))
        with when(stage == ETA):
            eta = bind(T.log(T.max(wish["eta"], real(_TINY))))
            least = bind(T.min(eta, eta * real(0.5) - entropy))
            self._raise(top + (least + log_total))
        with when(stage == XTC):
            share = T.log(T.max(wish["xtc"], real(_TINY)))
            self.edge[0] = image(bind(top + (share + log_total)))
        with when(tirx.all(stage == HEAT, choices > real(1))):
            self._heat(entropy / T.log(choices))

    def fit(self, stage: Expr) -> None:
        """Find the ends of what typical-p and XTC leave: their tests are none of images alone.
        Contains barriers."""
        low, high = Local(1, "uint32"), Local(1, "uint32")
        low[0], high[0] = T.uint32(0), T.uint32(0)

        def widen(_: Expr, x: Expr, key: Expr) -> None:
            near = tirx.any(stage != TYPICAL, self.distance(x) <= self.reach[0])
            likely = tirx.any(stage != XTC, key >= self.edge[0])
            with when(tirx.all(key > T.uint32(NOTHING), self.has(key), near, likely)):
                low[0] = T.max(low[0], T.bitwise_not(key))
                high[0] = T.max(high[0], key)

        with self.row.blocks(T.int32(0), T.int32(self.row.vocab)) as each:
            each(widen)
        lowest = bind(T.bitwise_not(self.row.over_threads(low[0], largest)))
        highest = self.row.over_threads(high[0], largest)
        with when(tirx.all(highest > T.uint32(0), stage == TYPICAL)):
            self.limit[0], self.ceiling[0] = lowest, highest
        with when(tirx.all(highest > T.uint32(0), stage == XTC)):
            self.ceiling[0] = lowest

    def fits(self, stage: Expr) -> Expr:
        """How often `fit` is called after a stage: 0 or 1, from the row's parameters alone."""
        either = tirx.any(stage == TYPICAL, stage == XTC)
        return int32(tirx.all(either, self.wished(stage)))

    @property
    def inverse(self) -> Expr:
        """Of the temperature."""
        return bind(real(1) / T.max(self.temperature[0], real(_LEAST_TEMPERATURE)))

    def _raise(self, edge: Expr) -> None:
        """Drop the logits below; never the largest."""
        key = T.min(image(bind(edge)), self.ceiling[0])
        self.limit[0] = T.max(self.limit[0], bind(key))

    def _heat(self, evenness: Expr) -> None:
        wish = self.row.wish
        even = bind(T.min(T.max(evenness, real(_EVEN)), real(1)))
        power = bind(T.exp(bind(T.log(even) * wish["dynatemp_exponent"])))
        base, reach = wish["temperature"], wish["dynatemp_range"]
        low = bind(T.max(base - reach, real(0)))
        self.temperature[0] = low + (base + reach - low) * power
