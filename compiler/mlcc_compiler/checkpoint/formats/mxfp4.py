"""MXFP4 as gpt-oss is published: `NAME_blocks` u8 [E, N, K / 32, 16] with `NAME_scales` u8 [E, N, K
/ 32], all experts of a layer in one tensor; read as matrices `NAME.0`, `NAME.1`, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlcc_compiler.checkpoint.formats.packed import PackedMatrix, Parts, unpack
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import SCHEMES


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder; `checkpoint/name_maps.py` has gpt-oss's names."""
    for stem, entry in parts.named("_blocks"):
        experts, n, groups, width = parts.shape(entry.name, ("uint8",), 4)
        scales = f"{stem}_scales"
        if width != 16 or parts.shape(scales, ("uint8",), 3) != (experts, n, groups):
            raise parts.refuse(entry.name, "does not fit its scales, as MXFP4")
        for expert in range(experts):
            yield f"{stem}.{expert}", _matrix(parts, entry.name, scales, expert, (n, groups * 32))


def _matrix(
    parts: Parts, name: str, scales: str, expert: int, shape: tuple[int, int]
) -> PackedMatrix:
    def load() -> Quantized:
        codes = unpack(parts.load(name, expert).reshape(shape[0], -1), 4, shape[1])
        return Quantized(SCHEMES["mxfp4"], codes, parts.load(scales, expert))

    return PackedMatrix(shape, (name, scales), load, "mxfp4")
