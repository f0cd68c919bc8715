"""How GPU kernels store a weight matrix: numpy packing, unpacking, and the shapes.

A matrix [N, K] keeps its rows; everything but f32 is packed along K into uint32 words, so that
devices with and without float16 read the same bytes:

    .codes    [N, words of all planes]   those of `kernels/planes.py`, a step of four codes a word
    .scales   [N, words]                 one after the other: scales, two f16 a word, the first in
                                         the low half; minima likewise; of two-level schemes the
                                         integers of scales and of minima, four bytes a word.
                                         Exponents are four a word, float32 scales one
    .zeros    [N, ceil(G / 4)]           four bytes a word, schemes with zero points
    (floats)  [N, ceil(K / 2)]           two f16 or bf16 a word, or [N, K] f32

Rows, and each kind of scale in them, end with zeros up to a whole word. Codes with a zero point are
stored signed, less the scheme's middle (their top bit flipped), so that a symmetric weight is code
* scale; zero points are as the scheme has them. A word of 8-bit codes holds four neighbours, the
first in the lowest byte. A word of 4-bit codes holds eight: the first four in the low nibbles of
its bytes, the next four in the high ones.

These words are stored row by row, or in another order that tensor cores read at once
(`fragments/order.py`): the target's row says which.

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

from mlcc_compiler.ir.layout import PhysicalTensor, WeightLayout
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.gpu.linear.fragments.order import (
    EDGE,
    Order,
    mirror,
    mirrored,
    order_of_codes,
    order_of_parts,
)
from mlcc_compiler.quantization import Quantized, Scheme, dequantize, quantize
from mlcc_compiler.quantization.floats import from_storage, to_storage
from mlcc_compiler.quantization.schemes import MINIMA, ZEROS

Array = npt.NDArray[Any]

_CHUNK = 1 << 22
"""Weights packed at a time."""

_INDEX = 1 << 31
"""Kernels count elements in int32."""

_PART_ROWS = 64
"""Parts start at multiples of this many rows where they are that large."""


@dataclass(frozen=True)
class GpuPacking:
    """The physical form of one [N, K] matrix for bindings of at most `binding_bytes`."""

    n: int
    k: int
    scheme: Scheme
    binding_bytes: int
    fragments: bool = False
    """Whether words are in the order of `fragments/order.py`, which must fit."""

    @property
    def words(self) -> int:
        """Elements of the first tensor in a row."""
        if self.scheme.is_float:
            return -(-self.k // (32 // self.scheme.bits))
        return sum(plane.vectors(self.steps) for plane in planes.planes_of(self.scheme.bits))

    @property
    def steps(self) -> int:
        """Steps of four codes in a row."""
        return self.k // planes.STEP

    @property
    def signed(self) -> bool:
        """Whether codes are stored minus the scheme's middle."""
        return not self.scheme.table and self.scheme.offset != MINIMA

    @property
    def group(self) -> int:
        """Weights per scale. Raises UnsupportedError if the scheme does not fit rows of k."""
        return self.scheme.group_of(self.k)

    @property
    def by_row(self) -> bool:
        """Whether sums of products are left with a float32 of each row alone: of 8-bit floats with
        a scale a row, and of NVFP4."""
        return self.scheme.is_nvfp4 or (self.scheme.is_e4m3 and self.groups == 1)

    @property
    def groups(self) -> int:
        return self.k // self.group

    @cached_property
    def scale_parts(self) -> dict[str, tuple[int, int]]:
        """Within a row of `.scales`: part of `Quantized` -> (first word, words)."""
        how = self.scheme
        level = -(-how.blocks_of(self.k) * np.dtype(how.scale_dtype).itemsize // 4)
        integers = -(-self.groups // 4) if how.block else 0
        sizes = {"scales": level, "sub_scales": integers}
        if how.offset == MINIMA:
            sizes = {"scales": level, "minima": level}
            sizes |= {"sub_scales": integers, "sub_minima": integers}
        found, first = {}, 0
        for name, size in sizes.items():
            if size:
                found[name] = (first, size)
                first += size
        return found

    @property
    def columns(self) -> list[tuple[str, int, str]]:
        """(suffix, row length, dtype) of each tensor of a part."""
        if self.scheme.is_float:
            return [("", self.words, "float32" if self.scheme.bits == 32 else "uint32")]
        rows = [
            (".codes", self.words, "uint32"),
            (".scales", sum(size for _, size in self.scale_parts.values()), "uint32"),
        ]
        zeros = [(".zeros", -(-self.groups // 4), "uint32")]
        return rows + zeros if self.scheme.offset == ZEROS else rows

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
            PhysicalTensor(f"{suffix}.{i}" if many else suffix, self.shape(len(rows), width), dtype)
            for i, rows in enumerate(self.parts)
            for suffix, width, dtype in self.columns
        ]

    def shape(self, rows: int, width: int) -> tuple[int, int]:
        """The stored shape of a tensor of `rows` rows."""
        return (rows // EDGE, EDGE * width) if self.fragments else (rows, width)

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        """Of each tensor's words, in fragments; () = row by row."""
        if not self.fragments:
            return ()
        if self.scheme.is_float:
            return (order_of_codes(self.k, self.scheme.bits),)
        scales = order_of_parts([size for _, size in self.scale_parts.values()])
        found = order_of_codes(self.k, self.scheme.bits), scales
        return (*found, order_of_parts([-(-self.groups // 4)])) if len(self.columns) > 2 else found

    @property
    def mirrored(self) -> bool:
        """Whether codes are stored as sign and magnitude."""
        return self.fragments and mirrored(self.scheme)

    def layout(self) -> WeightLayout:
        """Shapes, and the packing of an f32 matrix."""
        codes = None if self.scheme.is_float else self.pack_quantized
        return WeightLayout(tuple(self.tensors), self.pack, codes)

    def pack(self, weight: npt.NDArray[np.float32]) -> list[Array]:
        """f32 [N, K] -> the arrays of `tensors`, quantized by the scheme."""
        if self.scheme.bits == 32:
            whole = np.ascontiguousarray(weight, np.float32)
            return [whole[rows.start : rows.stop] for rows in self.parts]
        if self.scheme.is_float:
            return self._fill(lambda i: [_words(to_storage(weight[i], self.scheme.dtype))])
        return self._fill(lambda i: self._words(quantize(weight[i], self.scheme)))

    def pack_quantized(self, q: Quantized) -> list[Array]:
        """Quantized codes (AWQ, GPTQ, GGUF) -> the arrays of `tensors`."""
        return self._fill(lambda some: self._words(q.rows(some)))

    def unpack(self, arrays: Sequence[Array]) -> npt.NDArray[np.float32]:
        """The matrix f32 [N, K] that the kernels see; for tests and inspection."""
        count, how = len(self.columns), self.scheme
        whole = [np.concatenate(arrays[i::count]) for i in range(count)]
        if self.fragments:
            whole = [order.take(a) for order, a in zip(self.orders, whole, strict=True)]
        if how.bits == 32:
            return np.asarray(whole[0], np.float32)
        if how.is_float:
            stored = "<f2" if how.dtype == "float16" else "<u2"
            return from_storage(whole[0].view(stored)[:, : self.k], how.dtype)
        packed = whole[0].view(np.uint8).reshape(self.n, self.words, 4)
        codes = planes.unpack_block(packed, how.bits, self.steps).reshape(self.n, self.k)
        if self.mirrored:
            codes = mirror(codes, how.bits)
        parts = {}
        for name, (first, size) in self.scale_parts.items():
            dtype = {"scales": how.scale_dtype, "minima": "<f2"}.get(name, "int8")
            length = how.blocks_of(self.k) if name in ("scales", "minima") else self.groups
            words = np.ascontiguousarray(whole[1][:, first : first + size])
            parts[name] = words.view(dtype)[:, :length]
        if how.offset == ZEROS:
            parts["zeros"] = whole[2].view(np.uint8)[:, : self.groups]
        return dequantize(Quantized(how, codes ^ self._sign, **parts))

    def _fill(self, rows_of: Any) -> list[Array]:
        """The arrays of `tensors` from `rows_of(slice)`, a chunk of rows at a time."""
        arrays: list[Array] = []
        for rows in self.parts:
            shapes = [self.shape(len(rows), width) for _, width, _ in self.columns]
            part = [np.empty(shape, np.uint32) for shape in shapes]
            edge = EDGE if self.fragments else 1
            for i in _chunks(rows, edge * max(1, _CHUNK // max(self.k * edge, 1))):
                found = rows_of(i)
                if self.fragments:
                    found = [order.put(a) for order, a in zip(self.orders, found, strict=True)]
                for array, values in zip(part, found, strict=True):
                    array[(i.start - rows.start) // edge :][: len(values)] = values
            arrays += part
        return arrays

    def _words(self, q: Quantized) -> list[Array]:
        """The words of some rows."""
        codes = mirror(q.codes, self.scheme.bits) if self.mirrored else q.codes ^ self._sign
        steps = codes.reshape(len(codes), self.steps, planes.STEP)
        packed = np.ascontiguousarray(planes.pack_block(steps, self.scheme.bits))
        words = [packed.reshape(len(steps), 4 * self.words).view("<u4")]
        words.append(np.concatenate([_words(getattr(q, n)) for n in self.scale_parts], axis=1))
        if q.zeros is not None:
            words.append(_words(q.zeros))
        return words

    @property
    def _sign(self) -> np.uint8:
        """The top bit of a code, where it is flipped."""
        return np.uint8(self.scheme.middle if self.signed else 0)


def _chunks(rows: range, step: int) -> Iterator[slice]:
    for first in range(rows.start, rows.stop, step):
        yield slice(first, min(first + step, rows.stop))


def _words(values: Array) -> Array:
    """Rows of elements of 1, 2 or 4 bytes as words, padded with zeros."""
    more = -values.shape[1] % (4 // values.itemsize)
    if more:
        values = np.pad(values, ((0, 0), (0, more)))
    return np.ascontiguousarray(values).view("<u4")
