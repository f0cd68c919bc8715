"""Vision towers in GGUF, by `clip.projector_type`: Hugging Face's config, image processor and
tensor names for llama.cpp's keys and names.

What llama.cpp hard-codes and the file lacks is here, with the values of the published checkpoints.
`mmproj.py` reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.gguf.keys import Keys

Config = dict[str, Any]

_BICUBIC, _BILINEAR, _LANCZOS = 3, 2, 1
"""Pillow's numbers of its filters."""
_GEMMA4_POOL, _GEMMA4_TOKENS = 3, 280
"""Patches on a side of a token, and most tokens of an image."""
_SIGLIP = {
    "v.patch_embd": "embeddings.patch_embedding",
    "v.position_embd": "embeddings.position_embedding",
    "v.post_ln": "post_layernorm",
}
_SIGLIP_LAYER = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
_QWEN_LAYER = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj"}


def _below(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    return {theirs: prefix + own for theirs, own in names.items()}


@dataclass(frozen=True)
class Projector:
    """One kind of tower. Names are without ".weight" and ".bias"."""

    texts: tuple[str, ...]
    """GGUF's architectures of the language models that it belongs to."""
    image_token: str
    outer: Mapping[str, str]
    """GGUF's name of a tensor -> Hugging Face's."""
    layer: Mapping[str, str]
    """The same below `v.blk.N.`; the file may have q, k and v of a joined matrix."""
    layers: str
    """Hugging Face's name of what is there `v.blk.`."""
    root: str
    """Beginning of the names of tensors that are not known, to be refused by name."""
    config: Callable[[Keys, Config, Config], Config]
    """(keys, vision_config, the language model's config) -> further fields of config.json;
    completes vision_config."""
    processor: Callable[[Keys, Config], Config]
    """(keys, vision_config) -> preprocessor_config.json without mean and deviation."""
    exact: Mapping[str, str] = field(default_factory=dict)
    """Complete names of tensors."""
    added: Mapping[str, float] = field(default_factory=dict)
    """Tensors of Hugging Face, and what the converter adds to them."""
    pairs: tuple[str, ...] = ()
    """Parts of a layer whose rows are in rotary pairs."""
    sizes: Mapping[str, str] = field(default_factory=dict)
    """Hugging Face's names of sizes in vision_config that are not the common ones."""
    last: str = ""
    """The matrix that makes rows as wide as the language model's; "" = `vision.projection_dim` is
    their width."""


def _size(keys: Keys, key: str, default: int) -> int:
    return keys.whole(f"vision.{key}", default)


def _gemma3(keys: Keys, vision: Config, text: Config) -> Config:
    """4 x 4 patches are a token, unless the file says otherwise."""
    scale = _size(keys, "projector.scale_factor", 4)
    side = vision["image_size"] // vision["patch_size"] // scale
    return {"model_type": "gemma3", "mm_tokens_per_image": side**2}


def _gemma4(keys: Keys, vision: Config, text: Config) -> Config:
    """What the file does not say follows from its tensors."""
    heads, layer = vision["num_attention_heads"], "v.blk.0."
    queries, shared = (keys.shapes.get(f"{layer}attn_{n}.weight", (0,))[0] for n in "qk")
    if not queries or queries % heads or not shared or shared % (queries // heads):
        raise keys.refuse("vision.attention.head_count", f"a divisor of {queries} rows")
    vision |= {
        "head_dim": queries // heads,
        "num_key_value_heads": shared // (queries // heads),
        "rms_norm_eps": keys.number("vision.attention.layer_norm_epsilon", 1e-6),
        "pooling_kernel_size": _size(keys, "projector.scale_factor", _GEMMA4_POOL),
        "position_embedding_size": keys.shapes.get("v.position_embd.weight", (0, 0))[1],
        "use_clipped_linears": f"{layer}attn_q.input_max" in keys.shapes,
        "standardize": "v.std_bias" in keys.shapes,
    }
    return {"model_type": "gemma4"}


def _gemma4_processor(keys: Keys, vision: Config) -> Config:
    sizes = {name: vision[name] for name in ("patch_size", "pooling_kernel_size")}
    area = (sizes["patch_size"] * sizes["pooling_kernel_size"]) ** 2
    most = _size(keys, "image_max_pixels", _GEMMA4_TOKENS * area)
    return {"resample": _BICUBIC, "max_soft_tokens": most // area, **sizes}


def _idefics3(keys: Keys, vision: Config, text: Config) -> Config:
    return {"model_type": "idefics3", "scale_factor": _size(keys, "projector.scale_factor", 4)}


def _idefics3_processor(keys: Keys, vision: Config) -> Config:
    edge = _size(keys, "preproc_image_size", 4 * vision["image_size"])
    most = {"longest_edge": vision["image_size"]}
    return {"resample": _LANCZOS, "size": {"longest_edge": edge}, "max_image_size": most}


def _internvl(keys: Keys, vision: Config, text: Config) -> Config:
    ratio = 1 / _size(keys, "projector.scale_factor", 2)
    vision["hidden_act"] = "silu" if keys.get("use_silu", False) is True else "gelu"
    return {"model_type": "internvl", "downsample_ratio": ratio}


def _internvl_processor(keys: Keys, vision: Config) -> Config:
    side = vision["image_size"]
    most = _size(keys, "preproc_max_tiles", 12)
    size = {"height": side, "width": side}
    return {"resample": _BICUBIC, "size": size, "max_patches": most}


def _llama4(keys: Keys, vision: Config, text: Config) -> Config:
    """Widths of the adapter follow from its tensors."""
    adapter, out = (f"mm.model.mlp.{i}.weight" for i in (1, 2))
    vision |= {
        "hidden_act": "gelu",
        "pixel_shuffle_ratio": 1 / _size(keys, "projector.scale_factor", 2),
        "projector_input_dim": keys.shapes.get(adapter, (0,))[0],
        "projector_output_dim": keys.shapes.get(out, (0,))[0],
        "vision_output_dim": keys.shapes.get("mm.model.fc.weight", (0,))[-1],
    }
    return {"model_type": "llama4"}


def _llama4_processor(keys: Keys, vision: Config) -> Config:
    side = vision["image_size"]
    return {"resample": _BILINEAR, "size": {"height": side, "width": side}, "max_patches": 16}


def _llava(keys: Keys, vision: Config, text: Config) -> Config:
    """CLIP's towers have a class token, SigLIP's (LLaVA-OneVision) have none. The file ends with
    the layer whose output is taken, unless it names an earlier one."""
    tiles, is_clip = "model.image_newline" in keys.shapes, "v.class_embd" in keys.shapes
    if tiles == is_clip:
        raise UnsupportedError(
            f"a tower of {'LLaVA 1.6' if tiles else 'SigLIP without tiles'} is not built; give the "
            "mmproj file of LLaVA 1.5 or of LLaVA-OneVision, or add --no-vision"
        )
    act = ("gelu" if keys.get("use_gelu", False) is True else "quick_gelu") if is_clip else None
    vision |= {
        "model_type": "clip_vision_model" if is_clip else "siglip_vision_model",
        "hidden_act": act or "gelu_pytorch_tanh",
        "layer_norm_eps": keys.number("vision.attention.layer_norm_epsilon"),
    }
    found = {
        "model_type": "llava" if is_clip else "llava_onevision",
        "vision_feature_layer": keys.whole("vision.feature_layer", vision["num_hidden_layers"]),
        "vision_feature_select_strategy": "default" if is_clip else "full",
        "multimodal_projector_bias": "mm.0.bias" in keys.shapes,
    }
    return found if is_clip else found | _tiles(keys)


def _tiles(keys: Keys) -> Config:
    """Of LLaVA-OneVision: grids, as heights and widths, and how many tiles' rows are kept."""
    flat = keys.get("vision.image_grid_pinpoints")
    if not isinstance(flat, np.ndarray) or flat.dtype.kind not in "iu" or len(flat) % 2:
        raise keys.refuse("vision.image_grid_pinpoints", "pairs of heights and widths")
    return {
        "image_grid_pinpoints": flat.reshape(-1, 2).tolist(),
        "vision_aspect_ratio": keys.get("vision.image_aspect_ratio", "anyres_max_9"),
    }


def _llava_processor(keys: Keys, vision: Config) -> Config:
    side = vision["image_size"]
    square = {"height": side, "width": side}
    if vision["model_type"] == "siglip_vision_model":
        return {"resample": _BICUBIC, "size": square}
    return {"resample": _BICUBIC, "size": {"shortest_edge": side}, "crop_size": square}


def _pixtral(keys: Keys, vision: Config, text: Config) -> Config:
    """Mistral 3 merges patches, Pixtral does not."""
    merges = "mm.patch_merger.weight" in keys.shapes
    silu = keys.get("use_silu", False) is True
    vision |= {"model_type": "pixtral", "hidden_act": "silu" if silu else "gelu"}
    found = {
        "model_type": "mistral3" if merges else "llava",
        "multimodal_projector_bias": "mm.1.bias" in keys.shapes,
        "text_config": {"rms_norm_eps": text.get("rms_norm_eps", 1e-5)},
    }
    return found | ({"spatial_merge_size": _size(keys, "spatial_merge_size", 2)} if merges else {})


def _pixtral_processor(keys: Keys, vision: Config) -> Config:
    return {"resample": _BICUBIC, "size": {"longest_edge": vision["image_size"]}}


def _qwen2_vl(keys: Keys, vision: Config, text: Config) -> Config:
    inner, hidden = vision["intermediate_size"], vision["embed_dim"]
    if inner % hidden:
        raise keys.refuse("vision.embedding_length", f"a divisor of an MLP's width, {inner}")
    vision["mlp_ratio"] = inner // hidden
    return _qwen(keys, vision, "qwen2_vl", "quick_gelu")


def _qwen2_5_vl(keys: Keys, vision: Config, text: Config) -> Config:
    """Of each `n_wa_pattern` layers the last attends to the whole image."""
    every, layers = _size(keys, "n_wa_pattern", 8), vision["num_hidden_layers"]
    vision["fullatt_block_indexes"] = list(range(every - 1, layers, every))
    vision["window_size"] = _size(keys, "window_size", 112)
    return _qwen(keys, vision, "qwen2_5_vl", "silu")


def _qwen3_vl(keys: Keys, vision: Config, text: Config) -> Config:
    """Layers with further features have matrices of their own."""
    taken = [i for i in range(vision["num_hidden_layers"])
             if f"v.deepstack.{i}.fc1.weight" in keys.shapes]  # fmt: skip
    positions = keys.shapes.get("v.position_embd.weight", (0,))[0]
    vision |= {"deepstack_visual_indexes": taken, "num_position_embeddings": positions}
    family = {"qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}
    kind = str(text.get("model_type"))
    return _qwen(keys, vision, family.get(kind, "qwen3_vl"), "gelu_pytorch_tanh")


def _qwen(keys: Keys, vision: Config, kind: str, activation: str) -> Config:
    merge = _size(keys, "spatial_merge_size", 2)
    vision |= {"spatial_merge_size": merge, "hidden_act": activation}
    del vision["image_size"]  # any
    return {"model_type": kind}


def _pixels(least: int, most: int) -> Callable[[Keys, Config], Config]:
    def processor(keys: Keys, vision: Config) -> Config:
        low = _size(keys, "image_min_pixels", least)
        return {
            "resample": _BICUBIC,
            "min_pixels": low,
            "max_pixels": _size(keys, "image_max_pixels", most),
        }

    return processor


_MERGER = {"v.post_ln": "merger.ln_q", "mm.0": "merger.mlp.0", "mm.2": "merger.mlp.2"}
_QWEN_SIZES = {"num_attention_heads": "num_heads"}

PROJECTORS: dict[str, Projector] = {
    "gemma3": Projector(
        texts=("gemma3",),
        image_token="<image_soft_token>",
        outer={
            **_below("vision_tower.vision_model.", _SIGLIP),
            "mm.soft_emb_norm": "multi_modal_projector.mm_soft_emb_norm",
        },
        layer=_SIGLIP_LAYER,
        layers="vision_tower.vision_model.encoder.layers",
        root="vision_tower.",
        config=_gemma3,
        processor=lambda keys, vision: {"resample": _BILINEAR},
        exact={"mm.input_projection.weight": "multi_modal_projector.mm_input_projection_weight"},
        added={"multi_modal_projector.mm_soft_emb_norm.weight": 1.0},
    ),
    "gemma4v": Projector(
        texts=("gemma4",),
        image_token="<|image|>",
        outer={
            "v.patch_embd": "model.vision_tower.patch_embedder.input_proj",
            "mm.input_projection": "model.embed_vision.embedding_projection",
        },
        layer={
            "ln1": "input_layernorm",
            "ln2": "pre_feedforward_layernorm",
            "attn_post_norm": "post_attention_layernorm",
            "ffn_post_norm": "post_feedforward_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_out": "self_attn.o_proj",
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        },
        layers="model.vision_tower.encoder.layers",
        root="model.vision_tower.",
        config=_gemma4,
        processor=_gemma4_processor,
        exact={
            "v.position_embd.weight": "model.vision_tower.patch_embedder.position_embedding_table",
            "v.std_bias": "model.vision_tower.std_bias",
            "v.std_scale": "model.vision_tower.std_scale",
        },
    ),
    "idefics3": Projector(
        texts=("llama", "smollm3"),
        image_token="<image>",
        outer={
            **_below("model.vision_model.", _SIGLIP),
            "mm.model.fc": "model.connector.modality_projection.proj",
        },
        layer=_SIGLIP_LAYER,
        layers="model.vision_model.encoder.layers",
        root="model.vision_model.",
        config=_idefics3,
        processor=_idefics3_processor,
    ),
    "internvl": Projector(
        texts=("qwen2", "qwen3", "qwen3moe", "llama"),
        image_token="<IMG_CONTEXT>",
        outer={
            **_below("vision_tower.", _SIGLIP),
            "mm.model.mlp.0": "multi_modal_projector.layer_norm",
            "mm.model.mlp.1": "multi_modal_projector.linear_1",
            "mm.model.mlp.3": "multi_modal_projector.linear_2",
        },
        layer=_SIGLIP_LAYER,
        layers="vision_tower.encoder.layers",
        root="vision_tower.",
        config=_internvl,
        processor=_internvl_processor,
        exact={
            "v.class_embd": "vision_tower.embeddings.cls_token",
            "v.position_embd": "vision_tower.embeddings.position_embedding.weight",
        },
    ),
    "llama4": Projector(
        texts=("llama4",),
        image_token="<|patch|>",
        outer={
            "v.patch_embd": "vision_model.patch_embedding.linear",
            "v.pre_ln": "vision_model.layernorm_pre",
            "v.post_ln": "vision_model.layernorm_post",
            "mm.model.mlp.1": "vision_model.vision_adapter.mlp.fc1",
            "mm.model.mlp.2": "vision_model.vision_adapter.mlp.fc2",
            "mm.model.fc": "multi_modal_projector.linear_1",
        },
        layer={
            **_SIGLIP_LAYER,
            "ln1": "input_layernorm",
            "ln2": "post_attention_layernorm",
            "attn_post_norm": "post_attention_layernorm",  # by converters that know Gemma 4
            "attn_out": "self_attn.o_proj",
        },
        layers="vision_model.model.layers",
        root="vision_model.",
        config=_llama4,
        processor=_llama4_processor,
        exact={
            "v.class_embd": "vision_model.class_embedding",
            "v.position_embd.weight": "vision_model.positional_embedding_vlm",
        },
    ),
    "mlp": Projector(
        texts=("llama", "qwen2"),
        image_token="<image>",
        outer={
            **_below("vision_tower.vision_model.", _SIGLIP),
            "v.pre_ln": "vision_tower.vision_model.pre_layrnorm",
            "mm.0": "multi_modal_projector.linear_1",
            "mm.2": "multi_modal_projector.linear_2",
        },
        layer=_SIGLIP_LAYER,
        layers="vision_tower.vision_model.encoder.layers",
        root="vision_tower.",
        config=_llava,
        processor=_llava_processor,
        exact={
            "v.class_embd": "vision_tower.vision_model.embeddings.class_embedding",
            "model.image_newline": "image_newline",
        },
        last="mm.2.weight",
    ),
    "pixtral": Projector(
        texts=("llama", "mistral3"),
        image_token="[IMG]",
        outer={
            "v.patch_embd": "vision_tower.patch_conv",
            "v.pre_ln": "vision_tower.ln_pre",
            "mm.input_norm": "multi_modal_projector.norm",
            "mm.patch_merger": "multi_modal_projector.patch_merger.merging_layer",
            "mm.1": "multi_modal_projector.linear_1",
            "mm.2": "multi_modal_projector.linear_2",
        },
        layer={
            "ln1": "attention_norm",
            "ln2": "ffn_norm",
            "attn_q": "attention.q_proj",
            "attn_k": "attention.k_proj",
            "attn_v": "attention.v_proj",
            "attn_out": "attention.o_proj",
            "ffn_gate": "feed_forward.gate_proj",
            "ffn_up": "feed_forward.up_proj",
            "ffn_down": "feed_forward.down_proj",
        },
        layers="vision_tower.transformer.layers",
        root="vision_tower.",
        config=_pixtral,
        processor=_pixtral_processor,
        pairs=("attn_q", "attn_k"),
    ),
    "qwen2vl_merger": Projector(
        texts=("qwen2vl",),
        image_token="<|image_pad|>",
        outer=_below("visual.", {"v.patch_embd": "patch_embed.proj", **_MERGER}),
        layer={**_QWEN_LAYER, "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
        layers="visual.blocks",
        root="visual.",
        config=_qwen2_vl,
        processor=_pixels(56 * 56, 12845056),
        sizes={**_QWEN_SIZES, "hidden_size": "embed_dim"},
    ),
    "qwen2.5vl_merger": Projector(
        texts=("qwen2vl",),
        image_token="<|image_pad|>",
        outer=_below("visual.", {"v.patch_embd": "patch_embed.proj", **_MERGER}),
        layer={
            **_QWEN_LAYER,
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        },
        layers="visual.blocks",
        root="visual.",
        config=_qwen2_5_vl,
        processor=_pixels(56 * 56, 12845056),
        sizes=_QWEN_SIZES,
    ),
    "qwen3vl_merger": Projector(
        texts=("qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"),
        image_token="<|image_pad|>",
        outer=_below(
            "visual.",
            {
                "v.patch_embd": "patch_embed.proj",
                "v.position_embd": "pos_embed",
                "v.post_ln": "merger.norm",
                "mm.0": "merger.linear_fc1",
                "mm.2": "merger.linear_fc2",
            },
        ),
        layer={**_QWEN_LAYER, "ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"},
        layers="visual.blocks",
        root="visual.",
        config=_qwen3_vl,
        processor=_pixels(256 * 256, 4096 * 4096),
        sizes=_QWEN_SIZES,
    ),
}
DEEPSTACK = {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}
"""Parts of `v.deepstack.N.`, where N is the layer -> of `visual.deepstack_merger_list.I.`."""
