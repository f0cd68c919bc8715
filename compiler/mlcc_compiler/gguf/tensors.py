"""The tensors of a model's GGUF files, under the names that Hugging Face has for them.

Streams: one tensor, or one expert of a tensor that holds them all, is in memory at a time. What
was done to a tensor when the file was made is undone: the order of Llama's q and k rows, Gemma's
norms. How blocks become numbers is `blocks.py`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc_compiler.gguf.blocks import check_readable, to_float
from mlcc_compiler.gguf.formats import FLOATS
from mlcc_compiler.gguf.header import GgufTensor
from mlcc_compiler.gguf.names import Place
from mlcc_compiler.gguf.unpack import NEAREST, SCHEMES, quantized
from mlcc_compiler.quantization.quantized import Quantized

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class GgufTensors:
    """Tensors by Hugging Face's names; a port like `weights.reader.TensorFolder`."""

    found: Mapping[str, GgufTensor]
    """By GGUF's names, of all files."""
    places: Mapping[str, Place]
    """Where each tensor of the model is."""

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            name: self.found[place.name].shape[place.expert is not None :]
            for name, place in self.places.items()
        }

    @cached_property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""
        return sum(tensor.nbytes for tensor in self.found.values())

    def __contains__(self, name: str) -> bool:
        return name in self.places

    @cached_property
    def schemes(self) -> dict[str, str]:
        """Tensors in a format that is a scheme: blocks of rows of two dimensions."""
        return self._of_formats(SCHEMES)

    @cached_property
    def nearest(self) -> dict[str, str]:
        """What comes nearest to floats and to formats without a scheme."""
        return self._of_formats(NEAREST)

    @property
    def is_quantized(self) -> bool:
        """Formats that are no scheme count too."""
        return any(tensor.format.name not in FLOATS for tensor in self.found.values())

    @property
    def notes(self) -> Iterator[str]:
        """Formats that no scheme is, and what their tensors become."""
        counts = Counter(tensor.format.name for tensor in self.found.values())
        for name, count in counts.items():
            if name in NEAREST and name not in FLOATS:
                what = "1 tensor is" if count == 1 else f"{count} tensors are"
                yield f"{what} {name}, which no kernel reads: kept as {NEAREST[name]}"

    def _of_formats(self, table: Mapping[str, str]) -> dict[str, str]:
        formats = {name: self.found[place.name].format.name for name, place in self.places.items()}
        return {n: table[f] for n, f in formats.items() if f in table and len(self.shapes[n]) == 2}

    def quantized(self, name: str) -> Quantized:
        """A tensor of `schemes`, its values untouched. Raises CheckpointError."""
        tensor, place = self.tensor(name), self.places[name]
        if name not in self.schemes:
            raise CheckpointError(
                f"{tensor.path}: tensor {tensor.name!r} is {tensor.format.name}, which is no "
                "scheme; read its floats"
            )
        blocks = self.blocks(name)
        if place.rotary_heads:
            blocks = blocks[rotary_rows(tensor, len(blocks), place.rotary_heads)]
        return quantized(blocks, tensor.format)

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is in a format that `read` refuses."""
        for name in names:
            check_readable(self.tensor(name))

    def tensor(self, name: str) -> GgufTensor:
        """What the file has for a tensor of the model. Raises CheckpointError."""
        if name not in self.places:
            raise CheckpointError(f"the GGUF file has no tensor {name!r}; fetch it again")
        return self.found[self.places[name].name]

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor."""
        tensor, place = self.tensor(name), self.places[name]
        weight = to_float(self.blocks(name), tensor).reshape(self.shapes[name])
        if place.rotary_heads:
            weight = weight[rotary_rows(tensor, len(weight), place.rotary_heads)]
        return weight - np.float32(place.offset) if place.offset else weight

    def blocks(self, name: str) -> Bytes:
        """The bytes of a tensor, [rows, bytes of a row], in the file's order of rows."""
        return blocks_of(self.tensor(name), self.places[name].expert)


def blocks_of(tensor: GgufTensor, expert: int | None = None) -> Bytes:
    """The bytes of a tensor, or of one of the matrices in it. Raises CheckpointError."""
    shape = tensor.shape if expert is None else tensor.shape[1:]
    size = tensor.format.nbytes(prod(shape))
    try:
        with tensor.path.open("rb") as file:
            file.seek(tensor.start + size * (expert or 0))
            data = file.read(size)
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{tensor.path}: cannot be read ({reason})") from error
    if len(data) < size:
        raise CheckpointError(
            f"{tensor.path}: ends within tensor {tensor.name!r}; fetch the file again"
        )
    return np.frombuffer(data, np.uint8).reshape(prod(shape[:-1]), -1)


def rotary_rows(tensor: GgufTensor, rows: int, heads: int) -> npt.NDArray[np.int64]:
    """Which row of the file is each of the model's.

    llama.cpp rotates pairs of neighbours, Hugging Face the halves of a head, so that files of
    Llama interleave the halves: row 2 i + j of a head is row j of pair i. Raises CheckpointError.
    """
    if rows % (2 * heads):
        raise CheckpointError(
            f"{tensor.path}: tensor {tensor.name!r} has {rows} rows, which are no pairs of {heads} "
            "heads; fetch the file again"
        )
    pairs = rows // heads // 2
    order = np.arange(rows).reshape(heads, pairs, 2)
    return np.ascontiguousarray(order.swapaxes(1, 2)).reshape(rows)
