"""Presents a checkpoint's tensors under the names and in the shapes of the models here.

Most families name a mixture's matrices `mlp.experts.3.up_proj`, one tensor each. Others stack all
experts of a layer in one tensor, or gate and up in one, or use other names:
`checkpoint/name_maps.py` has the rules. A view reads one expert's part of such a tensor at a time,
so memory never holds more. Knows no architecture, and changes no number.
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
from mlcc_compiler.quantization.schemes import anew

Floats = npt.NDArray[np.float32]

_MOST_EXPERTS = 4096
"""Per tensor: a wrong header must not create a million names."""


@dataclass(frozen=True)
class NameRule:
    r"""A rule for tensors whose whole name matches `pattern`: their replacement `names`, in which
    the pattern's groups are \1, \2, .. and the expert is {}."""

    pattern: str
    names: tuple[str, ...]
    """Several names split the rows: one after the other, or interleaved."""
    experts: bool = False
    """Whether the first dimension is the expert's."""
    transposed: bool = False
    """Whether an expert's matrix is [in, out] instead of [out, in]."""
    interleaved: bool = False
    """Whether rows of the parts alternate."""
    kinds: int = 0
    """For biases [experts, out * kinds] of alternating kinds: one vector, all experts of the first
    kind, then all of the second. 0 = not a bias; 1 flattens any tensor."""


@dataclass(frozen=True)
class Part:
    """The part of a checkpoint's tensor that a model's name refers to."""

    source: str
    shape: tuple[int, ...]
    expert: int | None = None
    transposed: bool = False
    rows: tuple[int, int | None, int] = (0, None, 1)
    """Start, stop, step."""
    kinds: int = 0

    @property
    def is_rows(self) -> bool:
        """Whether it is the whole tensor, or rows of it, which may be quantized."""
        return self.expert is None and not self.transposed and not self.kinds

    def of(self, found: Floats) -> Floats:
        """The part of a tensor, or of its expert."""
        if not found.ndim:  # a single number, which has no rows
            return found
        if self.kinds:
            kinds = found.reshape(len(found), -1, self.kinds)
            return np.ascontiguousarray(kinds.transpose(2, 0, 1)).reshape(self.shape)
        matrix = found.T if self.transposed else found
        return np.ascontiguousarray(matrix[slice(*self.rows)]).reshape(self.shape)


@dataclass(frozen=True)
class ViewedTensors:
    """A `safetensors.Tensors` that presents parts of another one."""

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
        stored = {name: anew(own) for name, own in self.base.schemes.items()}
        nearest = {**self.base.nearest, **stored}
        others = ((n, p) for n, p in self.parts.items() if n not in self.schemes)
        return {n: nearest[p.source] for n, p in others if p.source in nearest}

    @property
    def is_quantized(self) -> bool:
        """Whether the checkpoint is quantized."""
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
        """A quantized tensor of `schemes`. Raises CheckpointError."""
        if name not in self.schemes:
            raise CheckpointError(f"tensor {name!r} is in no scheme; read its floats")
        part = self.parts[name]
        whole: Quantized = self.base.quantized(part.source)
        return whole.rows(slice(*part.rows))


def view_tensors(tensors: Any, rules: Sequence[NameRule]) -> Any:
    """The tensors under the rules' names; tensors without a rule stay. Raises CheckpointError."""
    if not rules:
        return tensors
    parts: dict[str, Part] = {}
    for source, shape in tensors.shapes.items():
        for name, part in _parts(source, tuple(shape), rules):
            if name in parts:
                raise CheckpointError(
                    f"the checkpoint's tensors {parts[name].source!r} and {source!r} are both the "
                    f"model's {name!r}; fetch it again"
                )
            parts[name] = part
    return ViewedTensors(tensors, parts)


def _parts(
    source: str, shape: tuple[int, ...], rules: Sequence[NameRule]
) -> Iterable[tuple[str, Part]]:
    """Names and parts of a tensor: by the first rule that fits, else unchanged."""
    for rule in rules:
        if (match := re.fullmatch(rule.pattern, source)) and _fits(rule, shape):
            return list(_apply_rule(rule, match, source, shape))
    return [(source, Part(source, shape))]


def _fits(rule: NameRule, shape: tuple[int, ...]) -> bool:
    """Whether a tensor has the rule's dimensions; if not, it keeps its name and is refused
    later."""
    if rule.experts:
        rows = shape[-1 if rule.transposed else 1] if len(shape) == 3 else 1
        return len(shape) == 3 and shape[0] <= _MOST_EXPERTS and rows % len(rule.names) == 0
    if rule.kinds > 1:
        return len(shape) == 2 and shape[1] % rule.kinds == 0
    rows = shape[-1] if rule.transposed else shape[0]
    return len(rule.names) == 1 or (len(shape) == 2 and rows % len(rule.names) == 0)


def _apply_rule(
    rule: NameRule, match: re.Match[str], source: str, shape: tuple[int, ...]
) -> Iterable[tuple[str, Part]]:
    names = [match.expand(name) for name in rule.names]
    if rule.kinds:
        yield names[0], Part(source, (prod(shape),), kinds=rule.kinds)
        return
    for expert in range(shape[0]) if rule.experts else (None,):
        own = shape[1:] if rule.experts else shape
        own = own[::-1] if rule.transposed else own
        count = len(names)
        for i, name in enumerate(names):
            name = name.replace("{}", str(expert))
            if count == 1:
                yield name, Part(source, own, expert, rule.transposed)
                continue
            height = own[0] // count
            some = (i, None, count) if rule.interleaved else (i * height, (i + 1) * height, 1)
            part = Part(source, (height, *own[1:]), expert, rule.transposed, some)
            yield name, part
