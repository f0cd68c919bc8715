"""The tensors of a model's GGUF files, under the names that the model has for them.

Streams: one tensor, or one expert of a tensor that holds them all, is in memory at a time. What
was done to a tensor when the file was made is undone, as its place says (`names.py`). How blocks
become numbers is `blocks.py`'s.
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
from mlcc_compiler.checkpoint.gguf.blocks import check_readable, to_float
from mlcc_compiler.checkpoint.gguf.formats import FLOATS, BlockFormat
from mlcc_compiler.checkpoint.gguf.header import GgufTensor
from mlcc_compiler.checkpoint.gguf.names import Place, Source
from mlcc_compiler.checkpoint.gguf.orders import Index, Order
from mlcc_compiler.checkpoint.gguf.unpack import NEAREST, SCHEMES, quantized
from mlcc_compiler.quantization.quantized import Quantized

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_OF_BROKEN = "int8_g32"
"""What a matrix becomes whose blocks cannot be put in the model's order, or are of two formats."""


@dataclass(frozen=True)
class GgufTensors:
    """Tensors by the model's names; a port like `weights.reader.TensorFolder`."""

    found: Mapping[str, GgufTensor]
    """By GGUF's names, of all files."""
    places: Mapping[str, Place]
    """Where each tensor of the model is."""

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: place.shape for name, place in self.places.items()}

    @cached_property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""
        return sum(tensor.nbytes for tensor in self.found.values())

    def __contains__(self, name: str) -> bool:
        return name in self.places

    @cached_property
    def schemes(self) -> dict[str, str]:
        """Tensors in a format that is a scheme: blocks of rows of two dimensions."""
        forms = {name: self._form(place) for name, place in self._matrices()}
        return {n: SCHEMES[f.name] for n, f in forms.items() if f and f.name in SCHEMES}

    @cached_property
    def nearest(self) -> dict[str, str]:
        """What comes nearest to floats and to formats without a scheme."""
        found = {}
        for name, place in self._matrices():
            form = self._form(place)
            if form is None:
                found[name] = _OF_BROKEN
            elif form.name in NEAREST:
                found[name] = NEAREST[form.name]
        return found

    def _matrices(self) -> Iterator[tuple[str, Place]]:
        return ((name, place) for name, place in self.places.items() if len(place.shape) == 2)

    def _form(self, place: Place) -> BlockFormat | None:
        """The format of a place's blocks; None if they are of several, or have to be broken."""
        forms = {self.found[source.name].format for source in place.sources}
        form = next(iter(forms))
        floats = form.name in FLOATS
        broken = place.columns is not None and place.columns[0] % form.block
        broken = broken or (any(source.turned for source in place.sources) and not floats)
        return None if len(forms) > 1 or broken else form

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
        broken = sum(self._form(place) is None for _, place in self._matrices())
        if broken:
            yield (
                f"the model has {broken} matrices in another order than the file's blocks, or of "
                f"two of its formats: {_OF_BROKEN}"
            )

    def quantized(self, name: str) -> Quantized:
        """A tensor of `schemes`, its values untouched. Raises CheckpointError."""
        tensor, place = self.tensor(name), self.places[name]
        if name not in self.schemes:
            raise CheckpointError(
                f"{tensor.path}: tensor {tensor.name!r} is {tensor.format.name}, which is no "
                "scheme; read its floats"
            )
        form = tensor.format
        blocks = np.concatenate([self._blocks(source) for source in place.sources])
        if place.rows is not None:
            blocks = blocks[_order(tensor, place.rows, len(blocks))]
        if place.columns is not None:
            width, order = place.columns
            runs = blocks.reshape(len(blocks), -1, width // form.block * form.size)
            runs = runs[:, _order(tensor, order, runs.shape[1])]
            blocks = np.ascontiguousarray(runs).reshape(len(blocks), -1)
        return quantized(blocks, form)

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is in a format that `read` refuses."""
        for name in names:
            self.tensor(name)
            for source in self.places[name].sources:
                check_readable(self.found[source.name])

    def tensor(self, name: str) -> GgufTensor:
        """What the file has for a tensor of the model, or the first of it. CheckpointError."""
        if name not in self.places:
            raise CheckpointError(f"the GGUF file has no tensor {name!r}; fetch it again")
        return self.found[self.places[name].name]

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        tensor, place = self.tensor(name), self.places[name]
        parts = [self._floats(source) for source in place.sources]
        weight = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if place.rows is not None:
            weight = weight[_order(tensor, place.rows, len(weight))]
        if place.columns is not None:
            width, order = place.columns
            runs = weight.reshape(len(weight), -1, width)
            weight = runs[:, _order(tensor, order, runs.shape[1])]
        weight = np.ascontiguousarray(weight).reshape(place.shape)
        if place.logarithm:
            with np.errstate(all="ignore"):  # of no negative number it is NaN, refused by name
                weight = np.log(-weight.astype(np.float64)).astype(np.float32)
        return weight - np.float32(place.offset) if place.offset else weight

    def _floats(self, source: Source) -> Floats:
        """A tensor of the file: a vector, or rows [rows, columns] of all its matrices."""
        tensor = self.found[source.name]
        flat = to_float(self._blocks(source), tensor)
        if len(tensor.shape) == 1:
            return flat.reshape(-1)
        if not source.turned:
            return flat
        matrices = flat.reshape(-1, *tensor.shape[-2:])
        return np.ascontiguousarray(matrices.swapaxes(1, 2)).reshape(-1, tensor.shape[-2])

    def _blocks(self, source: Source) -> Bytes:
        return blocks_of(self.found[source.name], source.expert)


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


def _order(tensor: GgufTensor, order: Order, rows: int) -> Index:
    """Which row of the file is each of the model's. Raises CheckpointError."""
    try:
        return order(rows)
    except CheckpointError as error:
        raise CheckpointError(
            f"{tensor.path}: tensor {tensor.name!r} {error.message}; fetch the file again"
        ) from error
