"""Writes weights as safetensors shards, streamed and hashed, with one tensor in memory.

Tensors start at multiples of 64 bytes, so that a mapped weight is aligned for vector loads. The
format allows no gaps: filler tensors named `__pad__.N` close them. The format's own package cannot
write this: it takes all tensors of a file at once and chooses order and alignment itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mlcc.artifact.safetensors import CODES
from mlcc.artifact.schema import CHUNK_BYTES, DTYPE_BYTES, FileEntry, TensorSpec, WeightSpec

SHARD_BYTES = 1 << 30
ALIGNMENT = 64

Progress = Callable[[int, int], None]
"""(bytes done, total bytes)"""


def plan_shards(
    specs: Sequence[TensorSpec], limit: int = SHARD_BYTES, prefix: str = "weights"
) -> tuple[WeightSpec, ...]:
    """Give each weight a shard, in order. A shard exceeds `limit` only by holding one tensor."""
    if len({spec.name for spec in specs}) != len(specs):
        raise ValueError("two weights of the same name")
    numbers: list[int] = []
    used = 0
    for spec in specs:
        size = _nbytes(spec)
        opens = not numbers or used + size > limit
        numbers.append((numbers[-1] if numbers else 0) + opens)
        used = size if opens else used + size
    total = numbers[-1] if numbers else 0
    return tuple(
        WeightSpec(
            name=spec.name,
            dtype=spec.dtype,
            shape=tuple(int(n) for n in spec.shape),
            shard=f"{prefix}-{number:05}-of-{total:05}.safetensors",
        )
        for spec, number in zip(specs, numbers, strict=True)
    )


def write_shards(
    folder: Path,
    weights: Sequence[WeightSpec],
    arrays: Iterable[npt.NDArray[Any]],
    progress: Progress | None = None,
) -> list[FileEntry]:
    """Write `arrays`, in the order of `weights`. Raises ValueError for a wrong shape or dtype."""
    rest, entries = iter(arrays), []
    done, total = 0, sum(spec.nbytes for spec in weights)
    for shard in dict.fromkeys(spec.shard for spec in weights):
        own = [spec for spec in weights if spec.shard == shard]
        with HashedFile(folder / shard, shard) as file:
            file.write(_header(own))
            for spec in own:
                file.write(_bytes(spec, next(rest, None)))
                file.write(bytes(-spec.nbytes % ALIGNMENT))
                done += spec.nbytes
                if progress:
                    progress(done, total)
        entries.append(file.entry())
    if next(rest, None) is not None:
        raise ValueError("more arrays than weights")
    return entries


@dataclass
class HashedFile:
    """A file being written, with sha256 of the whole and of each chunk. Synced when it closes."""

    path: Path
    name: str
    size: int = 0
    chunks: list[str] = field(default_factory=list)

    def __enter__(self) -> HashedFile:
        self._file: BinaryIO = self.path.open("xb")
        self._whole, self._chunk = hashlib.sha256(), hashlib.sha256()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        if self.size % CHUNK_BYTES:
            self.chunks.append(self._chunk.hexdigest())

    def write(self, data: bytes | memoryview) -> None:
        for piece in _pieces(memoryview(data), self.size):
            self._file.write(piece)
            self._whole.update(piece)
            self._chunk.update(piece)
            self.size += len(piece)
            if self.size % CHUNK_BYTES == 0:
                self.chunks.append(self._chunk.hexdigest())
                self._chunk = hashlib.sha256()

    def entry(self) -> FileEntry:
        return FileEntry(
            path=self.name,
            bytes=self.size,
            sha256=self._whole.hexdigest(),
            chunks=tuple(self.chunks),
        )


def hash_file(path: Path, name: str) -> FileEntry:
    """The entry of a file that another tool wrote (the library)."""
    whole, chunks, size = hashlib.sha256(), [], 0
    with path.open("rb+") as file:
        while data := file.read(CHUNK_BYTES):
            whole.update(data)
            chunks.append(hashlib.sha256(data).hexdigest())
            size += len(data)
        os.fsync(file.fileno())
    return FileEntry(path=name, bytes=size, sha256=whole.hexdigest(), chunks=tuple(chunks))


def _pieces(data: memoryview, position: int) -> Iterator[memoryview]:
    """Cut data so that every piece ends at or before a chunk's end."""
    start = 0
    while start < len(data):
        stop = start + CHUNK_BYTES - (position + start) % CHUNK_BYTES
        yield data[start:stop]
        start = stop


def _header(specs: Sequence[WeightSpec]) -> bytes:
    rows: dict[str, dict[str, Any]] = {}
    position = 0
    for spec in specs:
        rows[spec.name] = _row(CODES[spec.dtype], spec.shape, position, spec.nbytes)
        position += spec.nbytes
        padding = -position % ALIGNMENT
        if padding:
            rows[f"__pad__.{len(rows)}"] = _row("U8", (padding,), position, padding)
            position += padding
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _row(code: str, shape: tuple[int, ...], start: int, size: int) -> dict[str, Any]:
    return {"dtype": code, "shape": list(shape), "data_offsets": [start, start + size]}


def _bytes(spec: WeightSpec, array: npt.NDArray[Any] | None) -> memoryview:
    if array is None:
        raise ValueError(f"fewer arrays than weights: {spec.name} has none")
    same = array.dtype.name == spec.dtype
    as_bits = spec.dtype == "bfloat16" and array.dtype == np.uint16
    if array.shape != spec.shape or not (same or as_bits):
        raise ValueError(
            f"weight {spec.name} is {array.dtype} {array.shape}, "
            f"planned as {spec.dtype} {spec.shape}"
        )
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data


def _nbytes(spec: TensorSpec) -> int:
    return prod(int(n) for n in spec.shape) * DTYPE_BYTES[spec.dtype]
