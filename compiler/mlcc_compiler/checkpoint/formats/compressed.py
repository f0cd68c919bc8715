"""compressed-tensors, the format of vLLM's llm-compressor: packed integers (w4a16, w8a16), int8
(w8a8) and fp8 with scales by row, group, tensor or block, packed MXFP4 and NVFP4.

Activation quantization settings are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.formats import nvfp4, scaled
from mlcc_compiler.checkpoint.formats.packed import Floats, PackedMatrix, Parts, bits_of, unpack
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import MIDDLE, SCHEMES, ZEROS, affine

_FLOATS = ("float16", "bfloat16", "float32")
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "dense",
            "mixed-precision", "mxfp4-pack-quantized", "nvfp4-pack-quantized")  # fmt: skip


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    how = str(config.get("format", "dense"))
    if how not in _FORMATS:
        raise parts.unsupported(f"format {how[:40]!r}")
    for stem, entry in parts.named(".weight_packed"):
        if entry.dtype == "uint8" and parts.has(f"{stem}.weight_global_scale"):
            names = (f"{stem}.{part}" for part in ("weight_scale", "weight_global_scale"))
            yield f"{stem}.weight", nvfp4.matrix(parts, entry.name, *names, divides=True)
        elif entry.dtype == "uint8":
            yield f"{stem}.weight", _mxfp4(parts, stem, entry.name)
        else:
            yield f"{stem}.weight", _integers(parts, stem, entry.name)
    block = _block(config)
    for stem, _ in parts.named(".weight_scale"):
        if parts.has(f"{stem}.weight"):
            yield f"{stem}.weight", _whole(parts, stem, block)


def _block(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns that share a scale, if a group of the config has such blocks."""
    for group in config.get("config_groups", {}).values():
        found = (group.get("weights") or {}).get("block_structure")
        if isinstance(found, list) and len(found) == 2:
            return int(found[0]), int(found[1])
    return None


def _whole(parts: Parts, stem: str, block: tuple[int, int] | None) -> PackedMatrix:
    if parts.has(f"{stem}.weight_zero_point"):
        raise parts.unsupported("a zero point of int8 or fp8")
    name, scale = f"{stem}.weight", f"{stem}.weight_scale"
    if block and parts.dtype(name) == "float8_e4m3fn":
        n, k = parts.shape(name, ("float8_e4m3fn",))
        blocks = -(-n // block[0]), -(-k // block[1])
        if parts.shape(scale, _FLOATS, 0) == blocks:
            return scaled.matrix(parts, name, scale, block=block)
    return scaled.matrix(parts, name, scale)


def _integers(parts: Parts, stem: str, name: str) -> PackedMatrix:
    n, words = parts.shape(name, ("int32",))
    scales, zeros, order = (f"{stem}.weight_{p}" for p in ("scale", "zero_point", "g_idx"))
    declared = f"{stem}.weight_shape"
    if parts.shape(declared, ("int64", "int32"), 1) != (2,):
        raise parts.refuse(declared, "is no shape")
    rows, k = (int(each) for each in parts.load(declared))
    rows_of_scales, groups = parts.shape(scales, _FLOATS)
    bits = next((b for b in (2, 4, 8) if -(-k * b // 32) == words), None)
    odd = next((b for b in (3, 5, 6, 7) if -(-k // (32 // b)) == words), None)
    if bits is None and odd is not None:
        raise parts.unsupported(f"a width of {odd} bits")
    if rows != n or rows_of_scales != n or bits is None or k < 1 or k % groups:
        raise parts.refuse(name, f"does not fit its shape, {rows} x {k}, and scales")
    index = _groups(parts, order, k, groups)
    has_zeros = parts.has(zeros)
    if has_zeros and bits_of(parts.shape(zeros, ("int32",))[0], n) != bits:
        raise parts.refuse(zeros, "does not fit its weight")
    how = affine(bits, k // groups, ZEROS if has_zeros else MIDDLE)

    def load() -> Quantized:
        return Quantized(
            how,
            codes=unpack(parts.load(name), bits, k),
            scales=parts.load(scales).astype(np.float16),
            zeros=_zeros() if has_zeros else None,
        )

    def floats() -> Floats:
        codes = unpack(parts.load(name), bits, k).astype(np.float32)
        less = _zeros().astype(np.float32) if has_zeros else np.full((1, 1), how.middle, np.float32)
        less, by = np.broadcast_to(less, (n, groups)), parts.load(scales).astype(np.float32)
        return (codes - less[:, index]) * by[:, index]

    def _zeros() -> npt.NDArray[np.uint8]:
        """Packed along rows: i32 [N bits / 32, G]."""
        return np.ascontiguousarray(unpack(parts.load(zeros).T, bits, n).T)

    used = tuple(p for p in (name, scales, zeros, order, declared) if parts.has(p))
    if (index != np.arange(k) // (k // groups)).any():
        why = "compressed-tensors whose groups are not neighbours (actorder)"
        return PackedMatrix((n, k), used, floats, why=why)
    whole = how.fits(k) and parts.is_exact_f16(scales)
    why = "" if whole else f"{how.name} with {parts.dtype(scales)} scales"
    return PackedMatrix((n, k), used, load if whole else floats, how.name if whole else "", why=why)


def _groups(parts: Parts, name: str, k: int, groups: int) -> npt.NDArray[np.int64]:
    """The scale of each input: by its `weight_g_idx`, where that is set, or in order."""
    ordered = np.arange(k) // (k // groups)
    if not parts.has(name):
        return ordered
    if parts.shape(name, ("int32", "int64"), 1) != (k,):
        raise parts.refuse(name, f"is not of {k} inputs")
    index = parts.load(name).astype(np.int64)
    if (index == -1).any():  # not set, as in the format's library
        return ordered
    if index.min() < 0 or index.max() >= groups:
        raise parts.refuse(name, f"names a group beyond {groups}")
    return index


def _mxfp4(parts: Parts, stem: str, name: str) -> PackedMatrix:
    n, half = parts.shape(name, ("uint8",))
    scales = f"{stem}.weight_scale"
    if parts.shape(scales, ("uint8",)) != (n, half // 16) or half % 16:
        raise parts.refuse(name, "does not fit its scales, as MXFP4")

    def load() -> Quantized:
        codes = unpack(parts.load(name), 4, 2 * half)
        return Quantized(SCHEMES["mxfp4"], codes, parts.load(scales))

    return PackedMatrix((n, 2 * half), (name, scales), load, "mxfp4")
