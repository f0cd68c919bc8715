"""A quantized matrix in memory, as file readers and searches produce it and kernels' packers take
it.

In logical order, one byte per code, independent of any file's or kernel's layout. `dequantize`
defines the values, in float32; it is bit-identical to the formats' own references, as no product
here has more than 24 bits and a sum is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc_compiler.quantization.schemes import E4M3, E4M3_SCALE, MINIMA, ZEROS, Scheme

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

_NO_EXPONENT = 255
"""The NaN of e8m0."""
_ROWS = 1024
"""Rows that are checked at a time."""
PARTS = ("codes", "scales", "zeros", "minima", "sub_scales", "sub_minima")


@dataclass(frozen=True)
class Quantized:
    """A matrix [N, K] with G groups and B blocks a row (`Scheme.groups_of`, `blocks_of`).

    Parts that a scheme does not have are None; `check` verifies them.
    """

    scheme: Scheme
    codes: Codes
    """[N, K], 0 .. 2**bits - 1. Signed int8 of a file is stored plus 128."""
    scales: Array
    """[N, G] or, two-level, [N, B], of the scheme's `scale_dtype`; may be negative."""
    zeros: Codes | None = None
    """u8 [N, G], for offset "zeros": subtracted from the code."""
    minima: Array | None = None
    """f16 like `scales`, for offset "minima": added. GGUF's K-quants subtract: negate."""
    sub_scales: npt.NDArray[np.int8] | None = None
    """[N, G] of two-level schemes: integers; those of Q3_K and IQ4_XS minus 32. Bits of 8-bit
    floats of NVFP4."""
    sub_minima: npt.NDArray[np.int8] | None = None
    """[N, G] of two-level schemes with minima."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        n, k = self.codes.shape
        return n, k

    def rows(self, some: slice) -> Quantized:
        """Some rows, without a copy."""
        return self._each(lambda part: part[some])

    def _each(self, change: Callable[[Array], Array]) -> Quantized:
        have = {name: getattr(self, name) for name in PARTS}
        parts: dict[str, Any] = {n: change(p) for n, p in have.items() if p is not None}
        return replace(self, **parts)

    def check(self, name: str) -> None:
        """Raises CheckpointError, with the tensor's name, unless all parts are present, with
        the right shapes and types, codes in range and finite scales."""
        how, (n, k) = self.scheme, self.shape
        groups, blocks = how.groups_of(k), how.blocks_of(k)
        minima = (n, blocks) if how.offset == MINIMA else None
        wanted = {
            "codes": ((n, k), "uint8"),
            "scales": ((n, blocks), how.scale_dtype),
            "zeros": ((n, groups) if how.offset == ZEROS else None, "uint8"),
            "minima": (minima, "float16"),
            "sub_scales": ((n, groups) if how.block else None, "int8"),
            "sub_minima": ((n, groups) if how.block and minima else None, "int8"),
        }
        for part, (shape, dtype) in wanted.items():
            array = getattr(self, part)
            found = None if array is None else (array.shape, str(array.dtype))
            if found != (shape and (shape, dtype)):
                raise CheckpointError(
                    f"tensor '{name}' as {how.name}: {part} are {found}, not {shape} of {dtype}; "
                    "fetch the checkpoint again"
                )
        floats = [p for p in (self.scales, self.minima) if p is not None and p.dtype != np.uint8]
        if self.codes.size and int(self.codes.max()) > how.levels:
            raise CheckpointError(f"tensor '{name}' has a code beyond {how.bits} bits")
        if how.is_e4m3:
            self._check_e4m3(name, self.codes)
            many = how.group > 0 and self.scales.size > 0
            if many and float(np.abs(self.scales).max()) > E4M3_SCALE:
                raise CheckpointError(f"tensor '{name}' has a scale beyond {E4M3_SCALE}")
        if how.is_nvfp4 and self.sub_scales is not None:
            self._check_e4m3(name, self.sub_scales)
        exponents = self.scales.dtype == np.uint8 and bool((self.scales == _NO_EXPONENT).any())
        if exponents or not all(np.isfinite(part).all() for part in floats):
            raise CheckpointError(
                f"tensor '{name}' has a scale that is NaN or infinite; the checkpoint is damaged, "
                "fetch it again"
            )

    @staticmethod
    def _check_e4m3(name: str, bits: Array) -> None:
        for first in range(0, len(bits), _ROWS):
            if ((bits[first : first + _ROWS] & 127) == 127).any():
                raise CheckpointError(
                    f"tensor '{name}' holds NaN; the checkpoint is damaged, fetch it again"
                )


def stack(matrices: Sequence[Quantized]) -> Quantized:
    """Matrices of one scheme and row length concatenated by rows."""
    first = matrices[0]
    if len(matrices) == 1:
        return first
    names = [name for name in PARTS if getattr(first, name) is not None]
    joined: dict[str, Any] = {n: np.concatenate([getattr(m, n) for m in matrices]) for n in names}
    return replace(first, **joined)


def group_scales(q: Quantized) -> Floats:
    """The scale of each group, f32 [N, G]."""
    scales = _widened(q.scales)
    if q.sub_scales is None:
        return scales
    if q.scheme.is_nvfp4:
        return scales * np.asarray(E4M3, np.float32)[q.sub_scales.view(np.uint8)]
    return _of_groups(q, scales) * q.sub_scales.astype(np.float32)


def group_minima(q: Quantized) -> Floats | None:
    """The minimum of each group, f32 [N, G]; None = 0."""
    if q.minima is None:
        return None
    minima = q.minima.astype(np.float32)
    return minima if q.sub_minima is None else _of_groups(q, minima) * q.sub_minima.astype("f4")


def dequantize(q: Quantized) -> Floats:
    """f32 [N, K], the values that every kernel computes with."""
    how, (n, k) = q.scheme, q.shape
    scales = group_scales(q)[:, :, None]
    groups = scales.shape[1]
    codes = q.codes.reshape(n, groups, k // groups if groups else 0)
    if how.table:
        return (np.asarray(how.table, np.float32)[codes] * scales).reshape(n, k)
    values = codes.astype(np.float32)
    minima = group_minima(q)
    if minima is None:
        values -= how.middle if q.zeros is None else q.zeros.astype(np.float32)[:, :, None]
        values *= scales
    else:
        values *= scales
        values += minima[:, :, None]
    return values.reshape(n, k)


def _widened(scales: Array) -> Floats:
    """Stored scales in float32; bytes are exponents."""
    if scales.dtype == np.uint8:
        return np.ldexp(np.float32(1), scales.astype(np.int32) - 127).astype(np.float32)
    return scales.astype(np.float32)


def _of_groups(q: Quantized, blocks: Floats) -> Floats:
    """Repeat a block's number for each of its groups."""
    k, group = q.shape[1], q.scheme.group_of(q.shape[1])
    return np.repeat(blocks, q.scheme.block // group, axis=1)[:, : k // group]
