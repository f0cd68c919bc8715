"""How the CPU kernels store a weight matrix: numpy packing, unpacking, and the shapes.

A matrix [N, K] is cut into tiles of `width` output columns (a few vector registers), padded with
zeros to whole tiles. Inside a tile the kernel's reads are one contiguous stream along K. How wide a
tile is belongs to the layout: all CPUs of an architecture read the same bytes, those of narrower
registers a tile in strips.

    floats       [tiles, K, width]
    codes        [tiles, stretches * vectors of one, width, 4]  four k of one column in one lane
    scales       [tiles, G or B, width]
    zeros        [tiles, G, width]                   schemes with zero points
    minima       [tiles, G or B, width]              schemes with minima
    sub_scales, sub_minima  [tiles, G, width]        two-level schemes

G groups and B blocks a row, as `quantization.schemes` has them. A stretch is what shares a scale
of the activations: 32 weights, two groups where groups are of 16; or the group itself, where that
is no multiple of 32. Its codes lie in planes (`kernels/planes.py`), so that a mask and a shift
unpack a whole register. Nothing here knows TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.ir.layout import PhysicalTensor, WeightLayout
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.quantization import Quantized, Scheme, dequantize, quantize
from mlcc_compiler.quantization.floats import from_storage, to_storage
from mlcc_compiler.quantization.quantized import PARTS
from mlcc_compiler.quantization.schemes import MINIMA, ZEROS

Array = npt.NDArray[Any]

COLUMN_VECTORS = 2
"""Vector registers side by side when several rows are multiplied at a time."""

ROW_VECTORS = 4
"""Vector registers side by side for a single row, where a tile has that many: whole cache lines of
codes in one stream.
"""

STRETCH = 32
"""Weights, and activations, of a stretch."""


_SPAN = 32
"""Groups whose activation sums are prepared at a time: for six rows they stay on the stack."""


@dataclass(frozen=True)
class RowForm:
    """Quantized form of activations for a weight: scales by `group`, sums by `sums`."""

    k: int
    group: int
    sums: int


def row_form(scheme: Scheme, k: int) -> RowForm:
    """The same form for all schemes where possible, so that their readers share one."""
    group = scheme.group_of(k)
    if k % STRETCH == 0 and (group % STRETCH == 0 or group == STRETCH // 2):
        return RowForm(k, STRETCH, STRETCH // 2)
    return RowForm(k, group, group)


@dataclass(frozen=True)
class CpuPacking:
    """The physical form of one [rows, columns] = [N, K] matrix."""

    n: int
    k: int
    scheme: Scheme
    isa: Isa

    @property
    def width(self) -> int:
        """Output columns of a tile."""
        return self.isa.tile_columns or COLUMN_VECTORS * self.isa.lanes

    def vectors_at_once(self, rows: int) -> int:
        """Vector registers of columns accumulated at a time, for this number of rows. Small code
        has half of them."""
        most = ROW_VECTORS if rows * self.isa.activation_parts == 1 else COLUMN_VECTORS
        most //= 2 if self.isa.small_code else 1
        return min(most, self.width // self.isa.lanes)

    @property
    def tiles(self) -> int:
        return -(-self.n // self.width)

    @property
    def group(self) -> int:
        """Weights per scale. Raises UnsupportedError if the scheme does not fit rows of k."""
        return self.scheme.group_of(self.k)

    @property
    def groups(self) -> int:
        return self.k // self.group

    @property
    def rows(self) -> RowForm:
        """The form of activations that the kernel takes."""
        return row_form(self.scheme, self.k)

    @property
    def stretches(self) -> int:
        return self.k // self.rows.group

    def first_group(self, stretch: Any) -> Any:
        """The group that contains a stretch, or the first one in it."""
        group, other = self.group, self.rows.group
        return stretch // (group // other) if group >= other else stretch * (other // group)

    @property
    def steps(self) -> int:
        """Steps of four k in a stretch."""
        return self.rows.group // planes.STEP

    @property
    def span(self) -> int:
        """Stretches that a kernel prepares at a time: a block, or some groups."""
        most = _SPAN // max(self.rows.group // self.group, 1)
        return min(self.scheme.block // self.rows.group or most, most)

    @property
    def vectors(self) -> int:
        """Code vectors of a stretch."""
        return planes.vectors_of(self.scheme.bits, self.steps)

    @property
    def flips(self) -> bool:
        """Whether 8-bit codes are stored signed, as a layout or the dot product requires."""
        stored = self.isa.stored_signed
        return self.scheme.bits == 8 and (self.isa.signed_codes if stored is None else stored)

    @property
    def tensors(self) -> tuple[PhysicalTensor, ...]:
        """Suffix, shape and dtype of each stored tensor; bf16 is stored as its bits."""
        how = self.scheme
        if how.is_float:
            dtype = "uint16" if how.dtype == "bfloat16" else how.dtype
            return (PhysicalTensor("", (self.tiles, self.k, self.width), dtype),)
        groups = (self.tiles, self.groups, self.width)
        blocks = (self.tiles, how.blocks_of(self.k), self.width)
        codes = (self.tiles, self.stretches * self.vectors, planes.STEP * self.width)
        minima = how.offset == MINIMA
        rows = [
            PhysicalTensor(".codes", codes, "uint8"),
            PhysicalTensor(".scales", blocks, how.scale_dtype),
            PhysicalTensor(".zeros", groups, "uint8") if how.offset == ZEROS else None,
            PhysicalTensor(".minima", blocks, "float16") if minima else None,
            PhysicalTensor(".sub_scales", groups, "int8") if how.block else None,
            PhysicalTensor(".sub_minima", groups, "int8") if how.block and minima else None,
        ]
        return tuple(row for row in rows if row is not None)

    def layout(self) -> WeightLayout:
        """Shapes, and the packing of an f32 matrix."""
        codes = None if self.scheme.is_float else self.pack_quantized
        return WeightLayout(self.tensors, self.pack, codes, tile=self.width)

    def pack(self, weight: npt.NDArray[np.float32]) -> list[Array]:
        """f32 [N, K], or some rows -> the arrays of `tensors`, quantized by the scheme."""
        if self.scheme.is_float:
            some = replace(self, n=len(weight))
            return [some._columns(to_storage(weight, self.scheme.dtype))]
        return self.pack_quantized(quantize(weight, self.scheme))

    def pack_quantized(self, q: Quantized) -> list[Array]:
        """Quantized codes (AWQ, GPTQ, GGUF), or some rows -> the arrays of `tensors`."""
        have, some = {name: getattr(q, name) for name in PARTS}, replace(self, n=len(q.codes))
        return [
            some._pack_codes(part) if name == "codes" else some._columns(part)
            for name, part in have.items()
            if part is not None
        ]

    def unpack(self, arrays: Sequence[Array]) -> npt.NDArray[np.float32]:
        """The matrix f32 [N, K] that the kernels see; for tests and inspection."""
        if self.scheme.is_float:
            return from_storage(self._rows(arrays[0]), self.scheme.dtype)
        names = [tensor.suffix[1:] for tensor in self.tensors]
        parts = {n: self._rows(a) for n, a in zip(names, arrays, strict=True) if n != "codes"}
        return dequantize(Quantized(self.scheme, self._unpack_codes(arrays[0]), **parts))

    def _columns(self, rows: Array) -> Array:
        """[N, any] -> [tiles, any, width]."""
        return np.ascontiguousarray(
            self._pad(rows).reshape(self.tiles, self.width, -1).transpose(0, 2, 1)
        )

    def _rows(self, columns: Array) -> Array:
        """[tiles, any, width] -> [N, any]."""
        padded = columns.transpose(0, 2, 1).reshape(self.tiles * self.width, -1)
        return np.ascontiguousarray(padded[: self.n])

    def _pad(self, rows: Array) -> Array:
        more = self.tiles * self.width - self.n
        return np.pad(rows, ((0, more), (0, 0))) if more else rows

    def _pack_codes(self, codes: Array) -> Array:
        if self.flips:
            codes = codes ^ np.uint8(128)
        shape = (self.tiles, self.width, self.stretches * self.steps)
        # a step is four bytes, which go together: as one number they are moved four times as fast
        whole = np.ascontiguousarray(self._pad(codes)).view(np.uint32).reshape(shape)
        steps = np.ascontiguousarray(whole.transpose(0, 2, 1)).view(np.uint8)
        lanes = steps.reshape(self.tiles, self.stretches, self.steps, -1)
        return planes.pack(lanes, self.scheme.bits).reshape(self.tensors[0].shape)

    def _unpack_codes(self, packed: Array) -> Array:
        vectors = packed.reshape(self.tiles, self.stretches, self.vectors, -1)
        steps = planes.unpack(vectors, self.scheme.bits, self.steps)
        shape = (self.tiles, self.stretches, self.steps, self.width, planes.STEP)
        codes = steps.reshape(shape).transpose(0, 3, 1, 2, 4)
        codes = codes.reshape(self.tiles * self.width, self.k)[: self.n]
        return np.ascontiguousarray(codes ^ np.uint8(128) if self.flips else codes)
