"""Recipes: rules that assign a scheme to each tensor of a model.

A recipe names a scheme for linears, for an embedding table and for the head, and may have rules for
single tensors; the first matching rule decides. `apply.py` turns it into a map from tensor to
scheme.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from mlcc.errors import UnsupportedError
from mlcc_compiler.quantization.schemes import MIDDLE, ZEROS, affine, scheme

_GATED = ("gate", "up", "down")

DEFAULT = "q4"
"""The default recipe for a checkpoint of floats."""
OF_SOUND = "q8"
"""That of models that hear: a tenth larger than q4, and as good as floats (Whisper tiny.en)."""
DRAFT_HEAD = "mtp.lm_head.weight"
"""The head that drafts read: a copy with fewer bits, or that of an EAGLE-3 head."""
_OF_DRAFTS = ((DRAFT_HEAD, "t4_g32"), ("mtp.midlayer.*", "int8_g32"))
"""For an EAGLE-3 head of floats beside a quantized checkpoint. Its `fc` stays: some of the hidden
states that it reads are thousands of times as large as others."""
_FUSED = "int8_g32"
"""For an EAGLE-3 head's `fc` in recipes of fewer bits. Of Gemma 3 270M's, in `q4`, 45 % of the
drafts were accepted with `fc` in 4 bits, 56 % in 8, 56 % in bf16 (7,680 tokens)."""
KEEP = "keep"
"""The recipe of an already quantized checkpoint: tensors keep their schemes."""


@dataclass(frozen=True)
class Recipe:
    """Scheme names for a model's parts."""

    name: str
    linear: str
    embedding: str
    """For a table that is only looked up; a tied head takes `head` instead."""
    head: str
    rules: tuple[tuple[str, str], ...] = ()
    """(glob pattern of tensor names, scheme): ("*.v_proj.weight", "q6_k"). They do not apply to
    embedding and head."""
    keeps: bool = False
    """Tensors that are quantized in the checkpoint keep schemes and values; the rest of the recipe
    is for the others."""

    def of_linear(self, tensor: str) -> str:
        """The scheme of a linear's weight, by its name in the model."""
        return next((s for p, s in self.rules if fnmatchcase(tensor, p)), self.linear)

    def of_fused_states(self, tensor: str) -> str:
        """The scheme of an EAGLE-3 head's `fc`, by its name in the model."""
        found = self.of_linear(tensor)
        return _FUSED if found == self.linear and scheme(found).bits < 8 else found

    def shrinks_draft_head(self, kept: str | None = None) -> bool:
        """Whether drafts read a copy of the head, as it has more bits than a linear. `kept`: the
        checkpoint's scheme of the head, if that is kept."""
        wanted, head = scheme(self.of_linear(DRAFT_HEAD)), scheme(kept or self.head)
        return wanted.bits < head.bits


def _recipe(bits: int, group: int, symmetric: bool) -> Recipe:
    """One scheme for all linears. A 4-bit recipe keeps table and head in 8 bits."""
    name = f"q{bits}{'' if symmetric else 'a'}"
    if group != 32 or (bits, symmetric) == (4, True):  # `q4` alone is a mixed one, below
        name += f"_g{group}"
    linear = affine(bits, group, MIDDLE if symmetric else ZEROS).name
    head = linear if bits == 8 else affine(8, min(group, 32)).name
    return Recipe(name, linear, head, head)


def _mixed(name: str, linear: str, **better: str) -> Recipe:
    """Two-level, with more bits for the projections where a bit helps most (`better`, by name).

    Measured on Gemma 3 270M, by class of matrices, as KL divergence per bit spent
    (docs/quantization.md): v is 3 % of the weights and a quarter of the loss, then down. Experts,
    of which each token reads few, all get `linear`. The rows here have the least total loss for
    their number of bits.
    """
    rules = ((f"*.{part}_proj.weight", row) for part, row in better.items())
    return Recipe(name, linear, "int8_g32", "int8_g32", (("*.experts.*", linear), *rules))


RECIPES = {
    row.name: row
    for row in (
        Recipe("f32", "f32", "f32", "f32"),
        Recipe("bf16", "bf16", "bf16", "bf16"),
        Recipe("f16", "f16", "f16", "f16"),
        *(_recipe(b, g, s) for b in (8, 4) for s in (True, False) for g in (32, 16, 64, 128)),
        _mixed("q3", "t3_g32", v="t5_g32", k="t4_g32", down="t4_g32", up="t4_g32"),
        _mixed("q4s", "t4_g32", v="k6_g32", k="t5_g32", down="t5_g32"),
        _mixed("q4", "t4_g32", v="t5_g32", down="t5_g32", up="t5_g32"),
        _mixed("q4l", "t4_g32", v="k6_g32", k="k6_g32", **dict.fromkeys(_GATED, "t5_g32")),
        _mixed("q5", "t5_g32", v="k6_g32", down="k6_g32"),
        _mixed("q6", "k6_g32", v="int8_g32"),
        Recipe(KEEP, "bf16", "bf16", "bf16", _OF_DRAFTS, keeps=True),
    )
}


def recipe(name: str) -> Recipe:
    """A recipe by name. Raises UnsupportedError."""
    if name not in RECIPES:
        raise UnsupportedError(f"unknown quantization '{name}'; use one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def with_head(base: Recipe, head: str | None) -> Recipe:
    """`base` with head and embedding taken from another recipe's linears, or from a scheme.

    Raises UnsupportedError.
    """
    if not head:
        return base
    other = RECIPES[head].linear if head in RECIPES else scheme(head).name
    return replace(base, embedding=other, head=other)
