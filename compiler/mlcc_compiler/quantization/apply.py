"""Assigns a scheme to every tensor of a model from a recipe's rules, and sets it in the module
tree.

Models know nothing of it. A row that a scheme's groups do not divide gets the nearest fitting
scheme (`schemes.fitting`), which is reported; nothing is refused. Schemes are defined in
`schemes.py`; how numbers are stored for a kernel is decided when operators are lowered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.eagle import EagleHead
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.layers import Embedding, Linear, named_modules
from mlcc_compiler.quantization.recipes import Recipe
from mlcc_compiler.quantization.schemes import FALLBACK, anew, fitting, needs_e4m3, scheme

AnyModel = CausalLM | Encoder
WITHOUT_KERNELS = {"nf4": FALLBACK}
"""Schemes that can be read but have no kernels, and their substitutes."""

_EXPERT = re.compile(r"(.*\.experts\.)\d+\.(gate|up|down)_proj\.weight")
"""Tensors read by one product: those of all experts of a layer, gate and up together."""


@dataclass
class Assignment:
    """Scheme of every matrix that a recipe reaches, by the model's tensor names."""

    schemes: dict[str, str] = field(default_factory=dict)
    changed: dict[tuple[str, str, int], list[str]] = field(default_factory=dict)
    """(requested scheme, assigned scheme, row length) -> tensors that did not get the requested
    scheme."""

    def notes(self) -> Iterator[str]:
        """Deviations from the request, a line each."""
        for (wanted, given, row), names in self.changed.items():
            what = names[0] if len(names) == 1 else f"{len(names)} matrices ({names[0]}, ...)"
            why = f"whose groups do not divide rows of {row}"
            narrow = needs_e4m3(scheme(wanted)) and not needs_e4m3(scheme(given))
            if wanted in WITHOUT_KERNELS or narrow:
                why = "for which there are no kernels"
            elif scheme(wanted).fits(row):
                why = "as all experts of a layer are one product"
            yield f"{what}: {given} instead of {wanted}, {why}"


def assign(
    model: AnyModel,
    recipe: Recipe,
    own: Mapping[str, str] | None = None,
    *,
    e4m3: bool = False,
) -> Assignment:
    """The assignment of a recipe for a model.

    own: the checkpoint's schemes, used by recipes that keep them. e4m3: whether the target has
    kernels for 8-bit floats.
    """
    found = Assignment()
    kept = own if own and recipe.keeps else {}
    together: dict[str, str] = {}
    for name, module, wanted in _matrices(model, recipe):
        wanted = kept.get(name, wanted)
        row = int(module.weight.shape[1])
        near = scheme(WITHOUT_KERNELS.get(wanted, wanted))
        if needs_e4m3(near) and not (e4m3 and near.fits(row)):
            near = scheme(anew(near.name))
        given = fitting(near, row).name
        if place := _EXPERT.fullmatch(name):
            given = together.setdefault(place[1] + ("down" if place[2] == "down" else ""), given)
        found.schemes[name] = given
        if given != wanted:
            found.changed.setdefault((wanted, given, row), []).append(name)
    return found


def apply_schemes(model: AnyModel, schemes: Mapping[str, str]) -> None:
    """Set the schemes of a model in place."""
    for name, module in named_modules(model):
        if isinstance(module, (Linear, Embedding)):
            module.scheme = schemes[f"{name}.weight"]


def _matrices(model: AnyModel, recipe: Recipe) -> Iterator[tuple[str, Linear | Embedding, str]]:
    """Tensor, module and scheme of every matrix; a table tied to the head counts as the head."""
    table = recipe.head if model.config.tie_embeddings else recipe.embedding
    head = getattr(model, "mtp", None)
    fused = head.fc if isinstance(head, EagleHead) else None
    for name, module in named_modules(model):
        tensor = f"{name}.weight"
        if isinstance(module, Embedding):
            is_head = name.endswith("embed_tokens")
            yield tensor, module, table if is_head else recipe.embedding
        elif isinstance(module, Linear):
            of_linear = recipe.of_fused_states if module is fused else recipe.of_linear
            yield tensor, module, recipe.head if name == "lm_head" else of_linear(tensor)
