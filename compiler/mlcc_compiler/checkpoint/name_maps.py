"""Name maps of checkpoints that name or stack tensors differently from the models here, by the
`model_type` of their config; `view.py` applies them.

Plain data: imports nothing else of the compiler. Other families need no entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlcc_compiler.checkpoint.view import NameRule

_MIXTRAL = (
    NameRule(r"(.*)\.block_sparse_moe\.gate\.(\w+)", (r"\1.mlp.gate.\2",)),
    NameRule(
        r"(.*)\.block_sparse_moe\.e_score_correction_bias",
        (r"\1.mlp.gate.e_score_correction_bias",),
    ),
    NameRule(
        r"(.*)\.block_sparse_moe\.experts\.(\d+)\.w1\.(\w+)", (r"\1.mlp.experts.\2.gate_proj.\3",)
    ),
    NameRule(
        r"(.*)\.block_sparse_moe\.experts\.(\d+)\.w3\.(\w+)", (r"\1.mlp.experts.\2.up_proj.\3",)
    ),
    NameRule(
        r"(.*)\.block_sparse_moe\.experts\.(\d+)\.w2\.(\w+)", (r"\1.mlp.experts.\2.down_proj.\3",)
    ),
)
_KIMI_LINEAR = (
    *_MIXTRAL,
    # the last also of a dense layer, as transformers saves it
    NameRule(
        r"(.*)\.block_sparse_moe\.((?:shared_experts\.)?(?:gate|up|down)_proj\.\w+)",
        (r"\1.mlp.\2",),
    ),
    NameRule(r"(.*\.A_log)", (r"\1",), kinds=1),
)
_OF_EXPERTS = (r"\1.{}.gate_proj.weight", r"\1.{}.up_proj.weight")
_GRANITE_EXPERTS = (
    NameRule(r"(.*)\.block_sparse_moe\.router\.layer\.weight", (r"\1.mlp.gate.weight",)),
    NameRule(
        r"(.*)\.block_sparse_moe\.input_linear\.weight",
        (r"\1.mlp.experts.{}.gate_proj.weight", r"\1.mlp.experts.{}.up_proj.weight"),
        experts=True,
    ),
    NameRule(
        r"(.*)\.block_sparse_moe\.output_linear\.weight",
        (r"\1.mlp.experts.{}.down_proj.weight",),
        experts=True,
    ),
)
_GRANITE = (
    *_GRANITE_EXPERTS,
    NameRule(
        r"(.*)\.shared_mlp\.input_linear\.weight",
        (r"\1.mlp.shared_expert.gate_proj.weight", r"\1.mlp.shared_expert.up_proj.weight"),
    ),
    NameRule(
        r"(.*)\.shared_mlp\.output_linear\.weight",
        (r"\1.mlp.shared_expert.down_proj.weight",),
    ),
)
_GRANITE_HYBRID = (
    *_GRANITE_EXPERTS,
    NameRule(
        r"(.*)\.shared_mlp\.input_linear\.weight",
        (r"\1.shared_mlp.gate_proj.weight", r"\1.shared_mlp.up_proj.weight"),
    ),
    NameRule(r"(.*)\.shared_mlp\.output_linear\.weight", (r"\1.shared_mlp.down_proj.weight",)),
)
_BACKBONE = (
    NameRule(r"backbone\.embeddings?\.(.*)", (r"model.embed_tokens.\1",)),
    NameRule(r"backbone\.norm_f\.(.*)", (r"model.norm.\1",)),
    NameRule(r"backbone\.layers\.(.*)", (r"model.layers.\1",)),
)
_LFM2 = (
    NameRule(r"(.*)\.embedding_norm\.(.*)", (r"\1.norm.\2",)),
    NameRule(r"(.*)\.self_attn\.out_proj\.(.*)", (r"\1.self_attn.o_proj.\2",)),
    NameRule(r"(.*)\.self_attn\.([qk])_layernorm\.(.*)", (r"\1.self_attn.\2_norm.\3",)),
    NameRule(r"(.*)\.feed_forward\.w1\.(.*)", (r"\1.feed_forward.gate_proj.\2",)),
    NameRule(r"(.*)\.feed_forward\.w3\.(.*)", (r"\1.feed_forward.up_proj.\2",)),
    NameRule(r"(.*)\.feed_forward\.w2\.(.*)", (r"\1.feed_forward.down_proj.\2",)),
)
_LFM2_MOE = (
    NameRule(
        r"(.*)\.feed_forward\.expert_bias", (r"\1.feed_forward.gate.e_score_correction_bias",)
    ),
    NameRule(r"(.*\.feed_forward\.experts\.\d+)\.w1\.(.*)", (r"\1.gate_proj.\2",)),
    NameRule(r"(.*\.feed_forward\.experts\.\d+)\.w3\.(.*)", (r"\1.up_proj.\2",)),
    NameRule(r"(.*\.feed_forward\.experts\.\d+)\.w2\.(.*)", (r"\1.down_proj.\2",)),
    *_LFM2,
)
_STACKED = (
    NameRule(r"(.*\.mlp\.experts)\.gate_up_proj", _OF_EXPERTS, experts=True),
    NameRule(r"(.*\.mlp\.experts)\.down_proj", (r"\1.{}.down_proj.weight",), experts=True),
    # as fp8 each expert's matrices are tensors already
    NameRule(
        r"(.*\.mlp\.experts)\.gate_up_proj\.(\d+)",
        (r"\1.\2.gate_proj.weight", r"\1.\2.up_proj.weight"),
    ),
    NameRule(r"(.*\.mlp\.experts)\.down_proj\.(\d+)", (r"\1.\2.down_proj.weight",)),
)
# [in, out], as Qwen3-VL's are
_STACKED_TRANSPOSED = tuple(replace(rule, transposed=True) for rule in _STACKED)
_LLAMA4 = (
    NameRule(r"(.*)\.feed_forward\.router\.weight", (r"\1.mlp.gate.weight",)),
    NameRule(
        r"(.*)\.feed_forward\.experts\.gate_up_proj",
        (r"\1.mlp.experts.{}.gate_proj.weight", r"\1.mlp.experts.{}.up_proj.weight"),
        experts=True,
        transposed=True,
    ),
    NameRule(
        r"(.*)\.feed_forward\.experts\.down_proj",
        (r"\1.mlp.experts.{}.down_proj.weight",),
        experts=True,
        transposed=True,
    ),
    NameRule(r"(.*)\.feed_forward\.(.*)", (r"\1.mlp.\2",)),
)
# as MXFP4 each expert's matrices are tensors already, of gate and up row by row
_GPT_OSS = (
    NameRule(r"(.*\.mlp)\.router\.(weight|bias)", (r"\1.gate.\2",)),
    NameRule(
        r"(.*\.mlp\.experts)\.gate_up_proj",
        _OF_EXPERTS,
        experts=True,
        transposed=True,
        interleaved=True,
    ),
    NameRule(
        r"(.*\.mlp\.experts)\.gate_up_proj\.(\d+)",
        (r"\1.\2.gate_proj.weight", r"\1.\2.up_proj.weight"),
        interleaved=True,
    ),
    NameRule(
        r"(.*\.mlp\.experts)\.down_proj",
        (r"\1.{}.down_proj.weight",),
        experts=True,
        transposed=True,
    ),
    NameRule(r"(.*\.mlp\.experts)\.down_proj\.(\d+)", (r"\1.\2.down_proj.weight",)),
    NameRule(r"(.*\.mlp)\.experts\.gate_up_proj_bias", (r"\1.gate_up_bias",), kinds=2),
    NameRule(r"(.*\.mlp)\.experts\.down_proj_bias", (r"\1.down_bias",), kinds=1),
)
_GEMMA4 = (
    NameRule(r"(.*)\.router\.proj\.weight", (r"\1.moe.gate.weight",)),
    NameRule(r"(.*)\.router\.(scale|per_expert_scale)", (r"\1.moe.\2",)),
    NameRule(
        r"(.*)\.experts\.gate_up_proj",
        (r"\1.moe.experts.{}.gate_proj.weight", r"\1.moe.experts.{}.up_proj.weight"),
        experts=True,
    ),
    NameRule(
        r"(.*)\.experts\.down_proj",
        (r"\1.moe.experts.{}.down_proj.weight",),
        experts=True,
    ),
)
_WHISPER = (
    NameRule(r"model\.decoder\.layer_norm\.(.*)", (r"model.norm.\1",)),
    NameRule(r"model\.decoder\.(.*)", (r"model.\1",)),
    NameRule(r"proj_out\.(.*)", (r"lm_head.\1",)),
)
_ERNIE = (
    NameRule(
        r"(.*\.mlp)\.moe_statics\.e_score_correction_bias",
        (r"\1.gate.e_score_correction_bias",),
        kinds=1,
    ),
    NameRule(r"model\.mtp_linear_proj\.0\.(.*)", (r"mtp.fc.\1",)),
    NameRule(r"model\.mtp_emb_norm\.0\.(.*)", (r"mtp.pre_fc_norm_embedding.\1",)),
    NameRule(r"model\.mtp_hidden_norm\.0\.(.*)", (r"mtp.pre_fc_norm_hidden.\1",)),
    NameRule(r"model\.mtp_block\.0\.(.*)", (r"mtp.layers.0.\1",)),
)
_MIMO = (
    NameRule(r"model\.mtp_layers\.0\.input_proj\.(.*)", (r"mtp.fc.\1",)),
    NameRule(r"model\.mtp_layers\.0\.token_layernorm\.(.*)", (r"mtp.pre_fc_norm_embedding.\1",)),
    NameRule(r"model\.mtp_layers\.0\.hidden_layernorm\.(.*)", (r"mtp.pre_fc_norm_hidden.\1",)),
    NameRule(r"model\.mtp_layers\.0\.final_layernorm\.(.*)", (r"mtp.norm.\1",)),
    NameRule(r"model\.mtp_layers\.0\.(.*)", (r"mtp.layers.0.\1",)),
)
_NEMOTRON_H = (
    *_BACKBONE,
    NameRule(r"mtp\.layers\.0\.eh_proj\.(.*)", (r"mtp.fc.\1",)),
    NameRule(r"mtp\.layers\.0\.enorm\.(.*)", (r"mtp.pre_fc_norm_embedding.\1",)),
    NameRule(r"mtp\.layers\.0\.hnorm\.(.*)", (r"mtp.pre_fc_norm_hidden.\1",)),
    NameRule(r"mtp\.layers\.\d+\.final_layernorm\.(.*)", (r"mtp.norm.\1",)),
)

NAME_MAPS: Mapping[str, tuple[NameRule, ...]] = {
    "mixtral": _MIXTRAL,
    "minimax_m2": _MIXTRAL,
    "kimi_linear": _KIMI_LINEAR,
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "granitemoehybrid": _GRANITE_HYBRID,
    "mamba2": _BACKBONE,
    "nemotron_h": _NEMOTRON_H,
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2_MOE,
    "qwen3_5_moe": _STACKED,
    "qwen3_5_moe_text": _STACKED,
    "qwen3_vl_moe": _STACKED_TRANSPOSED,
    "qwen3_vl_moe_text": _STACKED_TRANSPOSED,
    "falcon_h1": (NameRule(r"(.*)\.final_layernorm\.(.*)", (r"\1.norm.\2",)),),
    "ernie4_5_moe": _ERNIE,
    "mimo": _MIMO,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gpt_oss": _GPT_OSS,
    "mistral4": _STACKED,
    "llama4_text": _LLAMA4,
    "whisper": _WHISPER,
    "qwen2_5_omni_text": (NameRule(r"thinker\.(.*)", (r"\1",)),),
}


def name_rules(
    config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[NameRule, ...]:
    """The rules of a checkpoint with tensors of these shapes."""
    return (*_mtp_rules(config), *_rules(config, shapes))


def _mtp_rules(config: Mapping[str, Any]) -> tuple[NameRule, ...]:
    """The first multi-token-prediction layer of DeepSeek's kind, which is numbered as one of the
    model's, under Qwen3-Next's names. Embedding and head in it are the model's once more."""
    layers, more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    if not isinstance(layers, int) or not isinstance(more, int) or more < 1:
        return ()
    layer = rf"(?:.*\.)?layers\.{layers}\."
    return (
        NameRule(layer + r"eh_proj\.(.*)", (r"mtp.fc.\1",)),
        NameRule(layer + r"enorm\.(.*)", (r"mtp.pre_fc_norm_embedding.\1",)),
        NameRule(layer + r"hnorm\.(.*)", (r"mtp.pre_fc_norm_hidden.\1",)),
        NameRule(layer + r"shared_head\.norm\.(.*)", (r"mtp.norm.\1",)),
        NameRule(layer + r"(shared_head\.head|embed_tokens)\.(.*)", (r"mtp.copies.\1.\2",)),
        NameRule(layer + r"(.*)", (r"mtp.layers.0.\1",)),
    )


def _rules(
    config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[NameRule, ...]:
    """The rules of the family.

    Published mixtures of Qwen3-VL have experts [in, out], those that transformers 5 saved again
    [out, in]; transformers too tells them apart by the shapes.
    """
    kind = str(config.get("model_type"))
    if kind.startswith("qwen3_vl_moe"):
        usual = (config.get("hidden_size"), config.get("moe_intermediate_size"))
        own = [s for name, s in shapes.items() if re.search(r"\.experts\.down_proj(\.\d+)?$", name)]
        if all(tuple(shape[-2:]) == usual for shape in own):
            return _STACKED
    return NAME_MAPS.get(kind, ())
