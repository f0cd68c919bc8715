"""Reads pages of keys and values as rows, one per token, head and side: floats, or 8-bit numbers
with a scale per row. `sequences.py` locates the rows.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.attention.sequences import VECTOR, load_vector
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.kv_cache.quantized import numbers_of
from mlcc_compiler.kernels.gpu.workgroup import Local, bind


class Rows:
    """Rows of head_dim numbers: keys, and, `to_value` rows further, values."""

    def __init__(self, gpu: Gpu, layout: KvLayout, pages: Expr, *scales: Expr) -> None:
        kept, *_ = layout.tensors
        self.to_value = layout.kv_heads * layout.page_size
        count = pages.shape[0] * (2 * self.to_value)
        self._gpu, self._layout, self._scaled = gpu, layout, layout.has_scales
        self._buffer = T.decl_buffer((count, kept.shape[-1]), kept.dtype, data=pages.data)
        for each in scales:
            self._scales = T.decl_buffer((count,), "float32", data=each.data)
        self.step = VECTOR if layout.has_scales else 1
        """Neighbouring numbers that `load` gives at once."""

    def vector(self, row: Expr, at: Expr) -> Local:
        """VECTOR neighbours, indexed in units of VECTOR; not yet `scaled`."""
        if not self._scaled:
            return load_vector(self._buffer, row, at)
        cells = Local(VECTOR)
        for x, value in enumerate(self._numbers(row, at)):
            cells[x] = value
        return cells

    @property
    def is_float16(self) -> bool:
        """Whether `copy` may be used."""
        return bool(self._buffer.dtype == "float16")

    def cell(self, row: Expr, column: Expr) -> Expr:
        """A number as it is stored."""
        return self._buffer[row, column]

    def copy(self, row: Expr, at: Expr, count: int) -> Expr:
        """`count` neighbours as float16, indexed in units of `count`."""
        return self._buffer[row, T.Ramp(at * count, 1, count)]

    def scales(self, rows: list[Expr]) -> list[Expr | None]:
        """The argument of `scaled` for each row: loaded here, once."""
        return [bind(self._scales[row]) if self._scaled else None for row in rows]

    def load(self, row: Expr, d: Expr) -> list[Expr]:
        """`step` numbers of a row as float32, from `d` on."""
        if not self._scaled:
            return [self._buffer[row, d].astype("float32")]
        scale = bind(self._scales[row])
        return [value * scale for value in self._numbers(row, d // VECTOR)]

    def _numbers(self, row: Expr, at: Expr) -> list[Expr]:
        """The numbers of a word."""
        return numbers_of(self._gpu, self._layout, bind(self._buffer[row, at]))


def scaled(value: Expr, scale: Expr | None) -> Expr:
    """Apply a row's scale to a sum over its numbers, or to their weight."""
    return value if scale is None else value * scale
