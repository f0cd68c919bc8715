"""Qwen2 and Qwen2.5 (Yang et al., 2024): Llama with a bias on q, k and v. MiMo 7B (Xiaomi, 2025) is
the same with a multi-token-prediction layer, which drafts with `--mtp`.
"""

from __future__ import annotations

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    Mtp,
    common_fields,
    rope_from_hf,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, require
from mlcc_compiler.models.layers import PreNormLayer

Layer, MTP = PreNormLayer, Mtp(normed=True)
MTP_OF_TYPE = {"mimo": Mtp(normed=True, hidden_first=True)}

DEFAULTS = DECODER_DEFAULTS | {
    "max_position_embeddings": 32768,
    "num_key_value_heads": 32,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}


IGNORED = (r"^(model\.)?(visual|audio_tower)\.", r"^(talker|token2wav)\.", r"^model\.mtp_layers\.")
"""Beside the text part's tensors: the towers of a Qwen2-VL or Qwen2.5-Omni and the latter's
speech, further layers of a MiMo."""


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Qwen2ForCausalLM."""
    fields = common_fields(hf, "qwen2") | {"windows": qwen_windows(hf)}
    return DecoderConfig(
        **fields, ropes=(rope_from_hf(hf, context),), qkv_bias=True, ignored=IGNORED
    )


def qwen_windows(hf: HfConfig) -> tuple[int | None, ...]:
    """Layers from `max_window_layers` on slide, if `use_sliding_window` is set."""
    layers, first = require(hf, "num_hidden_layers"), hf["max_window_layers"]
    default = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    types = layer_types(hf, default)
    return windows_by_type(hf, types) if hf["use_sliding_window"] else (None,) * layers
