"""Float weights in 16 or 32 bits: rounding to a float format, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.quantization.native_search import aligned

Array = npt.NDArray[Any]


def to_storage(values: npt.NDArray[np.float32], dtype: str) -> Array:
    """f32 -> float32, float16, or bfloat16 bits as uint16 (round to nearest even)."""
    if dtype != "bfloat16":
        return values.astype(np.dtype(dtype), copy=False)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def from_storage(stored: Array, dtype: str) -> npt.NDArray[np.float32]:
    """The inverse of `to_storage`."""
    if dtype != "bfloat16":
        return stored.astype(np.float32)
    bits = aligned(stored.shape, "uint32")
    np.left_shift(stored, 16, out=bits, dtype=np.uint32)  # widens in the cache, block by block
    return np.asarray(bits.view(np.float32))
