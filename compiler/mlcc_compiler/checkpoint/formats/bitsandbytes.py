"""bitsandbytes: nf4 and fp4 with blocks of 64 (QLoRA, Dettmers et al., 2023), and int8 rows.

`weight` is u8 [N K / 2, 1], the first weight in the high half; `weight.absmax` a scale a block,
itself quantized to eight bits with "double quantization"; a JSON text in a tensor has the shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from mlcc_compiler.checkpoint.formats import scaled
from mlcc_compiler.checkpoint.formats.packed import Floats, PackedMatrix, Parts
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import NF4, SCHEMES

_STATE = ".quant_state.bitsandbytes__"
_MAX_STATE = 1 << 16


def matrices(parts: Parts, config: Mapping[str, Any]) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices of a folder, by the model's names."""
    for kind in ("nf4", "fp4"):
        for name, entry in parts.named(_STATE + kind):
            yield name, _four_bits(parts, name, entry.name, kind)
    for stem, _ in parts.named(".SCB"):
        yield f"{stem}.weight", scaled.matrix(parts, f"{stem}.weight", f"{stem}.SCB", divisor=127.0)


def _four_bits(parts: Parts, name: str, state_name: str, kind: str) -> PackedMatrix:
    state = _state(parts, state_name)
    shape, size = state.get("shape"), state.get("blocksize")
    if not (_is_shape(shape) and type(size) is int and size > 0):
        raise parts.refuse(state_name, "has no shape and blocksize")
    n, k = list(shape or ())
    if prod(parts.shape(name, ("uint8",), 0)) * 2 != n * k or n * k % size:
        raise parts.refuse(name, f"does not fit its shape, {n} x {k}, in blocks of {size}")
    table, absmax = f"{name}.quant_map", f"{name}.absmax"
    if parts.shape(table, ("float32",), 1) != (16,):
        raise parts.refuse(table, "has not 16 values")
    nested = parts.shape(absmax, ("float32", "uint8"), 1) and parts.dtype(absmax) == "uint8"
    if parts.shape(absmax, ("float32", "uint8"), 1) != (n * k // size,):
        raise parts.refuse(absmax, f"has not a scale for each block of {size}")
    if nested:
        _check_nested(parts, name, state_name, state, n * k // size)

    def scales() -> Floats:
        found = parts.load(absmax)
        if not nested:
            return np.asarray(found)
        values = parts.load(f"{name}.nested_quant_map")[found]
        outer = parts.load(f"{name}.nested_absmax")
        values = values * outer[np.arange(len(values)) // state["nested_blocksize"]]
        return (values + np.float32(state["nested_offset"])).astype(np.float32)

    def codes() -> Any:
        packed = parts.load(name).reshape(-1)
        return np.stack([packed >> 4, packed & 15], axis=1).reshape(n, k)

    def load() -> Quantized:
        return Quantized(SCHEMES["nf4"], codes(), scales().reshape(n, k // size))

    def floats() -> Floats:
        values = parts.load(table)[codes()].reshape(-1, size)
        return (values * scales()[:, None]).reshape(n, k)

    same = np.array_equal(parts.load(table), np.asarray(NF4, np.float32))
    whole = same and size == SCHEMES["nf4"].group and k % size == 0
    extra = ("nested_quant_map", "nested_absmax") if nested else ()
    used = (name, state_name, table, absmax, *(f"{name}.{part}" for part in extra))
    why = "" if whole else f"{kind} of bitsandbytes in blocks of {size}"
    return PackedMatrix((n, k), used, load if whole else floats, "nf4" if whole else "", why=why)


def _state(parts: Parts, name: str) -> dict[str, Any]:
    if parts.shape(name, ("uint8",), 1)[0] > _MAX_STATE:
        raise parts.refuse(name, "is too long")
    try:
        found = json.loads(parts.load(name).tobytes())
    except (ValueError, RecursionError) as error:
        raise parts.refuse(name, f"is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise parts.refuse(name, "is no JSON object")
    return found


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_size(x) for x in value)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 31


def _check_nested(
    parts: Parts, name: str, state_name: str, state: Mapping[str, Any], blocks: int
) -> None:
    size, offset = state.get("nested_blocksize"), state.get("nested_offset")
    if not _is_size(size) or not isinstance(offset, (int, float)) or abs(offset) > 1e30:
        raise parts.refuse(state_name, "has no nested_blocksize and nested_offset")
    if parts.shape(f"{name}.nested_quant_map", ("float32",), 1) != (256,):
        raise parts.refuse(f"{name}.nested_quant_map", "has not 256 values")
    if parts.shape(f"{name}.nested_absmax", ("float32",), 1) != (-(-blocks // int(size or 1)),):
        raise parts.refuse(f"{name}.nested_absmax", f"has not a scale for each {size} blocks")
