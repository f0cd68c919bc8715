"""Threshold search by bisection over a row; nothing is sorted."""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, spread
from mlcc_compiler.kernels.cpu.sampling.row import Row
from mlcc_compiler.kernels.frame import Expr

_STRIDE = 8.0  # first estimate of the distance from the largest value to a threshold
_GUESSES = 48  # halvings of the value; after them, halvings of the bits, which must end

At = Callable[[Expr, int], Expr]
"""(index, lanes) -> a vector of float32."""


def search(row: Row, place: At, weight: At | None, limit: Registers, top: Expr, goal: Expr) -> None:
    """Raise limit[0] to the largest value such that the elements whose place is at least that have
    enough weight: `goal` times the weight from limit[0] on, or, without weights, `goal` elements.

    top: no place is higher. The largest place always qualifies.
    """

    def within(edge: Expr, i: Expr, k: int) -> list[Expr]:
        above = bind(place(i, k) >= spread(edge, k))
        zero, one = spread(0.0, k), spread(1.0, k)
        counts = [T.Select(above, one, zero)]
        return counts if weight is None else [T.Select(above, weight(i, k), zero), *counts]

    sums = 1 if weight is None else 2
    start = bind(limit[0])
    found = row.sums(sums, lambda i, k: within(start, i, k))
    wanted = bind(T.Cast("float64", goal))
    if weight is not None:
        wanted = bind(wanted * found[0])
    keys, counts = Registers(2, 1, "int64"), Registers(2, 1, "float64")
    keys[0], keys[1] = _key(start), _key(top) + 1
    counts[0], counts[1] = found[-1], T.float64(0)
    tries, reach = Registers(1, 1, "int32"), Registers(1, 1)
    tries[0], reach[0] = T.int32(0), T.float32(_STRIDE)
    with T.While(T.And(keys[1] - keys[0] > 1, counts[0] - counts[1] > T.float64(1))):
        key = _middle(start, keys, tries, reach)
        edge = bind(_value(key))
        found = row.sums(sums, lambda i, k: within(edge, i, k))
        with T.If(T.And(found[0] >= wanted, found[-1] > T.float64(0))):
            with T.Then():
                keys[0], counts[0] = key, found[-1]
            with T.Else():
                keys[1], counts[1] = key, found[-1]
    limit[0] = _value(keys[0])


def _middle(start: Expr, keys: Registers, tries: Registers, reach: Registers) -> Expr:
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
