"""How norms, gated products and attention write their result as 8-bit floats (`fp8_rows.py`), where
only products of such weights read it: what `rounded_rows.py` does with pairs of float16.

A workgroup has a row, in registers; of attention, whole groups. The form of a row is an attribute
of the operator, as text.
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
    return Fp8Row(width, _group_of(text) or width, text.endswith(_MARK))


def words_of(text: str, width: int) -> int:
    """Words of a row of `width` numbers."""
    row = form_of(text, width)
    return width // 2 if row is None else row.words


def in_parts(text: str) -> bool:
    """Whether a part of a row can be written without the rest: pairs, and whole groups."""
    return is_pairs(text) or bool(_group_of(text))


def fits_heads(text: str, head_dim: int) -> bool:
    """Whether attention can write it, a head at a time."""
    return in_parts(text) and head_dim % (UNIT if is_pairs(text) else _group_of(text)) == 0


def _group_of(text: str) -> int:
    """Columns of a group; 0 = a row has one scale."""
    return int(text.strip(_MARK) or 0)


def store_row(gpu: Gpu, y: Any, m: Expr, row: Fp8Row, held: Local, thread: Expr) -> None:
    """Emit the rounding of row m. held: this thread's units, number i being unit
    i * threads + thread; 0 behind the last. Contains barriers."""
    units = row.k // UNIT
    parts = [[held[i * UNIT + j] for j in range(UNIT)] for i in range(-(-units // gpu.threads))]
    numbers = [bind(thread + i * gpu.threads) for i in range(len(parts))]
    if row.grouped:
        for values, unit in zip(parts, numbers, strict=True):
            store_groups(gpu, y, m, row, values, unit, (thread, gpu.threads), unit < units)
        return
    top = _largest([value for values in parts for value in values])
    top = bind(reduce(gpu, top, largest, thread, gpu.threads))
    for values, unit in zip(parts, numbers, strict=True):
        _store(y, m, row, values, unit, top, unit < units)


def store_groups(
    gpu: Gpu,
    y: Any,
    m: Expr,
    row: Fp8Row,
    values: list[Expr],
    unit: Expr,
    threads: tuple[Expr, int],
    inside: Expr,
) -> None:
    """Emit the rounding of whole groups of row m: of this thread's unit, if it is `inside`, and its
    neighbours'. threads: (this one, of the workgroup), which all come here."""
    (thread, count), together = threads, row.group // UNIT
    team, lane = bind(thread // together), bind(thread % together)
    top = reduce(gpu, _largest(values), largest, lane, together, team, count // together)
    _store(y, m, row, values, unit, bind(top), inside)


def store_zeros(y: Any, m: Expr, row: Fp8Row, unit: Expr) -> None:
    """Emit zeros for a unit of row m."""
    _store(y, m, row, [real(0)] * UNIT, unit, bind(real(LEAST)), T.bool(True))


def _largest(values: list[Expr]) -> Expr:
    """The largest magnitude."""
    most = Local()
    most[0] = real(LEAST)
    for value in values:
        most[0] = T.max(most[0], T.abs(value))
    return most[0]


def _store(
    y: Any, m: Expr, row: Fp8Row, values: list[Expr], unit: Expr, top: Expr, inside: Expr
) -> None:
    """Emit the stores of a unit, and of its group's scale."""
    together, inverse = row.group // UNIT, bind(real(E4M3_MOST) / top)
    with when(inside):
        store_unit(y, row, [value * inverse for value in values], m, T.int32(0), unit)
    with when(tirx.all(inside, unit % together == 0)):
        store_scale(y, row, top, m, unit // together)
