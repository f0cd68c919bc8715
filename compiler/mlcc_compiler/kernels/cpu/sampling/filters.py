"""Sampling filters of a row of logits, and the temperature at which a token is drawn.

The remaining logits always lie between two logits of the row, `limit` and `peak`.
"""

from mlcc.engine.batch.filters import FORBIDDEN
from mlcc.engine.batch.tables import FILTERS
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    each,
    exp,
    lanes_of,
    span,
    spread,
)
from mlcc_compiler.kernels.cpu.sampling.row import HIGHEST, LOWEST, Row
from mlcc_compiler.kernels.cpu.sampling.search import search
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.step import Step

_VANISHES = -100.0  # e to this is 0 to `exp`
_EVEN = 1e-30  # least evenness: it has a logarithm


class FilterEmitter:
    """Emits the filters of one row. `mass` f32[vocab] is scratch."""

    def __init__(self, row: Row, step: Step, top: Expr, mass: Expr) -> None:
        self.row, self.top, self.mass = row, top, mass
        names = ("temperature", "top_k", "top_p", "min_p", *FILTERS)
        self.parameters = {name: bind(step.row(row.row, name)) for name in names}
        self.limit, self.peak, self.heat = Registers(1, 1), Registers(1, 1), Registers(1, 1)
        self.limit[0], self.peak[0] = T.float32(LOWEST), top
        self.heat[0] = self.parameters["temperature"]

    def emit(self) -> None:
        """Each filter in order (`mlcc.engine.batch.filters`); an unused one costs a comparison."""
        parameters, zero, one = self.parameters, T.float32(0), T.float32(1)
        with T.If(parameters["top_n_sigma"] > zero), T.Then():
            self._top_n_sigma()
        with T.If(T.And(parameters["top_k"] > 0, parameters["top_k"] < self.row.vocab)), T.Then():
            search(self.row, self.row.x, None, self.limit, self.top, parameters["top_k"])
        with T.If(parameters["typical_p"] < one), T.Then():
            self._typical()
        with T.If(parameters["top_p"] < one), T.Then():
            self._fill()
            search(self.row, self.row.x, self._mass, self.limit, self.peak[0], parameters["top_p"])
        with T.If(parameters["min_p"] > zero), T.Then():
            share = T.log(T.Cast("float64", T.min(parameters["min_p"], one)))
            self._raise(T.Cast("float64", self.peak[0]) + share)
        with T.If(parameters["epsilon"] > zero), T.Then():
            total, _, _ = self._entropy()
            self._raise(self._logit(T.log(T.Cast("float64", parameters["epsilon"])), total))
        with T.If(parameters["eta"] > zero), T.Then():
            total, entropy, _ = self._entropy()
            eta = bind(T.log(T.Cast("float64", parameters["eta"])))
            self._raise(self._logit(T.min(eta, eta * T.float64(0.5) - entropy), total))
        with T.If(parameters["xtc"] > zero), T.Then():
            self._exclude_top_choices()
        with T.If(parameters["dynatemp_range"] > zero), T.Then():
            self._dynamic_temperature()

    def remaining(self, x: Expr) -> Expr:
        """Which of the logits x remain."""
        k = lanes_of(x)
        return T.And(x >= spread(self.limit[0], k), x <= spread(self.peak[0], k))

    def _raise(self, edge: Expr) -> None:
        """Drop the logits below `edge`; never the largest. Nothing if the edge is NaN."""
        edge = bind(T.Cast("float32", edge))
        within = bind(T.Select(edge > self.peak[0], self.peak[0], edge))
        self.limit[0] = T.Select(within > self.limit[0], within, self.limit[0])

    def _logit(self, log_share: Expr, total: Expr) -> Expr:
        """The logit whose share of the total mass has this logarithm."""
        return T.Cast("float64", self.top) + log_share + T.log(total)

    def _fill(self) -> None:
        """Masses relative to the largest logit's, 0 for dropped logits."""

        def fill(i: Expr, k: int) -> None:
            x = bind(self.row.x(i, k))
            value = exp(x - spread(self.top, k))
            store(self.mass, T.Select(self.remaining(x), value, spread(0.0, k)), span(i, k))

        each(self.row.vocab, self.row.lanes, fill)

    def _mass(self, i: Expr, k: int) -> Expr:
        return self.mass[span(i, k)]

    def _top_n_sigma(self) -> None:
        def terms(i: Expr, k: int) -> list[Expr]:
            x = bind(self.row.x(i, k))
            zero, counted = spread(0.0, k), x > spread(FORBIDDEN, k)
            below = bind(T.Select(counted, x - spread(self.top, k), zero))
            return [T.Select(counted, spread(1.0, k), zero), below, below * below]

        count, first, second = self.row.sums(3, terms)
        mean = bind(first / count)
        variance = bind(T.max(second / count - mean * mean, T.float64(0)))
        sigma = T.sqrt(variance) * T.Cast("float64", self.parameters["top_n_sigma"])
        self._raise(T.Cast("float64", self.top) - sigma)

    def _entropy(self) -> tuple[Expr, Expr, Expr]:
        """(mass, entropy in nats, number of choices) of the remaining logits."""

        def terms(i: Expr, k: int) -> list[Expr]:
            x = bind(self.row.x(i, k))
            zero, kept = spread(0.0, k), bind(self.remaining(x))
            below = bind(T.max(T.Select(kept, x - spread(self.top, k), zero), spread(_VANISHES, k)))
            mass = bind(T.Select(kept, exp(below), zero))
            choice = T.And(kept, x > spread(FORBIDDEN, k))
            return [mass, mass * below, T.Select(choice, spread(1.0, k), zero)]

        total, weighted, count = self.row.sums(3, terms)
        self._mean = bind(weighted / total)
        return total, bind(T.log(total) - self._mean), count

    def _typical(self) -> None:
        """A surprise is as far from the entropy as the logit is from the mean of logits."""
        self._entropy()
        centre = bind(T.Cast("float32", T.Cast("float64", self.top) + self._mean))
        self._fill()

        def nearness(x: Expr) -> Expr:
            k = lanes_of(x)
            apart = bind(x - spread(centre, k))
            near = T.Select(apart > spread(0.0, k), spread(0.0, k) - apart, apart)
            return bind(T.Select(self.remaining(x), near, spread(LOWEST, k)))

        least = Registers(1, 1)
        least[0] = T.float32(LOWEST)
        place = lambda i, k: nearness(bind(self.row.x(i, k)))  # noqa: E731
        search(self.row, place, self._mass, least, T.float32(0), self.parameters["typical_p"])
        inside = lambda x: T.And(  # noqa: E731
            self.remaining(x), nearness(x) >= spread(least[0], lanes_of(x))
        )
        low, high = self.row.ends(inside)
        self.limit[0], self.peak[0] = low, high

    def _exclude_top_choices(self) -> None:
        total, _, _ = self._entropy()
        share = T.log(T.Cast("float64", self.parameters["xtc"]))
        edge = bind(T.Cast("float32", self._logit(share, total)))
        likely = lambda x: T.And(self.remaining(x), x >= spread(edge, lanes_of(x)))  # noqa: E731
        low, _ = self.row.ends(likely)
        with T.If(low < T.float32(HIGHEST)), T.Then():
            self.peak[0] = low

    def _dynamic_temperature(self) -> None:
        _, entropy, count = self._entropy()
        with T.If(count > T.float64(1)), T.Then():
            evenness = bind(T.min(T.max(entropy / T.log(count), T.float64(_EVEN)), T.float64(1)))
            power = T.exp(T.log(evenness) * T.Cast("float64", self.parameters["dynatemp_exponent"]))
            base, reach = self.parameters["temperature"], self.parameters["dynatemp_range"]
            low = bind(T.max(base - reach, T.float32(0)))
            self.heat[0] = low + (base + reach - low) * T.Cast("float32", power)
