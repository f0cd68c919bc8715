"""The tensors of a model's GGUF files, under the model's names.

Streaming: one tensor, or one expert of a stacked tensor, is in memory at a time. The converter's
changes are undone, as the location says (`names.py`). Blocks become floats in `dequantize.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.gguf.block_codes import NEAREST, SCHEMES, quantized
from mlcc_compiler.checkpoint.gguf.dequantize import check_readable, to_float
from mlcc_compiler.checkpoint.gguf.formats import FLOATS, BlockFormat
from mlcc_compiler.checkpoint.gguf.header import GgufTensor
from mlcc_compiler.checkpoint.gguf.names import Source, TensorLocation
from mlcc_compiler.checkpoint.gguf.orders import Index, Order
from mlcc_compiler.quantization.quantized import Quantized

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_OF_BROKEN = "int8_g32"
"""Scheme for a matrix whose blocks cannot be reordered, or are of two formats."""


@dataclass(frozen=True)
class GgufTensors:
    """Tensors by the model's names; a `safetensors.Tensors`."""

    found: Mapping[str, GgufTensor]
    """Tensors of all files by GGUF's names."""
    locations: Mapping[str, TensorLocation]
    """Location of each tensor of the model."""
    factors: Mapping[str, GgufTensor] = field(default_factory=dict)
    """Numbers that all weights of a tensor are multiplied by, or those of each expert."""

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: location.shape for name, location in self.locations.items()}

    @cached_property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""
        return sum(tensor.nbytes for tensor in self.found.values())

    def __contains__(self, name: str) -> bool:
        return name in self.locations

    @cached_property
    def schemes(self) -> dict[str, str]:
        """Tensors in a format that is a scheme: blocks of rows of two dimensions."""
        forms = {name: self._form(location) for name, location in self._matrices()}
        return {n: SCHEMES[f.name] for n, f in forms.items() if f and f.name in SCHEMES}

    @cached_property
    def nearest(self) -> dict[str, str]:
        """Nearest scheme of floats and of formats without a scheme."""
        found = {}
        for name, location in self._matrices():
            form = self._form(location)
            if form is None:
                found[name] = _OF_BROKEN
            elif form.name in NEAREST:
                found[name] = NEAREST[form.name]
        return found

    def _matrices(self) -> Iterator[tuple[str, TensorLocation]]:
        return (
            (name, location)
            for name, location in self.locations.items()
            if len(location.shape) == 2
        )

    def _form(self, location: TensorLocation) -> BlockFormat | None:
        """The block format of a location; None if there are several, or blocks would be broken
        up."""
        forms = {self.found[source.name].format for source in location.sources}
        form = next(iter(forms))
        floats = form.name in FLOATS
        broken = location.columns is not None and location.columns[0] % form.block
        broken = broken or (any(source.transposed for source in location.sources) and not floats)
        return None if len(forms) > 1 or broken else form

    @property
    def is_quantized(self) -> bool:
        """Formats without a scheme count too."""
        return any(tensor.format.name not in FLOATS for tensor in self.found.values())

    @property
    def notes(self) -> Iterator[str]:
        """Formats without a scheme, and the schemes their tensors get."""
        counts = Counter(tensor.format.name for tensor in self.found.values())
        for name, count in counts.items():
            if name in NEAREST and name not in FLOATS:
                what = "1 tensor is" if count == 1 else f"{count} tensors are"
                yield f"{what} {name}, which no kernel reads: kept as {NEAREST[name]}"
        broken = sum(self._form(location) is None for _, location in self._matrices())
        if broken:
            yield (
                f"the model has {broken} matrices in another order than the file's blocks, or of "
                f"two of its formats: {_OF_BROKEN}"
            )

    def quantized(self, name: str) -> Quantized:
        """A tensor of `schemes`, its values untouched. Raises CheckpointError."""
        tensor, location = self.tensor(name), self.locations[name]
        if name not in self.schemes:
            raise CheckpointError(
                f"{tensor.path}: tensor {tensor.name!r} is {tensor.format.name}, which is no "
                "scheme; read its floats"
            )
        form = tensor.format
        parts = [self._blocks(source) for source in location.sources]
        blocks = np.concatenate(parts)
        sources = zip(location.sources, parts, strict=True)
        factors = np.concatenate([self._factors(source, len(rows)) for source, rows in sources])
        if location.rows is not None:
            places = _order(tensor, location.rows, len(blocks))
            blocks, factors = blocks[places], factors[places]
        if location.columns is not None:
            width, order = location.columns
            runs = blocks.reshape(len(blocks), -1, width // form.block * form.size)
            runs = runs[:, _order(tensor, order, runs.shape[1])]
            blocks = np.ascontiguousarray(runs).reshape(len(blocks), -1)
        made = quantized(blocks, form)
        return replace(made, scales=made.scales * factors) if self.factors else made

    def _factors(self, source: Source, rows: int) -> Floats:
        """What values of each row are multiplied by, f32 [rows, 1]. Raises CheckpointError."""
        if source.name not in self.factors:
            return np.ones((rows, 1), np.float32)
        tensor, experts = self.factors[source.name], self.found[source.name].shape[:-2]
        if tensor.shape not in ((1,), experts):
            raise CheckpointError(
                f"{tensor.path}: tensor {tensor.name!r} is {tensor.shape}, and not a number for "
                f"{source.name!r}, or for each expert in it; fetch the file again"
            )
        values = to_float(blocks_of(tensor), tensor).reshape(-1)
        if source.expert is not None:
            values = values[[source.expert if len(values) > 1 else 0]]
        return np.repeat(values, rows // len(values))[:, None]

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is in a format that `read` refuses."""
        for name in names:
            self.tensor(name)
            for source in self.locations[name].sources:
                check_readable(self.found[source.name])

    def tensor(self, name: str) -> GgufTensor:
        """The file's tensor for one of the model, or the first of them. Raises CheckpointError."""
        if name not in self.locations:
            raise CheckpointError(f"the GGUF file has no tensor {name!r}; fetch it again")
        return self.found[self.locations[name].name]

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        tensor, location = self.tensor(name), self.locations[name]
        parts = [self._floats(source) for source in location.sources]
        weight = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if location.rows is not None:
            weight = weight[_order(tensor, location.rows, len(weight))]
        if location.columns is not None:
            width, order = location.columns
            runs = weight.reshape(len(weight), -1, width)
            weight = runs[:, _order(tensor, order, runs.shape[1])]
        weight = np.ascontiguousarray(weight).reshape(location.shape)
        if location.logarithm:
            with np.errstate(all="ignore"):  # of no negative number it is NaN, refused by name
                weight = np.log(-weight.astype(np.float64)).astype(np.float32)
        return weight - np.float32(location.offset) if location.offset else weight

    def _floats(self, source: Source) -> Floats:
        """A tensor of the file: a vector, or rows [rows, columns] of all its matrices."""
        tensor = self.found[source.name]
        flat = to_float(self._blocks(source), tensor)
        if source.name in self.factors:
            flat = flat * self._factors(source, len(flat))
        if len(tensor.shape) == 1:
            return flat.reshape(-1)
        if not source.transposed:
            return flat
        matrices = flat.reshape(-1, *tensor.shape[-2:])
        return np.ascontiguousarray(matrices.swapaxes(1, 2)).reshape(-1, tensor.shape[-2])

    def _blocks(self, source: Source) -> Bytes:
        blocks = blocks_of(self.found[source.name], source.expert)
        if source.half is None:
            return blocks
        return blocks[: len(blocks) // 2] if source.half == 0 else blocks[len(blocks) // 2 :]


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
    """The file's row for each of the model's. Raises CheckpointError."""
    try:
        return order(rows)
    except CheckpointError as error:
        raise CheckpointError(
            f"{tensor.path}: tensor {tensor.name!r} {error.message}; fetch the file again"
        ) from error
