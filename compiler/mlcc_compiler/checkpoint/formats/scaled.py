"""Matrices of one byte a weight with scales by row, group, tensor or block: int8 and fp8 (e4m3).

Used by compressed-tensors, DeepSeek's fp8 blocks and bitsandbytes' int8.
"""

from __future__ import annotations

import numpy as np

from mlcc_compiler.checkpoint.formats.packed import Array, Floats, PackedMatrix, Parts
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import E4M3_SCALE, FALLBACK, affine, e4m3

_FLOATS = ("float16", "bfloat16", "float32")


def matrix(
    parts: Parts,
    name: str,
    scale: str,
    *,
    block: tuple[int, int] | None = None,
    divisor: float = 1.0,
    expert: int | None = None,
) -> PackedMatrix:
    """weight * scale / divisor; `block` rows and columns share a scale, if given. expert: of
    tensors whose first dimension is the expert's."""
    *experts, n, k = parts.shape(name, ("int8", "float8_e4m3fn"), 2 if expert is None else 3)
    shape = parts.shape(scale, _FLOATS, 0)
    if experts and shape[:1] != (experts[0],):
        raise parts.refuse(scale, f"is {shape}, and the experts are {experts[0]}")
    shape = shape[len(experts) :]
    _check(parts, name, scale, (n, k), shape, block)
    if parts.dtype(name) != "int8" and divisor == 1:
        return _eights(parts, (name, scale), (n, k), shape, block, expert)
    groups = _groups(shape, n, k) if block is None else None
    integers = parts.dtype(name) == "int8" and groups is not None and divisor == 1
    how = affine(8, k // groups if groups and groups > 1 else 0)

    def load() -> Quantized:
        codes = parts.load(name).view(np.uint8) ^ np.uint8(128)
        scales = np.broadcast_to(_two(parts.load(scale)), (n, groups or 1))
        return Quantized(how, codes, np.ascontiguousarray(scales.astype(np.float16)))

    def floats() -> Floats:
        weight = parts.load(name, expert).astype(np.float32)
        weight *= _spread(parts.load(scale, expert).astype(np.float32), (n, k), block)
        return weight if divisor == 1 else weight / np.float32(divisor)

    if integers and how.fits(k) and parts.is_exact_f16(scale):
        return PackedMatrix((n, k), (name, scale), load, how.name)
    dtype = "fp8" if parts.dtype(name) != "int8" else f"int8 with {parts.dtype(scale)} scales"
    nearest = FALLBACK if dtype == "fp8" else how.name
    return PackedMatrix((n, k), (name, scale), floats, nearest=nearest, why=dtype)


def _eights(
    parts: Parts,
    names: tuple[str, str],
    shape: tuple[int, int],
    scales: tuple[int, ...],
    block: tuple[int, int] | None,
    expert: int | None,
) -> PackedMatrix:
    """8-bit floats, as they are if no group's scale is too large and groups divide the rows."""
    (name, scale), (n, k) = names, shape
    columns = (_groups(scales, n, k) or 1) if block is None else -(-k // block[1])
    how = e4m3(0 if columns == 1 else k // columns if block is None else block[1])

    def spread() -> Floats:
        found = parts.load(scale, expert).astype(np.float32)
        rows = np.repeat(found, block[0], axis=0)[:n] if block else _two(found)
        return np.ascontiguousarray(np.broadcast_to(rows, (n, columns)))

    def load() -> Quantized:
        return Quantized(how, parts.load(name, expert, as_codes=True), spread())

    def floats() -> Floats:
        weight = parts.load(name, expert).astype(np.float32)
        weight *= _spread(parts.load(scale, expert).astype(np.float32), (n, k), block)
        return weight

    small = not how.group or float(np.abs(parts.load(scale, expert)).max()) <= E4M3_SCALE
    if how.fits(k) and small:
        return PackedMatrix(shape, names, load, how.name)
    return PackedMatrix(shape, names, floats, why="fp8")


def _check(
    parts: Parts,
    name: str,
    scale: str,
    shape: tuple[int, ...],
    found: tuple[int, ...],
    block: tuple[int, int] | None,
) -> None:
    n, k = shape
    if block is not None:
        wanted = (-(-n // block[0]), -(-k // block[1]))
        if found != wanted:
            raise parts.refuse(
                scale, f"is {found}, not {wanted}, for blocks of {block} in {name!r}"
            )
    elif _groups(found, n, k) is None:
        raise parts.refuse(scale, f"is {found}, which fits no weight of {n} x {k}")


def _groups(shape: tuple[int, ...], n: int, k: int) -> int | None:
    """Scales per row, one for a tensor or row scale; None if the shapes do not fit."""
    if shape in ((), (1,), (n,), (n, 1), (1, 1)):
        return 1
    return shape[1] if len(shape) == 2 and shape[0] == n and k % shape[1] == 0 else None


def _two(scale: Array) -> Array:
    return scale.reshape(-1, 1) if scale.ndim < 2 else scale


def _spread(scale: Floats, shape: tuple[int, int], block: tuple[int, int] | None) -> Floats:
    """The scale of each weight, in a broadcastable shape."""
    if block is not None:
        rows = np.repeat(scale, block[0], axis=0)[: shape[0]]
        return np.repeat(rows, block[1], axis=1)[:, : shape[1]]
    two = _two(scale)
    return np.repeat(two, shape[1] // two.shape[1], axis=1) if two.shape[1] > 1 else two
