"""Gemma 4 and 3n with the config.json of their repositories on the hub: real sizes, and fields that
`transformers` 5 renames when it saves them."""

from __future__ import annotations

from typing import Any

import pytest

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc_compiler.models.architectures import gemma3n, gemma4
from mlcc_compiler.models.per_layer_embedding import LayerInputs
from mlcc_compiler.models.registry import build_model, with_defaults

PERIOD = ["sliding_attention"] * 4 + ["full_attention"]
GEMMA_4_E2B: dict[str, Any] = {
    "model_type": "gemma4_text",
    "global_head_dim": 512,
    "hidden_size": 1536,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144,
    "layer_types": PERIOD * 7,
    "num_attention_heads": 8,
    "num_hidden_layers": 35,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
    "final_logit_softcapping": 30.0,
}
GEMMA_4_26B_A4B: dict[str, Any] = {
    "model_type": "gemma4_text",
    "attention_k_eq_v": True,
    "enable_moe_block": True,
    "global_head_dim": 512,
    "hidden_size": 2816,
    "hidden_size_per_layer_input": 0,
    "intermediate_size": 2112,
    "moe_intermediate_size": 704,
    "num_attention_heads": 16,
    "num_experts": 128,
    "num_global_key_value_heads": 2,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "sliding_window": 1024,
    "top_k_experts": 8,
    "use_bidirectional_attention": "vision",
}
GEMMA_3N_E2B: dict[str, Any] = {
    "model_type": "gemma3n_text",
    "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
    "intermediate_size": [8192] * 30,
    "layer_types": PERIOD * 6,
    "num_hidden_layers": 30,
    "num_kv_shared_layers": 10,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
}


def test_gemma_4_e2b() -> None:
    config = gemma4.read_config(with_defaults(GEMMA_4_E2B), 4096)
    assert config.head_dims[:5] == (256,) * 4 + (512,) and set(config.kv_heads) == {1}
    assert config.kv_layers[:15] == tuple(range(15)) and config.kv_layers[15:20] == (13,) * 4 + (
        14,
    )
    assert config.inner[14:16] == (6144, 12288) and config.windows[3:5] == (512, None)
    sliding, wide = config.ropes
    assert sliding.rotary_dim == 256 and wide.rotary_dim == 512
    assert sum(f > 0 for f in wide.inv_freq) == 64
    assert config.inputs == LayerInputs(vocab_size=262144, width=256, pad_id=0)


def test_gemma_4_26b_a4b() -> None:
    config = gemma4.read_config(with_defaults(GEMMA_4_26B_A4B), 4096)
    assert config.kv_heads[:6] == (8,) * 5 + (2,) and config.key_is_value[4:6] == (False, True)
    assert config.inputs is None and config.kv_layers == tuple(range(30))
    assert config.experts is not None and config.experts.count == 128 and config.experts.chosen == 8


def test_gemma_3n_e2b() -> None:
    config = gemma3n.read_config(with_defaults(GEMMA_3N_E2B), 4096)
    assert config.kv_layers[20:25] == (18,) * 4 + (19,) and config.states == 4
    assert config.cuts[9:11] == (pytest.approx(1.6448536, abs=1e-6), None)
    assert config.ropes[0].inv_freq[1] < config.ropes[1].inv_freq[1]  # of the larger base


@pytest.mark.parametrize(
    ("base", "wrong", "gist"),
    [
        (GEMMA_4_E2B, {"num_kv_shared_layers": 35}, "'num_kv_shared_layers'"),
        (GEMMA_4_E2B, {"num_kv_shared_layers": 32}, "a layer of each type is before"),
        (GEMMA_4_E2B, {"per_layer_config": {"3": {"sliding_window": 7}}}, "'per_layer_config'"),
        (GEMMA_4_E2B, {"rope_parameters": {"full_attention": {}}}, "'rope_parameters'"),
        (GEMMA_4_26B_A4B, {"top_k_experts": 129}, "'top_k_experts' must be at most"),
        (GEMMA_4_26B_A4B, {"use_bidirectional_attention": "all"}, "EmbeddingGemma"),
        (GEMMA_3N_E2B, {"altup_active_idx": 4}, "'altup_active_idx'"),
        (GEMMA_3N_E2B, {"intermediate_size": [8192]}, "a list of 30, one for each layer"),
        (GEMMA_3N_E2B, {"activation_sparsity_pattern": [1.0] * 30}, "parts below 1"),
        (GEMMA_3N_E2B, {"hidden_size_per_layer_input": 0}, "'hidden_size_per_layer_input'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    base: dict[str, Any], wrong: dict[str, Any], gist: str
) -> None:
    with pytest.raises(MlccError, match=gist) as raised:
        build_model({**base, **wrong}, 64)
    assert isinstance(raised.value, (CheckpointError, UnsupportedError))
