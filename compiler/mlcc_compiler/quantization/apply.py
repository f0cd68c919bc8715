"""Quantization as a transform of the module tree: every matrix gets the name of its scheme.

Models never mention it. What a scheme means is `schemes.py`; how the numbers are stored for a
kernel is decided where the operator is lowered.
"""

from __future__ import annotations

from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.layers import Embedding, Linear, named_modules
from mlcc_compiler.quantization.schemes import Recipe, scheme


def apply_recipe(model: CausalLM, recipe: Recipe) -> None:
    """Set the schemes of a model in place. Raises UnsupportedError if a group fits no row."""
    tied = model.config.tie_embeddings
    model.model.embed_tokens.scheme = recipe.head if tied else recipe.embedding
    for name, module in named_modules(model):
        if isinstance(module, Linear):
            module.scheme = recipe.head if name == "lm_head" else recipe.linear
        if isinstance(module, (Linear, Embedding)):
            _check(module.scheme, int(module.weight.shape[1]))


def _check(name: str, row: int) -> None:
    row_of = scheme(name)
    if not row_of.is_float:
        row_of.group_of(row)
