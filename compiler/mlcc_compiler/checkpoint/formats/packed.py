"""Common base of readers of quantized safetensors: matrices assembled from several tensors of a
folder.

A format's module finds its matrices by the names, shapes and dtypes of their parts, and provides
their loaders. Matrices in a supported scheme stay unchanged; others are dequantized and requantized
to the `nearest` scheme, which `notes` reports. Knows no format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.safetensors import TensorEntry
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.quantization.quantized import Quantized, dequantize
from mlcc_compiler.quantization.schemes import E4M3, FALLBACK

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

_DTYPES = {
    "uint8": "u1", "int8": "i1", "int32": "<i4", "uint32": "<u4", "int64": "<i8",
    "float16": "<f2", "float32": "<f4", "float8_e4m3fn": "u1", "bfloat16": "<u2",
}  # fmt: skip


@dataclass(frozen=True)
class PackedMatrix:
    """One matrix [N, K] that the folder stores in parts."""

    shape: tuple[int, int]
    parts: tuple[str, ...]
    """The folder's tensors that it consists of."""
    load: Callable[[], Quantized | Floats]
    """Returns the quantized matrix. Raises CheckpointError."""
    scheme: str = ""
    """Scheme of `load`'s result; "" = it returns floats."""
    nearest: str = FALLBACK
    """Scheme for requantizing floats, unless a recipe is requested."""
    why: str = ""
    """Reason for having no scheme, phrased to follow "is" or "has"."""


@dataclass(frozen=True)
class PackedTensors:
    """A `safetensors.Tensors` of packed matrices and the folder's other tensors."""

    folder: TensorFolder
    packed: Mapping[str, PackedMatrix]
    unused: frozenset[str] = field(default_factory=frozenset)
    """Tensors irrelevant to weights: scales of activations."""

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        parts = {part for matrix in self.packed.values() for part in matrix.parts}
        beside = self.folder.shapes.items()
        found = {n: s for n, s in beside if n not in parts and n not in self.unused}
        return found | {name: matrix.shape for name, matrix in self.packed.items()}

    @cached_property
    def schemes(self) -> dict[str, str]:
        return {name: matrix.scheme for name, matrix in self.packed.items() if matrix.scheme}

    @cached_property
    def nearest(self) -> dict[str, str]:
        beside = {n: s for n, s in self.folder.nearest.items() if n in self.shapes}
        return beside | {n: m.nearest for n, m in self.packed.items() if not m.scheme}

    @property
    def is_quantized(self) -> bool:
        """Matrices without a scheme count too."""
        return bool(self.packed)

    @property
    def nbytes(self) -> int:
        return self.folder.nbytes

    @property
    def notes(self) -> Iterator[str]:
        """What is not kept unchanged, a line for each kind."""
        counts = Counter((m.why, m.nearest) for m in self.packed.values() if not m.scheme)
        for (why, nearest), count in counts.items():
            many = "1 matrix" if count == 1 else f"{count} matrices"
            yield f"{many}: {why}, which no kernel reads: quantized anew, as {nearest}"

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def check_dtypes(self, names: Iterable[str]) -> None:
        self.folder.check_dtypes(name for name in names if name not in self.packed)

    def read(self, name: str) -> Floats:
        if name not in self.packed:
            return self.folder.read(name)
        value = self.packed[name].load()
        return dequantize(value) if isinstance(value, Quantized) else value

    def read_item(self, name: str, item: int) -> Floats:
        """`tensor[item]` of a tensor outside the matrices."""
        return self.folder.read_item(name, item)

    def quantized(self, name: str) -> Quantized:
        value = self.packed[name].load() if name in self.schemes else None
        if not isinstance(value, Quantized):
            raise CheckpointError(f"tensor {name!r} is in no scheme; read its floats")
        return value


class Parts:
    """Checked access of a format's reader to the folder's tensors, with named errors."""

    def __init__(self, folder: TensorFolder, method: str) -> None:
        self.folder, self.method = folder, method

    def named(self, suffix: str) -> Iterator[tuple[str, TensorEntry]]:
        """(stem, tensor) of all tensors whose names end with `suffix`."""
        for name, (_, entry) in self.folder.entries.items():
            if name.endswith(suffix):
                yield name.removesuffix(suffix), entry

    def shape(self, name: str, dtypes: tuple[str, ...], dimensions: int = 2) -> tuple[int, ...]:
        """The shape of a required tensor with one of these dtypes."""
        if name not in self.folder.entries:
            raise self.refuse(name, "is missing")
        entry = self.folder.entries[name][1]
        if entry.dtype not in dtypes:
            raise self.refuse(name, f"is {entry.dtype}, not {' or '.join(dtypes)}")
        if dimensions and len(entry.shape) != dimensions:
            raise self.refuse(name, f"has {len(entry.shape)} dimensions, not {dimensions}")
        if 0 in entry.shape:
            raise self.refuse(name, "is empty")
        return entry.shape

    def has(self, name: str) -> bool:
        return name in self.folder.entries

    def dtype(self, name: str) -> str:
        return self.folder.entries[name][1].dtype

    def load(self, name: str, item: int | None = None, *, as_codes: bool = False) -> Array:
        """A tensor as stored, or `tensor[item]`; bfloat16 and smaller floats as f32, or 8-bit ones
        as their bits. Raises CheckpointError."""
        entry = self.folder.entries[name][1]
        size, start, shape = entry.stop - entry.start, entry.start, entry.shape
        if item is not None:
            size, shape = size // shape[0], shape[1:]
            start += item * size
        try:
            with entry.path.open("rb") as file:
                file.seek(start)
                data = file.read(size)
        except OSError as error:
            raise self.refuse(name, f"cannot be read ({error.strerror or error})") from error
        if len(data) < size:
            raise self.refuse(name, "is cut off")
        array = np.frombuffer(data, _DTYPES[entry.dtype]).reshape(shape)
        if entry.dtype == "bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return _E4M3[array] if entry.dtype == "float8_e4m3fn" and not as_codes else array

    def is_exact_f16(self, name: str) -> bool:
        """Whether scales convert to float16 without loss: bfloat16 ones do, except very small
        ones."""
        if self.dtype(name) == "float16":
            return True
        array = self.load(name)
        with np.errstate(over="ignore"):
            return bool((array.astype(np.float16).astype(np.float32) == array).all())

    def refuse(self, name: str, what: str) -> CheckpointError:
        return CheckpointError(
            f"tensor {name!r} of a checkpoint in {self.method} {what}; fetch the checkpoint again"
        )

    def unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.folder.folder}: {what} of {self.method} is not supported; compile the original "
            "checkpoint with --quant"
        )


def unpack(words: Array, bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Unpack rows of words into codes, the first in the lowest bits: [R, W] -> u8 [R, count]."""
    data = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)
    if bits == 8:
        return data[:, :count]
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = (data[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
        return codes.reshape(len(data), -1)[:, :count]
    out = np.empty((len(data), count), np.uint8)
    places = np.uint8(1) << np.arange(bits, dtype=np.uint8)
    step = max(1, (1 << 20) // (count * bits))
    for first in range(0, len(data), step):
        stream = np.unpackbits(data[first : first + step], axis=1, bitorder="little")
        some = stream[:, : count * bits].reshape(-1, count, bits)
        out[first : first + step] = (some * places).sum(axis=2, dtype=np.uint8)
    return out


def bits_of(words: int, count: int) -> int | None:
    """Bits per code if `count` codes fill this many 32-bit words; None if none fits."""
    bits = words * 32 // count if count else 0
    fits = 2 <= bits <= 8 and words * 32 == count * bits
    return bits if fits else None


def check_group(parts: Parts, name: str, found: int, declared: Any, row: int) -> None:
    """Raises CheckpointError if config.json's group size differs from the tensors'; -1 is a row."""
    if declared is not None and declared != (-1 if found == row and declared == -1 else found):
        raise parts.refuse(
            name, f"has groups of {found}, and config.json says {str(declared)[:20]}"
        )


_E4M3 = np.asarray(E4M3, np.float32)
