"""The table of supported families, by `general.architecture`."""

from __future__ import annotations

from mlcc_compiler.checkpoint.gguf.families import (
    delta,
    gemma3n,
    gemma4,
    hybrids,
    latent,
    llamas,
    others,
)

FAMILIES = {
    **llamas.FAMILIES,
    **others.FAMILIES,
    **gemma3n.FAMILIES,
    **gemma4.FAMILIES,
    **latent.FAMILIES,
    **hybrids.FAMILIES,
    **delta.FAMILIES,
}
