"""NVIDIA's Model Optimizer: NVFP4 (`weight` u8 with `weight_scale` and `weight_scale_2`) and fp8
(`weight` e4m3 with `weight_scale` by tensor or row), also both in one folder.

Activation and cache quantization settings are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlcc_compiler.checkpoint.formats import nvfp4, scaled
from mlcc_compiler.checkpoint.formats.packed import PackedMatrix, Parts


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    for _ in parts.named(".pre_quant_scale"):
        raise parts.unsupported("a scale of inputs (AWQ)")
    for stem, _ in parts.named(".weight_scale"):
        name, factor = f"{stem}.weight", f"{stem}.weight_scale_2"
        if not parts.has(name):
            continue
        if parts.dtype(name) == "uint8" and not parts.has(factor):
            how = str(config.get("quant_algo"))
            raise parts.unsupported(f"{how[:40]!r} without weight_scale_2")
        if parts.has(factor):
            yield name, nvfp4.matrix(parts, name, f"{stem}.weight_scale", factor)
        else:
            yield name, scaled.matrix(parts, name, f"{stem}.weight_scale")
