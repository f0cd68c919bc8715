"""Small random multimodal checkpoints, made by `transformers`, and its answers about images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers.modeling_outputs import MoeCausalLMOutputWithPast

from tests.compiler.models.helpers.checkpoints import CASES, GEMMA4, SMALL, save_initialised

IMAGE = 130
SIDE, PATCH, MERGE = 32, 4, 2
ROWS = (SIDE // PATCH // MERGE) ** 2
"""Tokens of an image."""
ODD_SIDE = 173
"""Twelve patches of 14, and a rest: 3 x 3 of them are one of the ROWS."""
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
    "num_channels": 3,
    "hidden_act": "gelu_pytorch_tanh",
}
MEAN, STD = [0.4, 0.5, 0.6], [0.3, 0.25, 0.5]
PROCESSOR = {
    "image_mean": MEAN,
    "image_std": STD,
    "resample": 1,
    "size": {"longest_edge": 2 * SIDE},
    "max_image_size": {"longest_edge": SIDE},
    "do_image_splitting": True,
}


def smolvlm_odd(folder: Path) -> torch.nn.Module:
    """A SmolVLM with the odd sizes of the 2.2B: heads of 72, patches of 14, a rest at the edge."""
    tower = {**TOWER, "hidden_size": 144, "image_size": ODD_SIDE, "patch_size": 14}
    return smolvlm(folder, tower, 3)


def smolvlm(folder: Path, tower: dict[str, Any] = TOWER, merge: int = MERGE) -> torch.nn.Module:
    """A SmolVLM in `folder`, and transformers' model of it in float64."""
    config = transformers.SmolVLMConfig(
        text_config={"model_type": "llama", **SMALL, "rope_theta": 1000.0},
        vision_config=tower,
        scale_factor=merge,
        image_token_id=IMAGE,
        tie_word_embeddings=False,
        pad_token_id=0,
    )
    return _saved(transformers.SmolVLMForConditionalGeneration, config, folder)


def gemma3(folder: Path) -> torch.nn.Module:
    """A Gemma 3 in `folder`, and transformers' model of it in float64."""
    text = {
        "model_type": "gemma3_text",
        **SMALL,
        "head_dim": 16,
        "sliding_window": 20,
        "query_pre_attn_scalar": 16,
        "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=TOWER,
        mm_tokens_per_image=ROWS,
        image_token_id=IMAGE,
        image_token_index=IMAGE,
        boi_token_index=129,
        eoi_token_index=128,
        tie_word_embeddings=True,
    )
    return _saved(transformers.Gemma3ForConditionalGeneration, config, folder)


GEMMA4_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "patch_size": PATCH,
    "pooling_kernel_size": MERGE,
    "position_embedding_size": 200,
}
GEMMA4_PROCESSOR = {
    "do_normalize": False,
    "patch_size": PATCH,
    "pooling_kernel_size": MERGE,
    "max_soft_tokens": 70,
}
GEMMA4_IMAGES: dict[str, Any] = {
    "image_token_id": IMAGE,
    "boi_token_id": 129,
    "eoi_token_id": 128,
    "video_token_id": None,
    "tie_word_embeddings": True,
}


def gemma4(folder: Path) -> torch.nn.Module:
    """A Gemma 4 of the small ones' kind in `folder`, and transformers' model of it in float64: with
    per-layer embeddings, a tower of bounded matrices, and images that are seen causally."""
    text = {"model_type": "gemma4_text", **SMALL, **GEMMA4, "pad_token_id": 3}
    config = transformers.Gemma4Config(
        text_config=text,
        vision_config={**GEMMA4_TOWER, "use_clipped_linears": True},
        **GEMMA4_IMAGES,
    )
    return _saved(transformers.Gemma4ForConditionalGeneration, config, folder)


def gemma4_both_ways(folder: Path) -> torch.nn.Module:
    """A Gemma 4 of the large ones' kind: its layers with windows see an image both ways, and the
    tower's output is standardized."""
    text = {
        **SMALL,
        **GEMMA4,
        "model_type": "gemma4_text",
        "num_hidden_layers": 3,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "use_bidirectional_attention": "vision",
    }
    config = transformers.Gemma4Config(
        text_config=text, vision_config={**GEMMA4_TOWER, "standardize": True}, **GEMMA4_IMAGES
    )
    return _saved(transformers.Gemma4ForConditionalGeneration, config, folder)


def llava(folder: Path) -> torch.nn.Module:
    """A LLaVA in `folder`, and transformers' model of it in float64. Its tower's class token is no
    row of the prompt, and its last layer is not computed."""
    side = PATCH * MERGE * 4  # as many patches as others have rows
    tower = {**TOWER, "hidden_act": "quick_gelu", "image_size": side, "patch_size": PATCH * MERGE}
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **SMALL, "rope_theta": 1000.0},
        vision_config={"model_type": "clip_vision_model", **tower, "num_hidden_layers": 3},
        image_token_index=IMAGE,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=ROWS,
        tie_word_embeddings=False,
    )
    return _saved(transformers.LlavaForConditionalGeneration, config, folder)


GRIDS = [[SIDE * high, SIDE * wide] for high in range(1, 4) for wide in range(1, 4)]
MOST_TILES = 2
"""Of LLaVA-OneVision: grids of more tiles are scaled down to the rows of these."""


def llava_onevision(folder: Path) -> torch.nn.Module:
    """A LLaVA-OneVision in `folder`, and transformers' model of it in float64."""
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **SMALL, "rope_theta": 1000.0},
        vision_config={
            "model_type": "siglip_vision_model",
            **TOWER,
            "patch_size": PATCH * MERGE,
            "vision_use_head": False,
        },
        image_token_index=IMAGE,
        image_grid_pinpoints=GRIDS,
        vision_aspect_ratio=f"anyres_max_{MOST_TILES}",
        tie_word_embeddings=False,
    )
    return _saved(transformers.LlavaOnevisionForConditionalGeneration, config, folder)


def internvl(folder: Path) -> torch.nn.Module:
    """An InternVL 3 in `folder`, and transformers' model of it in float64."""
    tower = {**TOWER, "hidden_act": "gelu", "attention_bias": True}
    config = transformers.InternVLConfig(
        text_config={"model_type": "qwen2", **SMALL, "rope_theta": 1000.0},
        vision_config={"model_type": "internvl_vision", **tower},
        image_token_id=IMAGE,
        image_seq_length=ROWS,
        tie_word_embeddings=False,
    )
    return _saved(transformers.InternVLForConditionalGeneration, config, folder)


PIXTRAL_TOWER = {
    "model_type": "pixtral",
    **TOWER,
    "image_size": 2 * SIDE,
    "hidden_act": "silu",
    "num_hidden_layers": 3,
}
BREAK, END = 129, 128
"""Tokens of text after the lines of an image, and after the last one."""


def mistral3(folder: Path) -> torch.nn.Module:
    """A Mistral 3 in `folder`, and transformers' model of it in float64. Its tower's last layer is
    not computed."""
    config = transformers.Mistral3Config(
        text_config={"model_type": "mistral", **SMALL, "rope_theta": 1000.0},
        vision_config=PIXTRAL_TOWER,
        image_token_index=IMAGE,
        spatial_merge_size=MERGE,
        vision_feature_layer=-2,
        tie_word_embeddings=False,
    )
    return _saved(transformers.Mistral3ForConditionalGeneration, config, folder)


def pixtral(folder: Path) -> torch.nn.Module:
    """A Pixtral (a LLaVA with its tower) in `folder`, and transformers' model of it in float64."""
    tower = {**PIXTRAL_TOWER, "hidden_act": "gelu", "patch_size": PATCH * MERGE}
    config = transformers.LlavaConfig(
        text_config={"model_type": "mistral", **SMALL, "rope_theta": 1000.0},
        vision_config=tower,
        image_token_index=IMAGE,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_seq_length=1,
        tie_word_embeddings=False,
    )
    return _saved(transformers.LlavaForConditionalGeneration, config, folder)


MROPE = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]}
QWEN: dict[str, Any] = {
    "image_token_id": IMAGE,
    "video_token_id": 129,
    "vision_start_token_id": 128,
    "vision_end_token_id": 127,
    "tie_word_embeddings": False,
}


def qwen2_vl(folder: Path) -> torch.nn.Module:
    """A Qwen2-VL in `folder`, and transformers' model of it in float64."""
    config = transformers.Qwen2VLConfig(
        text_config={"model_type": "qwen2_vl_text", **SMALL, "rope_parameters": MROPE},
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "hidden_size": SMALL["hidden_size"],
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
        },
        **QWEN,
    )
    return _saved(transformers.Qwen2VLForConditionalGeneration, config, folder)


def qwen2_5_vl(folder: Path) -> torch.nn.Module:
    """A Qwen2.5-VL in `folder`, and transformers' model of it in float64. Windows are of 3 x 3
    merge blocks, which no image is a multiple of."""
    config = transformers.Qwen2_5_VLConfig(
        text_config={"model_type": "qwen2_5_vl_text", **SMALL, "rope_parameters": MROPE},
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 60,
            "out_hidden_size": SMALL["hidden_size"],
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "window_size": 3 * PATCH * MERGE,
            "fullatt_block_indexes": [1],
        },
        **QWEN,
    )
    return _saved(transformers.Qwen2_5_VLForConditionalGeneration, config, folder)


INTERLEAVED = {**MROPE, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
QWEN3_TEXT = {**SMALL, "head_dim": 16, "num_hidden_layers": 3, "rope_parameters": INTERLEAVED}
QWEN3_TOWER = {
    "depth": 3,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 60,
    "out_hidden_size": SMALL["hidden_size"],
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "num_position_embeddings": 25,
    "deepstack_visual_indexes": [0, 2],
}
"""Its table of positions has a grid that no image has."""


def qwen3_vl(folder: Path) -> torch.nn.Module:
    """A Qwen3-VL in `folder`, and transformers' model of it in float64."""
    config = transformers.Qwen3VLConfig(
        text_config={"model_type": "qwen3_vl_text", **QWEN3_TEXT},
        vision_config=QWEN3_TOWER,
        **QWEN,
    )
    return _saved(transformers.Qwen3VLForConditionalGeneration, config, folder)


def qwen3_vl_moe(folder: Path, dense: Sequence[int] = (1,)) -> torch.nn.Module:
    """A Qwen3-VL with experts, but for the layers `dense`, in `folder`, and transformers' model of
    it in float64. Its experts' matrices are [in, out], as in published files."""
    experts = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    kind = {"model_type": "qwen3_vl_moe_text", "mlp_only_layers": [*dense]}
    config = transformers.Qwen3VLMoeConfig(
        text_config={**QWEN3_TEXT, **experts, **kind},
        vision_config={**QWEN3_TOWER, "model_type": "qwen3_vl_moe"},
        **QWEN,
    )
    config.text_config._experts_implementation = "eager"
    oracle = _saved(transformers.Qwen3VLMoeForConditionalGeneration, config, folder)
    transpose_experts(folder)
    return oracle


DELTA = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
}
QWEN3_5_TOWER = {
    name: value for name, value in QWEN3_TOWER.items() if name != "deepstack_visual_indexes"
}


def qwen3_5(folder: Path) -> torch.nn.Module:
    """A Qwen3.5 in `folder`, and transformers' model of it in float64."""
    config = transformers.Qwen3_5Config(
        text_config={"model_type": "qwen3_5_text", **SMALL, **DELTA},
        vision_config=QWEN3_5_TOWER,
        **QWEN,
    )
    return _saved(transformers.Qwen3_5ForConditionalGeneration, config, folder)


def qwen3_5_moe(folder: Path) -> torch.nn.Module:
    """A Qwen3.5 with experts in `folder`, and transformers' model of it in float64."""
    experts = {
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
    }
    config = transformers.Qwen3_5MoeConfig(
        text_config={"model_type": "qwen3_5_moe_text", **SMALL, **DELTA, **experts},
        vision_config=QWEN3_5_TOWER,
        **QWEN,
    )
    config.text_config._experts_implementation = "eager"
    return _saved(transformers.Qwen3_5MoeForConditionalGeneration, config, folder)


def transpose_experts(folder: Path) -> None:
    """Turn the stacked matrices of a checkpoint's experts."""
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    stacked = [name for name in tensors if ".mlp.experts." in name]
    assert stacked and all(tensors[name].ndim == 3 for name in stacked)
    turned = {name: tensors[name].transpose(1, 2).contiguous() for name in stacked}
    save_file({**tensors, **turned}, file, {"format": "pt"})


ANY_SIZE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
"""Families of Qwen's, whose images keep their ratio."""
IN_LINES = ("mistral3", "pixtral")
"""Families whose images keep their ratio, with tokens of text between lines."""
OF_AREA = ("gemma4", "gemma4-both-ways")
"""Families whose images keep their ratio and have about as many tokens each."""


def llama4(folder: Path, text: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """A Llama 4 in `folder`, and transformers' model of it in float64. text: fields of its text's
    config."""
    tower = {**TOWER, "hidden_act": "gelu", "intermediate_size": 4 * TOWER["hidden_size"]}
    widths = dict.fromkeys(("projector_input_dim", "projector_output_dim", "vision_output_dim"), 40)
    tower |= {**widths, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}
    config = transformers.Llama4Config(
        text_config={
            "model_type": "llama4_text",
            **SMALL,
            **CASES["llama4_text"][1],
            **(text or {}),
        },
        vision_config=tower,
        image_token_index=IMAGE,
        boi_token_index=129,
        eoi_token_index=128,
        tie_word_embeddings=False,
    )
    # which its forward of transformers 5.24 reads, behind the logits
    MoeCausalLMOutputWithPast.image_outputs = None  # type: ignore[attr-defined]
    return _saved(transformers.Llama4ForConditionalGeneration, config, folder)


FAMILIES = {
    "smolvlm": smolvlm,
    "smolvlm-odd": smolvlm_odd,
    "gemma3": gemma3,
    "gemma4": gemma4,
    "gemma4-both-ways": gemma4_both_ways,
    "llama4": llama4,
    "llava": llava,
    "llava_onevision": llava_onevision,
    "internvl": internvl,
    "mistral3": mistral3,
    "pixtral": pixtral,
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl_moe,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
}


def _saved(kind: Any, config: Any, folder: Path) -> torch.nn.Module:
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    oracle = save_initialised(kind(config), folder)
    words = {f"w{i}": i for i in range(IMAGE)} | {"<image>": IMAGE}
    Tokenizer(WordLevel(words, "w0")).save(str(folder / "tokenizer.json"))
    side = getattr(config.vision_config, "image_size", 0)
    side = side if isinstance(side, int) else side[0]
    sizes = {"size": {"longest_edge": 2 * side}, "max_image_size": {"longest_edge": side}}
    if config.vision_config.model_type == "pixtral":
        sizes = {"size": {"longest_edge": 2 * SIDE}}
    elif config.model_type == "llava":
        sizes = {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
    if config.model_type == "llava_onevision":
        sizes = {"size": {"height": SIDE, "width": SIDE}, "image_grid_pinpoints": GRIDS}
    if config.model_type == "llama4":
        sizes = {"size": {"height": SIDE, "width": SIDE}, "max_patches": 4, "resample": 2}
    if config.model_type == "internvl":
        sizes = {"size": {"height": SIDE, "width": SIDE}, "crop_to_patches": True}
    if config.model_type in ANY_SIZE:
        sizes = {"size": {"shortest_edge": 64, "longest_edge": 4 * SIDE * SIDE}}
    if config.model_type == "gemma4":
        sizes = GEMMA4_PROCESSOR
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | sizes))
    return oracle
