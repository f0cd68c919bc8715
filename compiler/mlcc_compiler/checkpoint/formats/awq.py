"""AWQ (Lin et al., 2023) as AutoAWQ writes it, version "gemm": four bits with zero points.

`qweight` i32 [K, N / 8], `qzeros` i32 [K / g, N / 8], `scales` f16 [K / g, N]. A word has eight
columns, in an order that suits a tensor-core kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.formats.packed import (
    Array,
    Floats,
    PackedMatrix,
    Parts,
    check_group,
    unpack,
)
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import ZEROS, affine

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Column of each nibble of a word."""


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    if config.get("bits", 4) != 4:
        raise parts.unsupported(f"a width of {str(config.get('bits'))[:20]} bits")
    version = str(config.get("version") or config.get("checkpoint_format") or "gemm").lower()
    if version != "gemm":
        raise parts.unsupported(f"version {version[:20]!r}")
    group = config.get("group_size")
    for stem, entry in parts.named(".qweight"):
        yield f"{stem}.weight", _matrix(parts, stem, entry.name, group)


def _matrix(parts: Parts, stem: str, name: str, group: Any) -> PackedMatrix:
    k, words = parts.shape(name, ("int32",))
    zeros, scales = f"{stem}.qzeros", f"{stem}.scales"
    groups, n = parts.shape(scales, ("float16", "bfloat16", "float32"))
    if words * 8 != n or k % groups or parts.shape(zeros, ("int32",)) != (groups, words):
        raise parts.refuse(name, "does not fit its scales and zero points")
    check_group(parts, name, k // groups, group, k)
    how = affine(4, k // groups, ZEROS)
    whole = how.fits(k) and parts.is_exact_f16(scales)

    def load() -> Quantized:
        return Quantized(
            how,
            codes=_columns(parts.load(name)),
            scales=np.ascontiguousarray(parts.load(scales).T.astype(np.float16)),
            zeros=_columns(parts.load(zeros)),
        )

    def floats() -> Floats:
        less = np.repeat(_columns(parts.load(zeros)).astype(np.float32), how.group, axis=1)
        by = np.repeat(parts.load(scales).T.astype(np.float32), how.group, axis=1)
        return (_columns(parts.load(name)) - less) * by

    why = "" if whole else f"AWQ with {parts.dtype(scales)} scales in groups of {how.group}"
    used = (name, zeros, scales)
    return PackedMatrix((n, k), used, load if whole else floats, how.name if whole else "", why=why)


def _columns(words: Array) -> npt.NDArray[np.uint8]:
    """i32 [R, C / 8] -> u8 [C, R], columns in order."""
    codes = unpack(words, 4, words.shape[1] * 8).reshape(-1, 8)
    inverse = np.argsort(_ORDER)
    return np.ascontiguousarray(codes[:, inverse].reshape(len(words), -1).T)
