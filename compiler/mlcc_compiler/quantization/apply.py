"""Quantization as a transform of the module tree: every matrix gets the name of its scheme.

Models never mention it. What a scheme means is `schemes.py`; how the numbers are stored for a
kernel is decided where the operator is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlcc.errors import UnsupportedError
from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.layers import Embedding, Linear, named_modules
from mlcc_compiler.quantization.schemes import RECIPES, Recipe, scheme


def apply_recipe(model: CausalLM, recipe: Recipe) -> None:
    """Set the schemes of a model in place. Raises UnsupportedError if a group fits no row."""
    for name, module, scheme_name in _matrices(model, recipe):
        if why := _misfit(module, scheme_name):
            others = [r.name for r in RECIPES.values() if _fits(model, r)]
            raise UnsupportedError(
                f"tensor '{name}.weight': {why}; use --quant with one of: {', '.join(others)}"
            )
        module.scheme = scheme_name


def _matrices(model: CausalLM, recipe: Recipe) -> Iterator[tuple[str, Linear | Embedding, str]]:
    """Name, module and scheme's name of every matrix; a table that is the head too is a head."""
    table = recipe.head if model.config.tie_embeddings else recipe.embedding
    for name, module in named_modules(model):
        if isinstance(module, Embedding):
            yield name, module, table
        elif isinstance(module, Linear):
            yield name, module, recipe.head if name == "lm_head" else recipe.linear


def _fits(model: CausalLM, recipe: Recipe) -> bool:
    return not any(_misfit(module, name) for _, module, name in _matrices(model, recipe))


def _misfit(module: Linear | Embedding, scheme_name: str) -> str:
    row, group = int(module.weight.shape[1]), scheme(scheme_name).group
    return f"groups of {group} do not divide rows of {row}" if group and row % group else ""
