"""Kernels whose last output is read by products of AMX alone: many rows of it are written as tiles
of bf16 (`amx_rows.py`) and not as float32, which saves the traffic of both to memory.

The kernel stays as it stands; only its stores change. The tiles have the same bits as if the rows
were rounded afterwards.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T, ir, tirx
from mlcc_compiler.kernels.cpu.linear.amx_rows import MANY, TILE_ROWS_READER, tile_at
from mlcc_compiler.kernels.fused_kernels import fuse_kernels
from mlcc_compiler.kernels.statements import each_store

Expr = Any
Stmt = Any

WRITES_LAST = "mlcc.writes_last"
"""Attribute of a kernel that only writes its last output, of float32, in whole vectors."""
_LANES = 16
_CVT = "llvm.x86.avx512bf16.cvtneps2bf16.512"
_IR = f"""
define linkonce_odr hidden <16 x i16> @mlcc_round_bf16(<16 x float> %x) alwaysinline {{
  %y = call <16 x bfloat> @{_CVT}(<16 x float> %x)
  %bits = bitcast <16 x bfloat> %y to <16 x i16>
  ret <16 x i16> %bits
}}
declare <16 x bfloat> @{_CVT}(<16 x float>)
"""


def can_write_tiles(first: Any, second: Any) -> bool:
    """Whether `first` can write what `second` makes of many rows of its last output."""
    width = second.params[0].ty.shape[-1]
    able = WRITES_LAST in first.attrs and TILE_ROWS_READER in second.attrs
    return able and int(width) % (2 * _LANES) == 0


def fuse_to_tiles(first: Any, second: Any) -> Any:
    """The PrimFunc of both, as `fuse_kernels`; of `MANY` rows and more the last output of `first`
    is not written, but the tiles are."""
    few = second.with_body(second.body.else_case)
    condition = second.params[0].ty.shape[0] < MANY
    both = fuse_kernels(first, few.with_body(tirx.IfThenElse(condition, few.body, None)))
    out, tiles = both.params[len(first.params) - 1], both.params[-1]

    def change(store: Stmt) -> Stmt:
        return _stored(store, tiles) if store.buffer.same_as(out) else store

    body = tirx.AttrStmt(
        T.int32(0), "pragma_import_llvm", ir.StringImm(_IR), each_store(both.body, change)
    )
    return both.with_body(body)


def _stored(store: Stmt, tiles: Expr) -> Stmt:
    """A store of a vector of the output, as rounded numbers of a tile where there are many rows."""
    rows, *sizes = store.buffer.ty.shape
    row, *at, last = store.indices
    if not isinstance(last, tirx.Ramp) or int(last.lanes) != _LANES or int(last.stride) != 1:
        raise ValueError(f"{WRITES_LAST} of a kernel that stores {store}")
    column, width = T.int64(0), 1
    for index, size in zip([*at, last.base], sizes, strict=True):
        column, width = column * size + index, width * int(size)
    depth = 2 * _LANES
    place = T.Ramp(row % _LANES * depth + column % depth, 1, _LANES)
    bits = T.call_extern(f"uint16x{_LANES}", "mlcc_round_bf16", store.value)
    rounded = tirx.BufferStore(tiles, bits, [tile_at(width, row, column // depth), place])
    return tirx.IfThenElse(rows >= MANY, rounded, store)
