"""A small reader of the safetensors format (Hugging Face): a bounded header, then raw tensors.

Reads only headers, with the standard library. The compiler checks checkpoints with it, the runtime
locates the weights in its shards (`arrays.py` views them with numpy). The `safetensors` package is
not used: it has no header bound below 100 MB, and its errors name no tensor.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

from mlcc.util.fast_dataclass import fast_dataclass
from mlcc.util.files import FETCH_LFS, is_lfs_pointer

MAX_HEADER_BYTES = 16 << 20
"""About 100,000 tensors; the largest shards in use hold a few thousand."""
_MOST_DIMENSIONS = 32

DTYPE_BITS: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 8), "U8": ("uint8", 8), "I8": ("int8", 8), "U16": ("uint16", 16),
    "I16": ("int16", 16), "U32": ("uint32", 32), "I32": ("int32", 32), "U64": ("uint64", 64),
    "I64": ("int64", 64), "F16": ("float16", 16), "BF16": ("bfloat16", 16), "F32": ("float32", 32),
    "F64": ("float64", 64), "C64": ("complex64", 64), "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F4": ("float4_e2m1fn", 4), "F6_E2M3": ("float6_e2m3fn", 6), "F6_E3M2": ("float6_e3m2fn", 6),
}  # fmt: skip
CODES = {name: code for code, (name, _) in DTYPE_BITS.items()}
"""The format's code of each dtype name."""


class SafetensorsError(ValueError):
    """An invalid safetensors file; the message names the file and the fault."""


@fast_dataclass(frozen=True)
class TensorEntry:
    """Location of one tensor: byte offsets `start` and `stop` in the file, data little-endian and
    row-major."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file, in the order of their offsets. Raises SafetensorsError, OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if is_lfs_pointer(path):
            raise SafetensorsError(f"{path.name} {FETCH_LFS}")
        if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
            raise SafetensorsError(
                f"{path.name} is truncated or no safetensors file: it has {size} bytes "
                f"and says that its header has {length}"
            )
        text = file.read(length)
    entries = [_entry(path, name, row, 8 + length) for name, row in _parse(path, text)]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    _check_layout(path, entries, 8 + length, size)
    return {entry.name: entry for entry in entries}


def _parse(path: Path, text: bytes) -> list[tuple[str, Any]]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise SafetensorsError(f"{path.name}: its header names {twice!r} twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except SafetensorsError:
        raise
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{path.name}: its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise SafetensorsError(f"{path.name}: its header is not a JSON object")
    return [(name, row) for name, row in header.items() if name != "__metadata__"]


def _entry(path: Path, name: str, row: Any, data_start: int) -> TensorEntry:
    try:
        code, shape, (start, stop) = row["dtype"], tuple(row["shape"]), row["data_offsets"]
        numbers = (*shape, start, stop)
        if any(type(n) is not int or n < 0 for n in numbers):
            raise ValueError("negative or not an integer")
        if len(shape) > _MOST_DIMENSIONS or max(numbers) >= 1 << 63:
            raise ValueError(f"more than {_MOST_DIMENSIONS} dimensions or 2^63 elements")
    except (KeyError, TypeError, ValueError) as error:
        raise SafetensorsError(f"{path.name}: bad header entry for {name!r} ({error})") from error
    if not isinstance(code, str) or code not in DTYPE_BITS:
        raise SafetensorsError(f"{path.name}: tensor {name!r} has unknown dtype {code!r}")
    dtype, bits = DTYPE_BITS[code]
    if (stop - start) * 8 != prod(shape) * bits:
        raise SafetensorsError(
            f"{path.name}: tensor {name!r} has {stop - start} bytes, not those of {dtype} {shape}"
        )
    return TensorEntry(path, name, dtype, shape, data_start + start, data_start + stop)


def _check_layout(path: Path, entries: Iterable[TensorEntry], start: int, size: int) -> None:
    position, previous = start, "the header"
    for entry in entries:
        if entry.stop > size:
            raise SafetensorsError(
                f"{path.name} is truncated: tensor {entry.name!r} ends at byte {entry.stop}, "
                f"the file at {size}"
            )
        if entry.start != position:
            kind = "overlaps" if entry.start < position else "leaves a gap after"
            raise SafetensorsError(f"{path.name}: tensor {entry.name!r} {kind} {previous}")
        position, previous = entry.stop, repr(entry.name)
    if position != size:
        raise SafetensorsError(f"{path.name}: {size - position} bytes after the last tensor")
