"""Loads stored floats (f32, f16, or bf16 as its bits in uint16) as float32 vectors."""

from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import vector

Expr = Any


def widen(isa: Isa, buffer: Expr, index: list[Expr], lanes: int) -> Expr:
    """`lanes` elements of `buffer` from `index` on; one lane gives a scalar."""
    dtype = str(buffer.dtype)
    value = buffer.vload(index, vector(dtype, lanes))
    if dtype == "float32":
        return value
    if dtype == "uint16":
        bits = T.Cast(vector("uint32", lanes), value) << _bits(16, lanes)
        return T.reinterpret(vector("float32", lanes), bits)
    if isa.has_f16:
        return T.Cast(vector("float32", lanes), value)
    return _widen_f16(value, lanes)


def _widen_f16(value: Expr, lanes: int) -> Expr:
    """Finite f16 by shifts and one product: the exponent moves by 112, and subnormals come out
    right.

    Without the instruction LLVM would call a function for each element.
    """
    floats = vector("float32", lanes)
    half = T.reinterpret(vector("uint16", lanes), value)
    bits = T.Cast(vector("uint32", lanes), half)
    factor = T.float32(2.0**112)
    scale = factor if lanes == 1 else T.Broadcast(factor, lanes)
    magnitude = T.reinterpret(floats, (bits & _bits(0x7FFF, lanes)) << _bits(13, lanes)) * scale
    sign = (bits & _bits(0x8000, lanes)) << _bits(16, lanes)
    return T.reinterpret(floats, T.reinterpret(vector("uint32", lanes), magnitude) | sign)


def _bits(value: int, lanes: int) -> Expr:
    return T.uint32(value) if lanes == 1 else T.Broadcast(T.uint32(value), lanes)
