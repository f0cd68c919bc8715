"""Scales, minima and zero points of codes, read as float32 vectors of columns: one number a column
and group.

Two-level schemes multiply a block's float16 with a group's integer here, group by group: a product
and a conversion for 32 weights a column. The block's float may be passed in, already converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa.vector_math import spread, vector
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.weights.codes import HALF
from mlcc_compiler.kernels.cpu.linear.weights.widen import widen
from mlcc_compiler.quantization.schemes import MINIMA, ZEROS

Expr = Any


class Scales:
    """Reads a weight's tensors other than codes; `buffers` are those of `packing.tensors`."""

    def __init__(self, packing: CpuPacking, buffers: Sequence[Any]) -> None:
        self.p, self.isa = packing, packing.isa
        names = [tensor.suffix[1:] for tensor in packing.tensors]
        self.parts = dict(zip(names, buffers, strict=True))

    @property
    def minima(self) -> bool:
        """Whether `minimum` applies."""
        return self.p.scheme.offset == MINIMA

    def scale(
        self, at: tuple[Expr, Expr], column: Expr, lanes: int, level: Expr | None = None
    ) -> Expr:
        """f32 of `lanes` columns; `at` is (tile, group)."""
        how = self.p.scheme
        factor = 1.0
        if how.table:
            found = planes.integers(how.table)
            assert found is not None
            factor = found[1]
        value = self.level("scales", at, column, lanes) if level is None else level
        if how.block:
            value = value * self._integers("sub_scales", at, column, lanes)
        return B.bind(value if factor == 1 else value * spread(factor, lanes))

    def minimum(
        self, at: tuple[Expr, Expr], column: Expr, lanes: int, level: Expr | None = None
    ) -> Expr:
        """f32 minima of `lanes` columns; `at` is (tile, group)."""
        value = self.level("minima", at, column, lanes) if level is None else level
        if self.p.scheme.block:
            value = value * self._integers("sub_minima", at, column, lanes)
        return B.bind(value)

    @property
    def middle(self) -> int | None:
        """The constant zero point, before codes are flipped; None: see `zero`."""
        how = self.p.scheme
        if how.table:
            return HALF
        return {ZEROS: None, MINIMA: 0}.get(how.offset, how.middle)

    def zero(self, at: tuple[Expr, Expr], column: Expr, lanes: int) -> Expr:
        """i32 zero points of columns, for schemes that store them."""
        stored = self.parts["zeros"].vload([*at, column], vector("uint8", lanes))
        return B.bind(T.Cast(vector("int32", lanes), stored))

    def level(self, name: str, at: tuple[Expr, Expr], column: Expr, lanes: int) -> Expr:
        """The float of the group, or of its block."""
        how, (tile, group) = self.p.scheme, at
        if how.block:
            group = group // (how.block // self.p.group)
        index, buffer = [tile, group, column], self.parts[name]
        if how.scale_dtype == "uint8":  # an exponent: 2**-127 and what is below become 0
            bits = T.Cast(vector("uint32", lanes), buffer.vload(index, vector("uint8", lanes)))
            by = T.uint32(23) if lanes == 1 else T.Broadcast(T.uint32(23), lanes)
            return T.reinterpret(vector("float32", lanes), bits << by)
        return widen(self.isa, buffer, index, lanes)

    def _integers(self, name: str, at: tuple[Expr, Expr], column: Expr, lanes: int) -> Expr:
        whole = self.parts[name].vload([*at, column], vector("int8", lanes))
        return T.Cast(vector("float32", lanes), whole)
