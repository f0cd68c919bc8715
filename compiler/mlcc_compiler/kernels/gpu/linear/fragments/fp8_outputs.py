"""How norms and gated products write their result as 8-bit floats (`fp8_rows.py`), where only
products of such weights read it: what `rounded_rows.py` does with pairs of float16.

A workgroup has a row, in registers. The form of a row is an attribute of the operator, as text.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import (
    LEAST,
    Fp8Row,
    store_scale,
    store_unit,
)
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, largest, real, reduce, when
from mlcc_compiler.quantization.schemes import E4M3_MOST

_MARK = "e"
"""Begins the text of a form; an order of pairs is digits."""


def text_of(gpu: Gpu, row: Fp8Row | None) -> str:
    """The form as text; "" = norms cannot write it: groups are no parts of a workgroup."""
    units = 0 if row is None else row.group // UNIT
    if row is None or (row.grouped and (units & (units - 1) or units > gpu.subgroup)):
        return ""
    return f"{_MARK}{row.group if row.grouped else 0}{_MARK * row.by_groups}"


def is_pairs(text: str) -> bool:
    """Whether a text is an order of pairs."""
    return bool(text) and not text.startswith(_MARK)


def form_of(text: str, width: int) -> Fp8Row | None:
    """The form of a text, of rows of `width` numbers; None = pairs."""
    if is_pairs(text):
        return None
    group = int(text.strip(_MARK)) or width
    return Fp8Row(width, group, text.endswith(_MARK))


def words_of(text: str, width: int) -> int:
    """Words of a row of `width` numbers."""
    row = form_of(text, width)
    return width // 2 if row is None else row.words


def store_row(gpu: Gpu, y: Any, m: Expr, row: Fp8Row, held: Local, thread: Expr) -> None:
    """Emit the rounding of row m. held: this thread's units, number i being unit
    i * threads + thread; 0 behind the last. Contains barriers."""
    units, together = row.k // UNIT, row.group // UNIT
    count, most = -(-units // gpu.threads), Local()
    for i in range(count):
        if row.grouped or i == 0:
            most[0] = real(LEAST)
        for j in range(UNIT):
            most[0] = T.max(most[0], T.abs(held[i * UNIT + j]))
        if row.grouped:
            team, lane = bind(thread // together), bind(thread % together)
            teams = gpu.threads // together
            top = bind(reduce(gpu, most[0], largest, lane, together, team, teams))
            _store(gpu, y, m, row, held, thread, top, i)
    if not row.grouped:
        top = bind(reduce(gpu, most[0], largest, thread, gpu.threads))
        for i in range(count):
            _store(gpu, y, m, row, held, thread, top, i)


def _store(
    gpu: Gpu, y: Any, m: Expr, row: Fp8Row, held: Local, thread: Expr, top: Expr, i: int
) -> None:
    """Emit the stores of unit number i, and of its group's scale."""
    unit, together = bind(thread + i * gpu.threads), row.group // UNIT
    inverse = bind(real(E4M3_MOST) / top)
    with when(unit < row.k // UNIT):
        values = [held[i * UNIT + j] * inverse for j in range(UNIT)]
        store_unit(y, row, values, m, T.int32(0), unit)
    with when(tirx.all(unit < row.k // UNIT, unit % together == 0)):
        store_scale(y, row, top, m, unit // together)
