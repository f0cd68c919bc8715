"""fp8 as DeepSeek-V3 and Qwen publish it: e4m3 weights with a scale per block of 128 x 128, or per
row or tensor (`fbgemm_fp8`). All experts of a layer may be in one tensor, `NAME` [E, rows, columns]
with `NAME_scale_inv` (Qwen3-VL); they are read as matrices `NAME.0`, `NAME.1`, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlcc_compiler.checkpoint.formats import scaled
from mlcc_compiler.checkpoint.formats.packed import PackedMatrix, Parts


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    block = _block(parts, config)
    for suffix in ("_scale_inv", "_scale"):
        for stem, scale in parts.named(suffix):
            found = block if suffix == "_scale_inv" else None
            if stem.endswith(".weight") and parts.has(stem):
                yield stem, scaled.matrix(parts, stem, stem + suffix, block=found)
            elif parts.has(stem) and len(scale.shape) == 3:
                (experts, *_) = parts.shape(stem, ("float8_e4m3fn",), 3)
                for each in range(experts):
                    matrix = scaled.matrix(parts, stem, stem + suffix, block=found, expert=each)
                    yield f"{stem}.{each}", matrix


def _block(parts: Parts, config: Mapping[str, Any]) -> tuple[int, int] | None:
    given = config.get("weight_block_size")
    if given is None:
        return None
    if isinstance(given, list) and len(given) == 2 and all(type(x) is int and x > 0 for x in given):
        return given[0], given[1]
    raise parts.unsupported(f"weight_block_size {str(given)[:40]}")
