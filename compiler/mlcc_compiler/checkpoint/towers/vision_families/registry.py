"""The families, by name."""

from __future__ import annotations

from mlcc_compiler.checkpoint.towers.vision_families.family import Family
from mlcc_compiler.checkpoint.towers.vision_families.gemma3 import GEMMA3
from mlcc_compiler.checkpoint.towers.vision_families.gemma4 import GEMMA4
from mlcc_compiler.checkpoint.towers.vision_families.idefics3 import IDEFICS3
from mlcc_compiler.checkpoint.towers.vision_families.internvl import INTERNVL
from mlcc_compiler.checkpoint.towers.vision_families.llama4 import LLAMA4
from mlcc_compiler.checkpoint.towers.vision_families.llava import LLAVA
from mlcc_compiler.checkpoint.towers.vision_families.llava_onevision import LLAVA_ONEVISION
from mlcc_compiler.checkpoint.towers.vision_families.pixtral import PIXTRAL
from mlcc_compiler.checkpoint.towers.vision_families.qwen import (
    QWEN2_5_VL,
    QWEN2_VL,
    QWEN3_5,
    QWEN3_VL,
)

FAMILIES: dict[str, Family] = {
    "idefics3": IDEFICS3,
    "smolvlm": IDEFICS3,
    "qwen2_vl": QWEN2_VL,
    "qwen2_5_vl": QWEN2_5_VL,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL,
    "qwen3_5": QWEN3_5,
    "qwen3_5_moe": QWEN3_5,
    "llama4": LLAMA4,
    "llava": LLAVA,
    "llava/pixtral": PIXTRAL,
    "llava_onevision": LLAVA_ONEVISION,
    "mistral3": PIXTRAL,
    "internvl": INTERNVL,
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
}
"""By `model_type` of the whole model, or of that and its tower."""
