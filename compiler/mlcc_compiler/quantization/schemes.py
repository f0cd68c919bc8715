"""Schemes (how one matrix is stored) and recipes (which scheme each kind of matrix gets), as rows.

Not here: the arithmetic (`codec.py`) and the order of bytes a kernel reads (`kernels/cpu`). The
formats are the common ones of GGUF and AWQ: unsigned codes with one f16 scale, and for asymmetric
schemes one zero point, per group of `group` neighbours along a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlcc.errors import UnsupportedError


@dataclass(frozen=True)
class Scheme:
    """`bits` 16 and 32 are floats (`dtype` says which); 4 and 8 are codes with scales."""

    name: str
    bits: int
    group: int = 0
    """Weights along a row that share a scale; 0 = the whole row. Meaningless for floats."""
    symmetric: bool = True
    """The zero point is the middle code, 2**(bits - 1), and not stored."""
    dtype: str = "uint8"
    """What one stored element is: float32, float16, bfloat16, or uint8 codes."""

    @property
    def is_float(self) -> bool:
        return self.bits >= 16

    @property
    def levels(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of a symmetric scheme."""
        return 1 << (self.bits - 1)

    def group_of(self, row: int) -> int:
        """Weights per scale in a row of that length. Raises UnsupportedError if they do not fit."""
        group = self.group if self.group > 0 else row
        if group % 4:
            raise UnsupportedError(
                f"scheme '{self.name}': group {group} is not a multiple of 4; "
                f"use one of {_groups_for(row)}"
            )
        if row % group:
            raise UnsupportedError(
                f"scheme '{self.name}': group {group} does not divide rows of {row}; "
                f"use group {_groups_for(row)}, or a float recipe such as bf16"
            )
        return group

    def bits_per_weight(self, row: int) -> float:
        """Storage including scales and zero points."""
        if self.is_float:
            return float(self.bits)
        return self.bits + (16 if self.symmetric else 24) / self.group_of(row)


@dataclass(frozen=True)
class Recipe:
    """Names of the schemes for a model's parts."""

    name: str
    linear: str
    embedding: str
    """A table that is only looked up; a tied head takes `head` instead."""
    head: str


def _integer(bits: int, group: int, symmetric: bool) -> Scheme:
    suffix = f"_g{group}" if group else "_row"
    return Scheme(f"int{bits}{'' if symmetric else 'a'}{suffix}", bits, group, symmetric)


def _recipe(bits: int, group: int, symmetric: bool) -> Recipe:
    """`q4` and `q8` mean groups of 32. A 4-bit recipe keeps table and head in 8 bits."""
    name = f"q{bits}{'' if symmetric else 'a'}" + (f"_g{group}" if group != 32 else "")
    linear = _integer(bits, group, symmetric).name
    head = linear if bits == 8 else _integer(8, min(group, 32), True).name
    return Recipe(name, linear, head, head)


SCHEMES = {
    row.name: row
    for row in (
        Scheme("f32", 32, dtype="float32"),
        Scheme("f16", 16, dtype="float16"),
        Scheme("bf16", 16, dtype="bfloat16"),
        *(_integer(b, g, s) for b in (4, 8) for g in (16, 32, 64, 128, 0) for s in (True, False)),
    )
}

RECIPES = {
    row.name: row
    for row in (
        Recipe("f32", "f32", "f32", "f32"),
        Recipe("bf16", "bf16", "bf16", "bf16"),
        Recipe("f16", "f16", "f16", "f16"),
        *(_recipe(b, g, s) for b in (8, 4) for s in (True, False) for g in (32, 16, 64, 128)),
    )
}


def scheme(name: str) -> Scheme:
    """A scheme by name. Raises UnsupportedError."""
    if name not in SCHEMES:
        raise UnsupportedError(f"unknown scheme '{name}'; use one of: {', '.join(SCHEMES)}")
    return SCHEMES[name]


def recipe(name: str) -> Recipe:
    """A recipe by name. Raises UnsupportedError."""
    if name not in RECIPES:
        raise UnsupportedError(f"unknown quantization '{name}'; use one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def with_head(base: Recipe, head: str | None) -> Recipe:
    """`base` with head and embedding as another recipe has its head. Raises UnsupportedError."""
    other = recipe(head).head if head else ""
    return replace(base, embedding=other, head=other) if other else base


def _groups_for(row: int) -> str:
    """Group sizes that fit a row, for messages."""
    fitting = [g for g in (128, 64, 32, 16, 8, 4) if row % g == 0]
    return ", ".join(map(str, fitting)) if fitting else "(none fits: rows must be multiples of 4)"
