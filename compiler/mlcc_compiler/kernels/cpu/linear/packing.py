"""How the CPU kernels store a weight matrix: numpy packing, unpacking, and the shapes.

A matrix [N, K] is cut into tiles of `width` output columns (a few vector registers), padded with
zeros to whole tiles. Inside a tile the kernel's reads are one contiguous stream along K:

    floats   [tiles, K, width]
    codes    [tiles, K / group * vectors per group, width, 4]   four k of one column in one lane
    scales   [tiles, K / group, width]
    zeros    [tiles, K / group, width]                          asymmetric schemes only

Two 4-bit codes share a byte: the low nibble belongs to one step of four k, the high nibble to the
next, so that a mask and a shift unpack a whole register. Nothing here knows TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.layout import PhysicalTensor, WeightLayout
from mlcc_compiler.quantization import Quantized, Scheme, dequantize, quantize
from mlcc_compiler.quantization.floats import from_storage, to_storage

Array = npt.NDArray[Any]

COLUMN_VECTORS = 2
"""Vector registers side by side in a tile."""


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
        return COLUMN_VECTORS * self.isa.lanes

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
    def steps(self) -> int:
        """Steps of four k in a group."""
        return self.group // 4

    @property
    def codes_per_byte(self) -> int:
        return 8 // self.scheme.bits

    @property
    def vectors(self) -> int:
        """Code vectors per group; the last 4-bit one is half empty if the steps are odd."""
        return -(-self.steps // self.codes_per_byte)

    @property
    def tensors(self) -> tuple[PhysicalTensor, ...]:
        """Suffix, shape and dtype of each stored tensor; bf16 is stored as its bits."""
        if self.scheme.is_float:
            dtype = "uint16" if self.scheme.dtype == "bfloat16" else self.scheme.dtype
            return (PhysicalTensor("", (self.tiles, self.k, self.width), dtype),)
        per_group = (self.tiles, self.groups, self.width)
        codes = (self.tiles, self.groups * self.vectors, 4 * self.width)
        rows = [
            PhysicalTensor(".codes", codes, "uint8"),
            PhysicalTensor(".scales", per_group, "float16"),
        ]
        if not self.scheme.symmetric:
            rows.append(PhysicalTensor(".zeros", per_group, "uint8"))
        return tuple(rows)

    def layout(self) -> WeightLayout:
        """Shapes, and the packing of an f32 matrix."""
        return WeightLayout(self.tensors, self.pack)

    def pack(self, weight: npt.NDArray[np.float32]) -> list[Array]:
        """f32 [N, K] -> the arrays of `tensors`, quantized by the scheme."""
        if self.scheme.is_float:
            return [self._columns(to_storage(weight, self.scheme.dtype))]
        return self.pack_quantized(quantize(weight, self.scheme))

    def pack_quantized(self, q: Quantized) -> list[Array]:
        """Codes that are quantized already (AWQ, GPTQ, GGUF) -> the arrays of `tensors`."""
        arrays = [self._pack_codes(q.codes), self._columns(q.scales)]
        if not self.scheme.symmetric:
            assert q.zeros is not None
            arrays.append(self._columns(q.zeros))
        return arrays

    def unpack(self, arrays: Sequence[Array]) -> npt.NDArray[np.float32]:
        """The matrix f32 [N, K] that the kernels see; for tests and inspection."""
        if self.scheme.is_float:
            return from_storage(self._rows(arrays[0]), self.scheme.dtype)
        zeros = None if self.scheme.symmetric else self._rows(arrays[2])
        codes = self._unpack_codes(arrays[0])
        return dequantize(Quantized(self.scheme, codes, self._rows(arrays[1]), zeros))

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
        return np.pad(rows, ((0, self.tiles * self.width - self.n), (0, 0)))

    def _pack_codes(self, codes: Array) -> Array:
        if self.scheme.bits == 8 and self.isa.signed_codes:
            codes = codes ^ np.uint8(128)
        shape = (self.tiles, self.width, self.groups, self.steps, 4)
        steps = self._pad(codes).reshape(shape).transpose(0, 2, 3, 1, 4)
        if self.scheme.bits == 4:
            even, odd = steps[:, :, 0::2], steps[:, :, 1::2]
            packed = np.ascontiguousarray(even)
            packed[:, :, : odd.shape[2]] |= odd << np.uint8(4)
            steps = packed
        return np.ascontiguousarray(steps).reshape(self.tensors[0].shape)

    def _unpack_codes(self, packed: Array) -> Array:
        vectors = packed.reshape(self.tiles, self.groups, self.vectors, self.width, 4)
        if self.scheme.bits == 4:
            both = np.stack([vectors & 15, vectors >> 4], axis=3)
            shape = (self.tiles, self.groups, 2 * self.vectors, self.width, 4)
            vectors = both.reshape(shape)[:, :, : self.steps]
        codes = vectors.transpose(0, 3, 1, 2, 4).reshape(self.tiles * self.width, self.k)
        if self.scheme.bits == 8 and self.isa.signed_codes:
            codes = codes ^ np.uint8(128)
        return np.ascontiguousarray(codes[: self.n])
