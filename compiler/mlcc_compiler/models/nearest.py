"""Which architecture that is built comes nearest to one that is not, for the error that says so. By
what the layers do, not by the name; where nothing is known, by the name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

BY_LAYERS = {
    "afmoe": "glm4_moe",
    "bamba": "granitemoehybrid",
    "cohere2_moe": "cohere2",
    "dbrx": "mixtral",
    "deepseek_v32": "deepseek_v3",
    "deepseek_v4": "deepseek_v3",
    "dots1": "glm4_moe",
    "ernie4_5_vl_moe": "ernie4_5_moe",
    "exaone_moe": "glm4_moe",
    "falcon_mamba": "mamba2",
    "flex_olmo": "olmoe",
    "glm4v_moe": "glm4_moe",
    "glm_moe_dsa": "glm4_moe_lite",
    "hunyuan_v1_moe": "mixtral",
    "jamba": "granitemoehybrid",
    "jetmoe": "mixtral",
    "kimi_k25": "kimi_k2",
    "lfm3": "lfm2",
    "longcat_flash": "deepseek_v3",
    "mamba": "mamba2",
    "minimax": "minimax_m2",
    "olmo": "olmo2",
    "olmo_hybrid": "qwen3_next",
    "phimoe": "mixtral",
    "qwen3_vl_moe": "qwen3_moe",
    "zamba2": "granitemoehybrid",
}


def nearest(kind: str, built: Iterable[str]) -> str | None:
    """The `model_type` that is built and comes nearest; None if nothing does."""
    there = set(built)
    if (known := BY_LAYERS.get(kind.removesuffix("_text"))) in there:
        return known
    found = get_close_matches(kind, sorted(there), n=1, cutoff=0.75)
    return found[0] if found else None
