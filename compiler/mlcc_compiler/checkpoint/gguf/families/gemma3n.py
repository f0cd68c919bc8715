"""Gemma 3n's text: several states of a token, a low-rank path beside attention, sparse gates, and
an embedding for each layer."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.gguf.families.others import sliding_types
from mlcc_compiler.checkpoint.gguf.family import LAYER, OUTER, POST_NORMS, Config, Family
from mlcc_compiler.checkpoint.gguf.keys import Keys

_PER_LAYER, _LEFT = "per_layer_token_embd.weight", "blk.0.laurel_l.weight"
_LAYERS_WITH_KEYS = 20
_CAP = 30.0
"""Of logits. Both are hard-coded by llama.cpp, for files that do not say them."""


def _gemma3n(keys: Keys, config: Config) -> None:
    layers = config["num_hidden_layers"]
    for name in (_LEFT, _PER_LAYER):
        if len(keys.shapes.get(name, ())) != 2:
            raise CheckpointError(f"the GGUF file has no matrix {name!r}; fetch it again")
    shared = keys.largest("attention.shared_kv_layers") or max(0, layers - _LAYERS_WITH_KEYS)
    config |= {
        "model_type": "gemma3n_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": sliding_types(keys, config),
        "intermediate_size": keys.each("feed_forward_length", layers),
        "num_kv_shared_layers": shared,
        "hidden_size_per_layer_input": keys.whole("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": keys.shapes[_PER_LAYER][0],
        "altup_active_idx": keys.largest("altup.active_idx"),
        "altup_num_inputs": keys.whole("altup.num_inputs"),
        "laurel_rank": keys.shapes[_LEFT][0],
        "activation_sparsity_pattern": _sparsity(keys, layers),
        "rope_local_base_freq": keys.number("rope.freq_base_swa", 10000.0),
    }
    config.setdefault("final_logit_softcapping", _CAP)


def _sparsity(keys: Keys, layers: int) -> list[float] | None:
    """The share of a layer's gates that are 0, of how many deviations lie below; None = the model's
    own."""
    key = "activation_sparsity_scale"
    found = keys.get(key)
    if found is None:
        return None
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f" or len(found) != layers:
        raise keys.refuse(key, f"a number for each of {layers} layers")
    return [NormalDist().cdf(float(each)) for each in found]


FAMILIES = {
    "gemma3n": Family(
        {
            **LAYER,
            **POST_NORMS,
            "ffn_norm": "pre_feedforward_layernorm",
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
            "altup_correct_coef": "altup.correction_coefs",
            "altup_correct_scale.weight": "altup.correct_output_scale",
            "altup_predict_coef": "altup.prediction_coefs",
            "altup_router": "altup.modality_router",
            "altup_router_norm": "altup.router_norm",
            "laurel_l": "laurel.linear_left",
            "laurel_r": "laurel.linear_right",
            "laurel_post_norm": "laurel.post_laurel_norm",
        },
        _gemma3n,
        outer={
            **OUTER,
            "per_layer_token_embd": "model.embed_tokens_per_layer",
            "per_layer_model_proj": "model.per_layer_model_projection",
            "per_layer_proj_norm": "model.per_layer_projection_norm",
        },
        stacked={
            "altup_proj.weight": "model.altup_projections.{}.weight",
            "altup_unembd_proj.weight": "model.altup_unembed_projections.{}.weight",
        },
        per_layer=True,
    ),
}
