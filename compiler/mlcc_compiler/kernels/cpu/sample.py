"""Sampling one token per row of logits: temperature, top-k, top-p, min-p, inverse CDF; or argmax.

The filters are those of Hugging Face and in its order; no sort: thresholds are found by bisection
on the logits, whose float bits map monotonically to integers. Uniforms come from the caller.
"""

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.vector_math import (
    Expr,
    Registers,
    each,
    exp,
    lanes_of,
    span,
    spread,
    store,
    sum_lanes,
)

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
_BLOCK_VECTORS = 64


def _key(bits: Expr) -> Expr:
    """float bits <-> an int32 that orders as the floats do (its own inverse)."""
    sign = T.shift_right(bits, T.int32(31))
    return T.bitwise_xor(bits, T.bitwise_and(sign, T.int32(0x7FFFFFFF)))


def _float_of(key: Expr) -> Expr:
    return T.reinterpret("float32", _key(T.Cast("int32", key)))


def _total(size: int, lanes: int, term, start: Expr = 0) -> Expr:
    """Emit the sum over i < size of term(index, lanes)."""
    acc, rest = Registers(1, lanes), Registers(1, 1)
    acc[0], rest[0] = spread(0.0, lanes), T.float32(0)

    def add(i: Expr, k: int) -> None:
        target = acc if k == lanes else rest
        target[0] = target[0] + term(i, k)

    each(size, lanes, add, start)
    return T.bind(sum_lanes(acc[0]) + rest[0])


def _kept(condition: Expr, value: Expr) -> Expr:
    return T.Select(condition, value, spread(0.0, lanes_of(value)))


def sample(vocab: int, lanes: int) -> tirx.PrimFunc:
    """(logits f32[r, vocab], temperature f32[r], top_k i32[r], top_p f32[r], min_p f32[r],
    uniforms f32[r]) -> (tokens i32[r], logprobs f32[r]).

    Temperature 0 takes the largest logit, the first of equals. logprobs are of the raw logits.
    NaN logits are never chosen unless all are, then token 0 is.
    """
    block = _BLOCK_VECTORS * lanes
    blocks = -(-vocab // block)

    @T.prim_func(s_tir=True, private=True)
    def sample(
        logits_handle: T.handle,
        temperature_handle: T.handle,
        top_k_handle: T.handle,
        top_p_handle: T.handle,
        min_p_handle: T.handle,
        uniforms_handle: T.handle,
        tokens_handle: T.handle,
        logprobs_handle: T.handle,
    ):
        T.func_attr(_ATTRS)
        r = T.int64()
        logits = T.match_buffer(logits_handle, (r, vocab), "float32")
        temperature = T.match_buffer(temperature_handle, (r,), "float32")
        top_k = T.match_buffer(top_k_handle, (r,), "int32")
        top_p = T.match_buffer(top_p_handle, (r,), "float32")
        min_p = T.match_buffer(min_p_handle, (r,), "float32")
        uniforms = T.match_buffer(uniforms_handle, (r,), "float32")
        tokens = T.match_buffer(tokens_handle, (r,), "int32")
        logprobs = T.match_buffer(logprobs_handle, (r,), "float32")
        for row in T.parallel(r):
            mass = T.alloc_buffer((vocab,), "float32", scope="local")
            best: T.int32 = T.int32(0)
            top: T.float32 = T.min_value("float32")
            for i in T.serial(vocab):
                if logits[row, i] > top:
                    top = logits[row, i]
                    best = i
            denominator: T.let = _total(
                vocab, lanes, lambda i, k: _finite(exp(logits[row, span(i, k)] - spread(top, k)))
            )
            token: T.int32 = best
            if temperature[row] > T.float32(0):
                inverse: T.let = T.float32(1) / temperature[row]
                each(
                    vocab,
                    lanes,
                    lambda i, k: store(
                        mass,
                        _finite(
                            exp((logits[row, span(i, k)] - spread(top, k)) * spread(inverse, k))
                        ),
                        span(i, k),
                    ),
                )
                limit: T.float32 = T.min_value("float32")
                if T.And(top_k[row] > 0, top_k[row] < vocab):
                    low: T.int64 = T.Cast("int64", _key(T.reinterpret("int32", limit)))
                    high: T.int64 = T.Cast("int64", _key(T.reinterpret("int32", top))) + T.int64(1)
                    while high - low > T.int64(1):
                        middle: T.let = T.shift_right(low + high, T.int64(1))
                        edge: T.let = _float_of(middle)
                        count: T.let = _total(
                            vocab,
                            lanes,
                            lambda i, k: _kept(
                                logits[row, span(i, k)] >= spread(edge, k), spread(1.0, k)
                            ),
                        )
                        if count >= T.Cast("float32", top_k[row]):
                            low = middle
                        else:
                            high = middle
                    limit = _float_of(low)
                if top_p[row] < T.float32(1):
                    low2: T.int64 = T.Cast("int64", _key(T.reinterpret("int32", limit)))
                    high2: T.int64 = T.Cast("int64", _key(T.reinterpret("int32", top))) + T.int64(1)
                    goal: T.let = top_p[row] * _total(
                        vocab,
                        lanes,
                        lambda i, k: _kept(
                            logits[row, span(i, k)] >= spread(limit, k), mass[span(i, k)]
                        ),
                    )
                    while high2 - low2 > T.int64(1):
                        middle2: T.let = T.shift_right(low2 + high2, T.int64(1))
                        edge2: T.let = _float_of(middle2)
                        above: T.let = _total(
                            vocab,
                            lanes,
                            lambda i, k: _kept(
                                logits[row, span(i, k)] >= spread(edge2, k), mass[span(i, k)]
                            ),
                        )
                        if T.And(above >= goal, above > T.float32(0)):
                            low2 = middle2
                        else:
                            high2 = middle2
                    limit = _float_of(low2)
                for i in T.serial(vocab):
                    if T.Or(
                        T.Not(logits[row, i] >= limit), mass[i] < T.max(min_p[row], T.float32(0))
                    ):
                        mass[i] = T.float32(0)
                left: T.float32 = uniforms[row] * _total(
                    vocab, lanes, lambda i, k: mass[span(i, k)]
                )
                found: T.bool = T.bool(False)
                for i in T.serial(vocab):
                    if T.And(T.Not(found), mass[i] > T.float32(0)):
                        token = i
                        left = left - mass[i]
                        found = left < T.float32(0)
            tokens[row] = token
            logprobs[row] = logits[row, token] - top - T.log(denominator)

    return sample


def _finite(x: Expr) -> Expr:
    """x if it is above zero, else 0: NaN becomes 0."""
    lanes = lanes_of(x)
    return T.Select(x > spread(0.0, lanes), x, spread(0.0, lanes))
