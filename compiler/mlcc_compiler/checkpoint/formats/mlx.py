"""MLX's affine quantization: `weight` u32 [N, K bits / 32], `scales` and `biases` [N, K / g]; a
weight is code * scale + bias. config.json has `quantization` without a method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mlcc_compiler.checkpoint.formats.packed import Floats, PackedMatrix, Parts, bits_of, unpack
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import MINIMA, affine

_FLOATS = ("float16", "bfloat16", "float32")


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    mode = str(config.get("mode", "affine"))
    if mode != "affine":
        raise parts.unsupported(f"mode {mode[:20]!r}")
    for stem, entry in parts.named(".scales"):
        own = config.get(stem)  # a layer may have numbers of its own
        given = own if isinstance(own, dict) else config
        yield f"{stem}.weight", _matrix(parts, stem, entry.name, given.get("group_size", 64))


def _matrix(parts: Parts, stem: str, scales: str, group: Any) -> PackedMatrix:
    name, biases = f"{stem}.weight", f"{stem}.biases"
    n, words = parts.shape(name, ("uint32",))
    rows, groups = parts.shape(scales, _FLOATS)
    if type(group) is not int or not 0 < group <= 1 << 20:
        raise parts.unsupported(f"group_size {str(group)[:20]}")
    k = groups * group
    bits = bits_of(words, k)
    if rows != n or bits is None or parts.shape(biases, _FLOATS) != (n, groups):
        raise parts.refuse(name, f"does not fit its scales, in groups of {group}")
    how = affine(bits, group, MINIMA)

    def load() -> Quantized:
        return Quantized(
            how,
            codes=unpack(parts.load(name), bits, k),
            scales=parts.load(scales).astype(np.float16),
            minima=parts.load(biases).astype(np.float16),
        )

    def floats() -> Floats:
        codes = unpack(parts.load(name), bits, k).reshape(n, groups, group).astype(np.float32)
        codes *= parts.load(scales).astype(np.float32)[:, :, None]
        return (codes + parts.load(biases).astype(np.float32)[:, :, None]).reshape(n, k)

    whole = how.fits(k) and parts.is_exact_f16(scales) and parts.is_exact_f16(biases)
    why = "" if whole else f"{how.name} with {parts.dtype(scales)} scales"
    return PackedMatrix(
        (n, k),
        (name, scales, biases),
        load if whole else floats,
        how.name if whole else "",
        why=why,
    )
