"""Elementary functions on f32 vectors as TIR expressions: exp, log, tanh, erfc, reductions.

LLVM turns `exp` of a vector into one libm call per lane; these stay in registers on every
instruction set. Argument reduction and polynomials are the classic ones of Cephes (Moshier, 1989)
and Abramowitz & Stegun 7.1.26. Not a libm: results below 2**-125 are zero, no flags or errno.

Every function takes and gives an expression of any number of lanes (1 = scalar). They bind
intermediate values as statements, so they must be called while a kernel's body is being built.
"""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, store

_LOG2E = 1.44269504088896341
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_ROUND = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, kept in the low mantissa bits
_EXP_MIN = -86.9  # below this the result counts as zero
_EXP2_MIN = -125.0  # likewise
_EXP_MAX = 88.7228317  # above this it is infinite
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_EXP2 = (0.0095828553, 0.0559064304, 0.2402409861, 0.6931241927, 1.0)  # minimax, exact at 0
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
_ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def lanes_of(x: Expr) -> int:
    """Lanes of an expression."""
    return int(x.ty.dtype.lanes)


def vector(dtype: str, lanes: int) -> str:
    """The name of a vector type; one lane is the scalar type itself."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def spread(value: Expr, lanes: int) -> Expr:
    """A scalar, or a Python float, broadcast to every lane."""
    scalar = T.float32(value) if isinstance(value, (int, float)) else value
    return scalar if lanes == 1 else T.Broadcast(scalar, lanes)


def span(start: Expr, lanes: int) -> Expr:
    """The index of `lanes` neighbouring elements from `start`."""
    return start if lanes == 1 else T.Ramp(start, 1, lanes)


def fit_lanes(size: int, lanes: int) -> int:
    """The widest vector of at most `lanes` (a power of two) that divides `size`."""
    while size % lanes:
        lanes //= 2
    return lanes


def cast(dtype: str, x: Expr) -> Expr:
    """Convert every lane; free if it is of that type already."""
    kind = vector(dtype, lanes_of(x))
    return x if str(x.ty.dtype) == kind else T.Cast(kind, x)


def maximum(a: Expr, b: Expr) -> Expr:
    """The larger; `b` where `a` is NaN."""
    return T.Select(a > b, a, b)


def _polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    lanes = lanes_of(x)
    total = spread(coefficients[0], lanes)
    for c in coefficients[1:]:
        total = total * x + spread(c, lanes)
    return total


def exp(x: Expr) -> Expr:
    """e**x within 2 ulp. Below -86.9 it is 0, above 88.72 infinite, of NaN NaN."""
    lanes = lanes_of(x)
    x = bind(x)
    mantissa, bits = _exp_parts(x)
    # 2**(n - 1) and a last doubling, so that n = 128 does not overflow before its time
    power = T.reinterpret(
        vector("float32", lanes),
        T.shift_left(bits + spread(T.int32(126), lanes), spread(T.int32(23), lanes)),
    )
    result = bind(mantissa * power * spread(2.0, lanes))
    result = T.Select(x < spread(_EXP_MIN, lanes), spread(0.0, lanes), result)
    return bind(T.Select(x > spread(_EXP_MAX, lanes), spread(T.infinity("float32"), lanes), result))


def exp_falling(x: Expr) -> Expr:
    """e**x for x <= 0 or NaN, in fewer instructions than `exp`: weights of a softmax."""
    lanes = lanes_of(x)
    x = bind(x)
    mantissa, bits = _exp_parts(x)
    power = T.shift_left(bits, spread(T.int32(23), lanes))
    bits = T.reinterpret(vector("int32", lanes), bind(mantissa)) + power
    result = T.reinterpret(vector("float32", lanes), bits)
    return bind(T.Select(x < spread(_EXP_MIN, lanes), spread(0.0, lanes), result))


def exp2_falling(x: Expr) -> Expr:
    """2**x for x <= 0 or NaN, within 3e-6, zero below -125: softmax weights that are rounded to
    bf16."""
    lanes = lanes_of(x)
    x = bind(x)
    bits = bind(T.reinterpret(vector("int32", lanes), x + spread(_ROUND, lanes)))
    n = bind(T.reinterpret(vector("float32", lanes), bits) - spread(_ROUND, lanes))
    mantissa = bind(_polynomial(bind(x - n), _EXP2))
    power = T.shift_left(bits, spread(T.int32(23), lanes))
    bits = T.reinterpret(vector("int32", lanes), mantissa) + power
    result = T.reinterpret(vector("float32", lanes), bits)
    return bind(T.Select(x < spread(_EXP2_MIN, lanes), spread(0.0, lanes), result))


def _exp_parts(x: Expr) -> tuple[Expr, Expr]:
    """(m, i): e**x = m * 2**n, with n in the low bits of i."""
    lanes = lanes_of(x)
    shifted = x * spread(_LOG2E, lanes) + spread(_ROUND, lanes)
    bits = bind(T.reinterpret(vector("int32", lanes), shifted))
    # through the integer, or TVM's simplifier turns (a + c) - c into a, floats or not
    n = bind(T.reinterpret(vector("float32", lanes), bits) - spread(_ROUND, lanes))
    r = bind(x - n * spread(_LN2_HIGH, lanes) - n * spread(_LN2_LOW, lanes))
    return _polynomial(r, _EXP) * (r * r) + (r + spread(1.0, lanes)), bits


def log(x: Expr) -> Expr:
    """The natural logarithm of a normal positive number, within 2 ulp; undefined for others."""
    lanes = lanes_of(x)
    bits = bind(T.reinterpret(vector("int32", lanes), x))
    power = T.shift_right(bits, spread(T.int32(23), lanes)) - spread(T.int32(126), lanes)
    mantissa = T.bitwise_and(bits, spread(T.int32(0x007FFFFF), lanes))
    half = T.bitwise_or(mantissa, spread(T.int32(0x3F000000), lanes))  # from 1/2 to 1
    m = bind(T.reinterpret(vector("float32", lanes), half))
    small = m < spread(0.5**0.5, lanes)
    one, none = spread(1.0, lanes), spread(0.0, lanes)
    n = bind(T.Cast(vector("float32", lanes), power) - T.Select(small, one, none))
    r = bind(m + T.Select(small, m, none) - one)
    square = bind(r * r)
    rest = _polynomial(r, _LOG) * r * square + n * spread(_LN2_LOW, lanes)
    return bind(r + (rest - square * spread(0.5, lanes)) + n * spread(_LN2_HIGH, lanes))


def softplus(x: Expr) -> Expr:
    """log(1 + e**x), where e**x never overflows: absolute error 2e-7, or 2 ulp. NaN gives NaN."""
    lanes = lanes_of(x)
    x, none = bind(x), spread(0.0, lanes)
    small = exp(none - maximum(x, none - x))
    return bind(maximum(none, x) + log(spread(1.0, lanes) + small))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x)."""
    lanes = lanes_of(x)
    return spread(1.0, lanes) / (spread(1.0, lanes) + exp(spread(0.0, lanes) - x))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent, within 3 ulp also near zero."""
    lanes = lanes_of(x)
    x = bind(x)
    square = bind(x * x)
    small = _polynomial(square, _TANH) * square * x + x
    grown = exp(x * spread(2.0, lanes))
    large = spread(1.0, lanes) - spread(2.0, lanes) / (grown + spread(1.0, lanes))
    return T.Select(square < spread(0.625 * 0.625, lanes), small, large)


def gauss_tail(x: Expr) -> Expr:
    """erfc(|x| / sqrt(2)), the mass of a standard normal beyond +-x, absolute error 1.5e-7."""
    lanes = lanes_of(x)
    x = bind(x)
    z = maximum(x, spread(0.0, lanes) - x) * spread(0.7071067811865476, lanes)
    t = bind(spread(1.0, lanes) / (spread(1.0, lanes) + spread(0.3275911, lanes) * z))
    return _polynomial(t, _ERFC) * t * exp(x * x * spread(-0.5, lanes))


def reduce_lanes(x: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Fold the lanes of a vector to one scalar, in halves."""
    lanes = lanes_of(x)
    while lanes > 1:
        lanes //= 2
        x = bind(x)
        low, high = (T.Shuffle([x], list(range(i, i + lanes))) for i in (0, lanes))
        x = combine(low, high)
    return bind(x)


def sum_lanes(x: Expr) -> Expr:
    """The sum of all lanes."""
    return reduce_lanes(x, lambda a, b: a + b)


def max_lanes(x: Expr) -> Expr:
    """The largest lane."""
    return reduce_lanes(x, maximum)


def bind(x: Expr) -> Expr:
    """Emit the computation of x once, and return its value.

    Not by T.bind: TVM's simplifier unfolds such variables into their values while it analyses, in
    time exponential in the length of a chain.
    """
    cell = Registers(1, lanes_of(x), str(x.ty.dtype.with_lanes(1)))
    cell[0] = x
    return cell[0]


class Registers:
    """`count` vectors of `lanes` that LLVM keeps in registers.

    Each is a buffer of its own, of scalars: TVM gives buffers from 1 KiB on a workspace call and
    not the stack, and its storage pass fails where it merges buffers of vectors.
    """

    def __init__(self, count: int, lanes: int, dtype: str = "float32") -> None:
        self.lanes = lanes
        # No layout is what `kernel` has; TVM would walk through all open loops to find that out.
        self.buffers = [T.alloc_buffer((lanes,), dtype, layout=None) for _ in range(count)]

    def __getitem__(self, i: int) -> Expr:
        return self.buffers[i][span(0, self.lanes)]

    def __setitem__(self, i: int, value: Expr) -> None:
        store(self.buffers[i], value, span(0, self.lanes))


def each(size: int, lanes: int, body: Callable[[Expr, int], None], start: Expr = 0) -> None:
    """Emit body(index, lanes) over `size` elements from `start`: whole vectors, then the rest."""
    with T.serial(size // lanes) as j:
        body(start + j * lanes, lanes)
    if size % lanes:
        with T.serial(size % lanes) as j:
            body(start + size // lanes * lanes + j, 1)


def prefetch(address: Expr, near: int = 3) -> Expr:
    """A call that prefetches the cache line at `address`: into the first cache, or the second (2),
    which allows more in flight."""
    hint = T.llvm_lookup_intrinsic_id("llvm.prefetch")
    read, keep, data = T.int32(0), T.int32(near), T.int32(1)
    return T.call_llvm_intrin("void", hint, address, read, keep, data)
