"""A checkpoint's tensors under the names and in the shapes that models here have them in.

Most families name a mixture's matrices `mlp.experts.3.up_proj`, one tensor each. Others keep all
experts of a layer in one tensor, gate and up in one, or call them otherwise:
`checkpoint/name_maps.py` has a row for each. A view reads an expert's part of such a tensor by
itself, so never more than that is in memory. Knows no architecture, and changes no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc_compiler.quantization.quantized import Quantized

Floats = npt.NDArray[np.float32]

_MOST_EXPERTS = 4096
"""Of a tensor: a wrong header must not make a million names."""


@dataclass(frozen=True)
class Form:
    """What becomes of a tensor whose whole name is `pattern`: those that `names` are, in which
    the pattern's groups are \\1, \\2, .. and the expert is {}."""

    pattern: str
    names: tuple[str, ...]
    """Of several each is a part of the rows: one after the other, or every so-manieth."""
    experts: bool = False
    """The first dimension is the expert's."""
    transposed: bool = False
    """An expert's matrix is [in, out] and not [out, in]."""
    neighbours: bool = False
    """Rows of the parts alternate."""
    kinds: int = 0
    """For biases [experts, out * kinds], of kinds that alternate: one vector, all experts of the
    first kind, then all of the second. 0 = it is none; 1 makes a vector of anything."""


@dataclass(frozen=True)
class Part:
    """What a name of the model is of a tensor of the checkpoint."""

    source: str
    shape: tuple[int, ...]
    expert: int | None = None
    transposed: bool = False
    rows: tuple[int, int | None, int] = (0, None, 1)
    """From, to, step."""
    kinds: int = 0

    @property
    def is_rows(self) -> bool:
        """Whether it is the tensor, or rows of it, which may be quantized."""
        return self.expert is None and not self.transposed and not self.kinds

    def of(self, found: Floats) -> Floats:
        """The part of the tensor, or of the expert's part of it."""
        if self.kinds:
            kinds = found.reshape(len(found), -1, self.kinds)
            return np.ascontiguousarray(kinds.transpose(2, 0, 1)).reshape(self.shape)
        matrix = found.T if self.transposed else found
        return np.ascontiguousarray(matrix[slice(*self.rows)]).reshape(self.shape)


@dataclass(frozen=True)
class ViewedTensors:
    """A `weights.reader.Tensors` that shows another one's by its parts."""

    base: Any
    parts: Mapping[str, Part]

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: part.shape for name, part in self.parts.items()}

    @cached_property
    def schemes(self) -> dict[str, str]:
        schemes, rows = self.base.schemes, self.parts.items()
        return {n: schemes[p.source] for n, p in rows if p.source in schemes and p.is_rows}

    @cached_property
    def nearest(self) -> dict[str, str]:
        nearest = {**self.base.nearest, **self.base.schemes}
        others = ((n, p) for n, p in self.parts.items() if n not in self.schemes)
        return {n: nearest[p.source] for n, p in others if p.source in nearest}

    @property
    def is_quantized(self) -> bool:
        """As the checkpoint is."""
        return bool(self.base.is_quantized)

    @property
    def notes(self) -> Iterable[str]:
        notes: Iterable[str] = self.base.notes
        return notes

    @property
    def nbytes(self) -> int:
        return int(self.base.nbytes)

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one is of a dtype that `read` refuses."""
        self.base.check_dtypes({self.parts[name].source for name in names})

    def read(self, name: str) -> Floats:
        """A fresh float32 copy. Raises CheckpointError if there is none."""
        if name not in self.parts:
            read: Floats = self.base.read(name)  # says that there is none
            return read
        part = self.parts[name]
        if part.expert is None:
            return part.of(self.base.read(part.source))
        return part.of(self.base.read_item(part.source, part.expert))

    def quantized(self, name: str) -> Quantized:
        """Of `schemes`. Raises CheckpointError."""
        if name not in self.schemes:
            raise CheckpointError(f"tensor {name!r} is in no scheme; read its floats")
        part = self.parts[name]
        whole: Quantized = self.base.quantized(part.source)
        return whole.rows(slice(*part.rows))


def viewed(tensors: Any, forms: Sequence[Form]) -> Any:
    """The tensors as `forms` say; those that no form is of stay. Raises CheckpointError."""
    if not forms:
        return tensors
    parts: dict[str, Part] = {}
    for source, shape in tensors.shapes.items():
        for name, part in _parts(source, tuple(shape), forms):
            if name in parts:
                raise CheckpointError(
                    f"the checkpoint's tensors {parts[name].source!r} and {source!r} are both the "
                    f"model's {name!r}; fetch it again"
                )
            parts[name] = part
    return ViewedTensors(tensors, parts)


def _parts(
    source: str, shape: tuple[int, ...], forms: Sequence[Form]
) -> Iterable[tuple[str, Part]]:
    """Names and parts of a tensor: by the first form that fits, else itself."""
    for form in forms:
        if (match := re.fullmatch(form.pattern, source)) and _fits(form, shape):
            return list(_of_form(form, match, source, shape))
    return [(source, Part(source, shape))]


def _fits(form: Form, shape: tuple[int, ...]) -> bool:
    """Whether a tensor has the dimensions; one that has not keeps its name, to be refused by it."""
    if form.experts:
        rows = shape[-1 if form.transposed else 1] if len(shape) == 3 else 1
        return len(shape) == 3 and shape[0] <= _MOST_EXPERTS and rows % len(form.names) == 0
    if form.kinds > 1:
        return len(shape) == 2 and shape[1] % form.kinds == 0
    return len(form.names) == 1 or (len(shape) == 2 and shape[0] % len(form.names) == 0)


def _of_form(
    form: Form, match: re.Match[str], source: str, shape: tuple[int, ...]
) -> Iterable[tuple[str, Part]]:
    names = [match.expand(name) for name in form.names]
    if form.kinds:
        yield names[0], Part(source, (prod(shape),), kinds=form.kinds)
        return
    for expert in range(shape[0]) if form.experts else (None,):
        own = shape[1:] if form.experts else shape
        own = own[::-1] if form.transposed else own
        count = len(names)
        for i, name in enumerate(names):
            name = name.replace("{}", str(expert))
            if count == 1:
                yield name, Part(source, own, expert, form.transposed)
                continue
            height = own[0] // count
            some = (i, None, count) if form.neighbours else (i * height, (i + 1) * height, 1)
            part = Part(source, (height, *own[1:]), expert, form.transposed, some)
            yield name, part
