"""The header of a GGUF file (version 2 and 3, little-endian): metadata, and tensor locations.

Every count in a header is checked against the remaining bytes, so no file can make the reader take
more memory than its header has bytes. Reads no tensor; knows no key and no architecture.
Format: ggml's docs/checkpoints.md. The `gguf` package's reader is not used: it makes two numpy
arrays for each of a vocabulary's strings (11 s and 735 MB for a model of 250 MB) and checks no
bound.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc.util.files import FETCH_LFS, is_lfs_pointer
from mlcc_compiler.checkpoint.gguf.formats import FORMATS, BlockFormat

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_STRING_BYTES = 16 << 20
"""A chat template is the longest in use, some ten thousand."""
MAX_STRINGS = 1 << 22
"""Over all arrays of a file: Gemma's vocabulary has 262,144, Qwen's merges 151,387."""
MAX_TENSORS = 1 << 17
MAX_KEYS = 1 << 16
_MOST_DIMENSIONS = 4
_LARGEST_ALIGNMENT = 1 << 20

_UINT32, _FLOAT32, _STRING, _ARRAY = 4, 6, 8, 9
_NUMBERS: Mapping[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_WIDTHS = {code: np.dtype(name).itemsize for code, name in _NUMBERS.items()}

Value = str | int | float | bool | list[str] | npt.NDArray[Any]


@dataclass(frozen=True)
class GgufTensor:
    """Location of a tensor: bytes `start` to `start + nbytes` of a file."""

    path: Path
    name: str
    format: BlockFormat
    shape: tuple[int, ...]
    """Row-major: the last is the length of a row, which GGUF writes first."""
    start: int

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(prod(self.shape))


@dataclass(frozen=True)
class GgufHeader:
    """Contents of one header. `metadata` values: text, numbers, lists of texts, arrays of
    numbers."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: tuple[GgufTensor, ...]


def read_header(path: Path) -> GgufHeader:
    """The header of a file. Raises CheckpointError for invalid files."""
    try:
        with path.open("rb") as file:
            return _Reader(path, file).header()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error


class _Reader:
    """A cursor over a file. Every count is checked against the remaining bytes."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.left = self.size = path.stat().st_size
        self.strings = 0

    def header(self) -> GgufHeader:
        magic, version = self.take(4), self.number(_UINT32)
        if magic != MAGIC:
            if is_lfs_pointer(self.path):
                raise CheckpointError(f"{self.path}: {FETCH_LFS}")
            raise self.refuse(f"does not begin with {MAGIC.decode()}, so it is no GGUF file")
        if version not in VERSIONS:
            if version & 0xFFFF == 0:
                raise self.refuse("is big-endian; convert it with llama.cpp's gguf_convert_endian")
            raise self.refuse(f"is GGUF version {version}; mlcc reads version 2 and 3")
        tensors, pairs = self.count(24, "tensors"), self.count(13, "metadata keys")
        if pairs > MAX_KEYS:
            raise self.refuse(f"says that it has {pairs} metadata keys; at most {MAX_KEYS} fit")
        if tensors > MAX_TENSORS:
            raise self.refuse(f"says that it has {tensors} tensors; at most {MAX_TENSORS} are read")
        metadata: dict[str, Value] = {}
        for _ in range(pairs):
            key = self.string()
            if key in metadata:
                raise self.refuse(f"names metadata key {key!r} twice")
            metadata[key] = self.value(key)
        rows = [self.tensor() for _ in range(tensors)]
        start = self.size - self.left
        alignment = self._alignment(metadata)
        start += -start % alignment
        return GgufHeader(self.path, metadata, self._placed(rows, start, alignment))

    def take(self, count: int) -> bytes:
        data = self.file.read(count) if count <= self.left else b""
        if len(data) < count:
            raise self.refuse("ends within its header")
        self.left -= count
        return data

    def number(self, kind: int) -> int:
        """An unsigned integer of that type."""
        return int.from_bytes(self.take(_WIDTHS[kind]), "little")

    def count(self, least: int, of: str) -> int:
        """The number of items that take at least `least` bytes each."""
        found = self.number(10)
        if found * least > self.left:
            raise self.refuse(f"says that it has {found} {of}, more than it has bytes")
        return found

    def string(self) -> str:
        length = self.count(1, "bytes in a string")
        if length > MAX_STRING_BYTES:
            raise self.refuse(f"has a string of {length} bytes; at most {MAX_STRING_BYTES} fit")
        data = self.take(length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            # Tokens of byte-level vocabularies of a few converters; a key that matters is ASCII.
            return data.decode(errors="replace")

    def value(self, key: str) -> Value:
        kind = self.number(_UINT32)
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _NUMBERS:
            raise self.refuse(f"has metadata key {key!r} of an unknown type, {kind}")
        number = np.frombuffer(self.take(_WIDTHS[kind]), _NUMBERS[kind])[0]
        if kind == _FLOAT32:
            return float(str(number))  # the 1e-6 that was meant, not the nearest of 32 bits
        found: Value = number.item()
        return found

    def array(self, key: str) -> Value:
        kind = self.number(_UINT32)
        if kind == _STRING:
            length = self.count(8, f"strings in {key!r}")
            self.strings += length
            if self.strings > MAX_STRINGS:
                raise self.refuse(f"has more than {MAX_STRINGS} strings in its header")
            return [self.string() for _ in range(length)]
        if kind not in _NUMBERS:
            raise self.refuse(f"has metadata key {key!r}, an array of an unknown type, {kind}")
        width = _WIDTHS[kind]
        return np.frombuffer(
            self.take(width * self.count(width, f"numbers in {key!r}")), _NUMBERS[kind]
        )

    def tensor(self) -> tuple[str, tuple[int, ...], BlockFormat, int]:
        """Name, shape, format, and the offset after the header."""
        name = self.string()
        dimensions = self.number(_UINT32)
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self.refuse(f"has tensor {name!r} of {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))[::-1]
        code, offset = self.number(_UINT32), self.number(10)
        if code not in FORMATS:
            raise self.refuse(
                f"has tensor {name!r} in a format that mlcc does not know, number {code}"
            )
        found = FORMATS[code]
        if 0 in shape or shape[-1] % found.block:
            dims = "x".join(map(str, shape))
            raise self.refuse(f"has tensor {name!r} of {dims}, which {found.name} cannot hold")
        if found.nbytes(prod(shape)) > self.size:
            raise self.refuse(f"has tensor {name!r}, which is larger than the file")
        return name, shape, found, offset

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        found = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(found, int) or not 0 < found <= _LARGEST_ALIGNMENT or found & (found - 1):
            raise self.refuse(f"has general.alignment {str(found)[:40]}, which is no power of two")
        return found

    def _placed(
        self, rows: list[tuple[str, tuple[int, ...], BlockFormat, int]], start: int, alignment: int
    ) -> tuple[GgufTensor, ...]:
        placed = [GgufTensor(self.path, n, f, shape, start + o) for n, shape, f, o in rows]
        if len({tensor.name for tensor in placed}) != len(placed):
            raise self.refuse("names a tensor twice")
        end = start
        for tensor in sorted(placed, key=lambda t: t.start):
            if tensor.start < end or (tensor.start - start) % alignment:
                raise self.refuse(f"has tensor {tensor.name!r} where another one is, or unaligned")
            end = tensor.start + tensor.nbytes
            if end > self.size:
                raise self.refuse(f"ends within tensor {tensor.name!r}; it was not fetched whole")
        return tuple(placed)

    def refuse(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}; fetch the file again")
