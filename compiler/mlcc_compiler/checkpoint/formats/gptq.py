"""GPTQ checkpoints (Frantar et al., 2022) as AutoGPTQ and GPTQModel write them.

`qweight` i32 [K bits / 32, N], `qzeros` i32 [G, N bits / 32], `scales` [G, N], and `g_idx` i32 [K],
the group of each input. With `desc_act` groups are not contiguous: no scheme supports that, and
such matrices are requantized. Stored zero points are one less, except in the format "gptq_v2". With
`sym` all are the middle; some files store it as it is, whatever their format (vLLM's Marlin kernels
do not read them either). With `dynamic` (GPTQModel) or `extra_config` (AutoRound) matrices have
widths and groups of their own, which follow from their shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.formats.packed import (
    Floats,
    PackedMatrix,
    Parts,
    bits_of,
    check_group,
    unpack,
)
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import ZEROS, affine


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    bits = config.get("bits")
    if type(bits) is not int or not 2 <= bits <= 8:
        raise parts.unsupported(f"a width of {str(bits)[:20]} bits")
    stored = str(config.get("checkpoint_format") or "gptq").lower()
    if stored not in ("gptq", "gptq_v2"):  # "marlin" and others are in the order of a kernel
        raise parts.unsupported(f"format {stored[:20]!r}")
    less = 0 if stored == "gptq_v2" else 1
    mixed = any(config.get(key) for key in _MIXED)
    group, symmetric = config.get("group_size"), config.get("sym", True) is not False
    for stem, entry in parts.named(".qweight"):
        width = _width(parts, stem, bits) if mixed else bits
        matrix = _matrix(parts, stem, entry.name, width, less, symmetric or mixed)
        k = matrix.shape[1]
        if not mixed:
            check_group(parts, entry.name, k // parts.folder.shapes[f"{stem}.scales"][0], group, k)
        yield f"{stem}.weight", matrix


_MIXED = ("dynamic", "extra_config")


def _width(parts: Parts, stem: str, bits: int) -> int:
    """The width of a matrix's codes by the shape of its zero points."""
    words = parts.shape(f"{stem}.qzeros", ("int32",))[1]
    return bits_of(words, parts.folder.shapes[f"{stem}.qweight"][1]) or bits


def _matrix(
    parts: Parts, stem: str, name: str, bits: int, less: int, symmetric: bool
) -> PackedMatrix:
    words, n = parts.shape(name, ("int32",))
    zeros, scales, order = f"{stem}.qzeros", f"{stem}.scales", f"{stem}.g_idx"
    groups, columns = parts.shape(scales, ("float16", "bfloat16", "float32"))
    k = words * 32 // bits
    zero_shape = parts.shape(zeros, ("int32",))
    if columns != n or k % groups or bits_of(words, k) != bits or zero_shape[0] != groups:
        raise parts.refuse(name, f"does not fit its scales, as {bits} bits")
    if bits_of(zero_shape[1], n) != bits:
        raise parts.refuse(zeros, f"does not fit its weight, as {bits} bits")
    group = k // groups
    index = _groups(parts, order, k, groups) if parts.has(order) else None
    how = affine(bits, group, ZEROS)

    def load() -> Quantized:
        return Quantized(
            how,
            codes=unpack(parts.load(name).T, bits, k),
            scales=np.ascontiguousarray(parts.load(scales).T.astype(np.float16)),
            zeros=np.ascontiguousarray(_zeros().T),
        )

    def floats() -> Floats:
        codes = unpack(parts.load(name).T, bits, k).astype(np.float32)
        of = np.arange(k) // group if index is None else index
        codes -= _zeros().T.astype(np.float32)[:, of]
        codes *= parts.load(scales).T.astype(np.float32)[:, of]
        return codes

    def _zeros() -> npt.NDArray[np.uint8]:
        """A stored zero minus one wraps around to the largest value."""
        stored, middle = unpack(parts.load(zeros), bits, n), np.uint8(1 << (bits - 1))
        if symmetric and ((stored == middle).all() or (stored == middle - 1).all()):
            return np.full_like(stored, middle)
        return (stored + np.uint8(less)) & np.uint8((1 << bits) - 1)

    used = (name, zeros, scales) + ((order,) if parts.has(order) else ())
    if index is not None and (index != np.arange(k) // group).any():
        return PackedMatrix(
            (n, k), used, floats, why="GPTQ whose groups are not neighbours (desc_act)"
        )
    whole = how.fits(k) and parts.is_exact_f16(scales)
    why = "" if whole else f"GPTQ with {parts.dtype(scales)} scales in groups of {group}"
    return PackedMatrix((n, k), used, load if whole else floats, how.name if whole else "", why=why)


def _groups(parts: Parts, name: str, k: int, groups: int) -> npt.NDArray[np.int64]:
    """The group of each input. Raises CheckpointError."""
    if parts.shape(name, ("int32", "int64"), 1) != (k,):
        raise parts.refuse(name, f"is not of {k} inputs")
    index = parts.load(name).astype(np.int64)
    if index.min() < 0 or index.max() >= groups:
        raise parts.refuse(name, f"names a group beyond {groups}")
    return index
