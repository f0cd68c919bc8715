"""Quantizes activations by group along each row, for `linear_quantized`: to 8 bits, or to 16 in two
parts.

Symmetric int8 with one f32 scale per group, as llama.cpp's q8_0, plus the sum of the codes, which
cancels the zero point of the weights. The largest magnitude is found on the bits of |x|, where NaN
> Inf > every number, so a NaN or Inf makes the group's scale, and with it y, non-finite. Two parts
are the codes of the whole row, followed by those of the remainders: between -1/2 and 1/2 of a step,
in steps of 1/254.
"""

from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import fit_lanes
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE, Registers, for_rows
from mlcc_compiler.kernels.fused_kernels import READS_LAST

Expr = Any

_ROUND = 12582912.0
"""1.5 * 2**23: adding it leaves x rounded to even in the low bits of the float."""
_ROUND_BITS = 0x4B400000
_FINER = 254
"""Steps of the second part in one of the first."""
_TINY = 1e-35
"""Groups below this are zero; the inverse of their scale would overflow."""
_UNROLL = 8


def quantize_rows(isa: Isa, k: int, group: int, sums: int = 0) -> Expr:
    """PrimFunc(x[n, K], xq i8[n, K], x_scale f32[n, K / group], x_sum i32[n, K / sums]); where
    activations have two parts, the three are twice as wide.

    `sums`: elements of a sum, which divides the group; 0 = the group.
    """
    groups, sums = k // group, sums or group
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        attributes = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE}
        B.func_attr({**attributes, READS_LAST: True})
        handles = [B.arg(name, T.handle()) for name in ("x", "xq", "x_scale", "x_sum")]
        n = T.int64()
        wide = isa.activation_parts
        counts = [(wide * groups, "float32"), (wide * (k // sums), "int32")]
        shapes = [(k, isa.activation_dtype), (wide * k, "int8"), *counts]
        buffers = [
            B.match_buffer(h, (n, width), dtype)
            for h, (width, dtype) in zip(handles, shapes, strict=True)
        ]

        def row(i: Expr) -> None:
            with B.serial(groups) as g:
                _group(buffers, group, sums, isa, i, g)

        for_rows(n, k, row)
    return builder.get()


def _group(buffers: list[Expr], group: int, sums: int, isa: Isa, i: Expr, g: Expr) -> None:
    x, xq, x_scale, x_sum = buffers
    width = int(x.shape[1])
    lanes = fit_lanes(sums, isa.lanes)
    kind, floats = f"int32x{lanes}", f"float32x{lanes}"

    def spread(value: Expr) -> Expr:
        return T.Broadcast(value, lanes)

    def over(first: Expr, size: int, body: Any) -> None:
        """body(k) for every vector of some elements."""
        count = size // lanes
        block = max(b for b in range(1, _UNROLL + 1) if count % b == 0)
        with B.serial(count // block) as outer:
            for v in range(block):
                body(B.bind(first + (outer * block + v) * lanes))

    state = Registers(1, lanes, "int32")
    state.set(0, spread(T.int32(0)))

    def largest(k: Expr) -> None:
        bits = T.reinterpret(kind, x.vload([i, k], floats)) & spread(T.int32(0x7FFFFFFF))
        state.set(0, T.max(state.get(0), bits))

    over(g * group, group, largest)
    most = B.bind(T.reinterpret("float32", _reduce("llvm.vector.reduce.smax", state.get(0))))
    inverse = B.bind(T.Select(most > T.float32(_TINY), T.float32(127) / most, T.float32(0)))
    for part in range(isa.activation_parts):
        step = most * T.float32(1 / 127 / _FINER**part)
        B.buffer_store(x_scale, step, [i, part * (width // group) + g])

    def rounded(values: Expr) -> Expr:
        shifted = values + spread(T.float32(_ROUND))
        return B.bind(T.reinterpret(kind, shifted) - spread(T.int32(_ROUND_BITS)))

    def code(part: int, k: Expr) -> None:
        values = B.bind(x.vload([i, k], floats) * spread(inverse))
        codes = rounded(values)
        if part:
            left = values - T.Cast(floats, codes)
            codes = rounded(left * spread(T.float32(_FINER)))
        place = T.Ramp(part * width + k, 1, lanes)
        B.buffer_store(xq, T.Cast(f"int8x{lanes}", codes), [i, place])
        state.set(0, state.get(0) + codes)

    for part in range(isa.activation_parts):
        for some in range(group // sums):
            state.set(0, spread(T.int32(0)))
            over(g * group + some * sums, sums, partial(code, part))
            place = part * (width // sums) + g * (group // sums) + some
            B.buffer_store(x_sum, _reduce("llvm.vector.reduce.add", state.get(0)), [i, place])


def _reduce(name: str, vector: Expr) -> Expr:
    return T.call_llvm_pure_intrin("int32", T.llvm_lookup_intrinsic_id(name), vector)
