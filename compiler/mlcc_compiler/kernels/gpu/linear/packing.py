"""How GPU kernels store a weight matrix: numpy packing, unpacking, and the shapes.

A matrix [N, K] keeps its rows; everything but f32 is packed along K into uint32 words, so that
devices with and without float16 read the same bytes:

    .codes    [N, ceil(K / 8)] 4 bits, [N, K / 4] 8 bits
    .scales   [N, ceil(groups / 2)]      two f16 a word, the first in the low half
    .zeros    [N, ceil(groups / 4)]      four bytes a word, asymmetric schemes only
    (floats)  [N, ceil(K / 2)]           two f16 or bf16 a word, or [N, K] f32

Rows end with zeros up to a whole word. Codes are stored signed, less the scheme's middle (their
top bit flipped), so that a symmetric weight is code * scale; zero points are as the scheme has
them. A word of 8-bit codes holds four neighbours, the first in the lowest byte. A word of 4-bit
codes holds eight: the first four in the low nibbles of its bytes, the next four in the high ones,
so that a shift and a mask give two words of bytes that are 16 times the codes.

A tensor that would be larger than a device's binding is cut into parts by rows, all tensors of a
weight at the same rows; part p is called ".p" after the rest. Nothing here knows TVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.layout import PhysicalTensor, WeightLayout
from mlcc_compiler.quantization import Quantized, Scheme, dequantize, quantize
from mlcc_compiler.quantization.floats import from_storage, to_storage

Array = npt.NDArray[Any]

_CHUNK = 1 << 22
"""Weights that are packed at a time."""

_SIGNS = {4: np.uint8(0x88), 8: np.uint8(0x80)}
"""The top bits of the codes in a byte."""

_INDEX = 1 << 31
"""Kernels count elements in int32."""

_PART_ROWS = 64
"""Parts begin at multiples of this many rows where they are that large."""


@dataclass(frozen=True)
class GpuPacking:
    """The physical form of one [N, K] matrix for bindings of at most `binding_bytes`."""

    n: int
    k: int
    scheme: Scheme
    binding_bytes: int

    @property
    def per_word(self) -> int:
        """Weights in an element of the first tensor."""
        return 32 // self.scheme.bits

    @property
    def words(self) -> int:
        """Elements of the first tensor in a row."""
        return -(-self.k // self.per_word)

    @property
    def group(self) -> int:
        """Weights per scale. Raises UnsupportedError if the scheme does not fit rows of k."""
        return self.scheme.group_of(self.k)

    @property
    def groups(self) -> int:
        return self.k // self.group

    @property
    def columns(self) -> list[tuple[str, int, str]]:
        """(suffix, row length, dtype) of each tensor of a part."""
        if self.scheme.is_float:
            return [("", self.words, "float32" if self.scheme.bits == 32 else "uint32")]
        rows = [
            (".codes", self.words, "uint32"),
            (".scales", -(-self.groups // 2), "uint32"),
            (".zeros", -(-self.groups // 4), "uint32"),
        ]
        return rows[:2] if self.scheme.symmetric else rows

    @cached_property
    def parts(self) -> tuple[range, ...]:
        """The rows of each part."""
        most = self.binding_bytes // (4 * max(width for _, width, _ in self.columns))
        most = min(most, (_INDEX - 1) // max(self.k, self.words))
        rows = -(-self.n // -(-self.n // max(most, 1)))
        rounded = -(-rows // _PART_ROWS) * _PART_ROWS
        rows = rounded if rounded <= most else rows
        return tuple(range(i, min(i + rows, self.n)) for i in range(0, self.n, rows))

    @property
    def tensors(self) -> list[PhysicalTensor]:
        """Suffix, shape and dtype of each stored tensor, part after part."""
        many = len(self.parts) > 1
        return [
            PhysicalTensor(f"{suffix}.{i}" if many else suffix, (len(rows), width), dtype)
            for i, rows in enumerate(self.parts)
            for suffix, width, dtype in self.columns
        ]

    def layout(self) -> WeightLayout:
        """Shapes, and the packing of an f32 matrix."""
        return WeightLayout(tuple(self.tensors), self.pack)

    def pack(self, weight: npt.NDArray[np.float32]) -> list[Array]:
        """f32 [N, K] -> the arrays of `tensors`, quantized by the scheme."""
        if self.scheme.bits == 32:
            whole = np.ascontiguousarray(weight, np.float32)
            return [whole[rows.start : rows.stop] for rows in self.parts]
        if self.scheme.is_float:
            return self._fill(lambda i: [_halves(to_storage(weight[i], self.scheme.dtype))])
        return self._fill(lambda i: self._words(quantize(weight[i], self.scheme)))

    def pack_quantized(self, q: Quantized) -> list[Array]:
        """Codes that are quantized already (AWQ, GPTQ, GGUF) -> the arrays of `tensors`."""

        def rows(i: slice) -> list[Array]:
            zeros = None if q.zeros is None else q.zeros[i]
            return self._words(Quantized(self.scheme, q.codes[i], q.scales[i], zeros))

        return self._fill(rows)

    def unpack(self, arrays: Sequence[Array]) -> npt.NDArray[np.float32]:
        """The matrix f32 [N, K] that the kernels see; for tests and inspection."""
        count = len(self.columns)
        whole = [np.concatenate(arrays[i::count]) for i in range(count)]
        if self.scheme.bits == 32:
            return np.asarray(whole[0], np.float32)
        if self.scheme.is_float:
            stored = "<f2" if self.scheme.dtype == "float16" else "<u2"
            return from_storage(whole[0].view(stored)[:, : self.k], self.scheme.dtype)
        codes = whole[0].view(np.uint8) ^ _SIGNS[self.scheme.bits]
        if self.scheme.bits == 4:
            fours = codes.reshape(self.n, -1, 1, 4)
            codes = np.concatenate([fours & 15, fours >> 4], axis=2).reshape(self.n, -1)
        scales = whole[1].view("<f2")[:, : self.groups]
        zeros = None if self.scheme.symmetric else whole[2].view(np.uint8)[:, : self.groups]
        return dequantize(Quantized(self.scheme, codes[:, : self.k], scales, zeros))

    def _fill(self, rows_of: Any) -> list[Array]:
        """The arrays of `tensors` from `rows_of(slice)`, a chunk of rows at a time."""
        arrays: list[Array] = []
        for rows in self.parts:
            part = [np.empty((len(rows), width), np.uint32) for _, width, _ in self.columns]
            for i in _chunks(rows, max(1, _CHUNK // max(self.k, 1))):
                for array, values in zip(part, rows_of(i), strict=True):
                    array[i.start - rows.start : i.stop - rows.start] = values
            arrays += part
        return arrays

    def _words(self, q: Quantized) -> list[Array]:
        """The words of some rows."""
        codes = _padded(q.codes, self.per_word, self.scheme.middle)
        if self.scheme.bits == 4:
            fours = codes.reshape(len(codes), -1, 2, 4)
            codes = (fours[:, :, 0] | fours[:, :, 1] << np.uint8(4)).reshape(len(codes), -1)
        words = [(codes ^ _SIGNS[self.scheme.bits]).view("<u4"), _halves(q.scales)]
        if not self.scheme.symmetric:
            assert q.zeros is not None
            words.append(_padded(q.zeros, 4).view("<u4"))
        return words


def _chunks(rows: range, step: int) -> Iterator[slice]:
    for first in range(rows.start, rows.stop, step):
        yield slice(first, min(first + step, rows.stop))


def _halves(values: Array) -> Array:
    """Rows of 16-bit elements as words."""
    return _padded(values, 2).view("<u4")


def _padded(values: Array, multiple: int, fill: int = 0) -> Array:
    """Rows filled up to a multiple."""
    more = -values.shape[1] % multiple
    if more:
        values = np.pad(values, ((0, 0), (0, more)), constant_values=fill)
    return np.ascontiguousarray(values)
