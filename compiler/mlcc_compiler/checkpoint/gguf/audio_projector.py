"""Gemma 4's audio tower in the mmproj file of a GGUF model (`clip.audio.projector_type` "gemma4a"):
Hugging Face's config and tensor names for llama.cpp's.

What the file does not say, such as the rows to which a row attends, is as in all published
checkpoints. `mmproj.py` reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mlcc_compiler.checkpoint.gguf.keys import Keys

KIND = "gemma4a"
TOKEN = "<|audio|>"
_TOWER = "model.audio_tower."
_OUTER = {
    "a.conv1d.0": f"{_TOWER}subsample_conv_projection.layer0.conv",
    "a.conv1d.0.norm": f"{_TOWER}subsample_conv_projection.layer0.norm",
    "a.conv1d.1": f"{_TOWER}subsample_conv_projection.layer1.conv",
    "a.conv1d.1.norm": f"{_TOWER}subsample_conv_projection.layer1.norm",
    "a.input_projection": f"{_TOWER}subsample_conv_projection.input_proj_linear",
    "a.pre_encode.out": f"{_TOWER}output_proj",
    "mm.a.input_projection": "model.embed_audio.embedding_projection",
}
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.post",
    "attn_k_rel": "self_attn.relative_k_proj",
    "per_dim_scale": "self_attn.per_dim_scale",
    "attn_pre_norm": "norm_pre_attn",
    "attn_post_norm": "norm_post_attn",
    "ln2": "norm_out",
    "ffn_norm": "feed_forward1.pre_layer_norm",
    "ffn_post_norm": "feed_forward1.post_layer_norm",
    "ffn_up": "feed_forward1.ffw_layer_1",
    "ffn_down": "feed_forward1.ffw_layer_2",
    "ffn_norm_1": "feed_forward2.pre_layer_norm",
    "ffn_post_norm_1": "feed_forward2.post_layer_norm",
    "ffn_up_1": "feed_forward2.ffw_layer_1",
    "ffn_down_1": "feed_forward2.ffw_layer_2",
    "conv_norm": "lconv1d.pre_layer_norm",
    "norm_conv": "lconv1d.conv_norm",
    "conv_dw": "lconv1d.depthwise_conv1d",
    "conv_pw1": "lconv1d.linear_start",
    "conv_pw2": "lconv1d.linear_end",
}
SOFTPLUS, DEPTHWISE = ".per_dim_scale", ".depthwise_conv1d.weight"
"""Tensors that the converter changes: softplus of the one; the other loses its middle dimension."""
_PART = r"(weight|bias|(?:in|out)put_(?:min|max))"
_OF_LAYER = re.compile(rf"a\.blk\.(\d+)\.(\w+)\.{_PART}")
_OF_TOWER = re.compile(rf"((?:mm\.)?a\..+)\.{_PART}")


def names_of(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str]]:
    """(GGUF's name, Hugging Face's) of each tensor of the tower; of an unknown one GGUF's, below
    the tower's, to be refused by name."""
    for name in shapes:
        if (match := _OF_TOWER.fullmatch(name)) is None:
            continue
        if layer := _OF_LAYER.fullmatch(name):
            own = f"{_TOWER}layers.{layer[1]}.{_LAYER.get(layer[2], layer[2])}"
            yield name, own if own.endswith(SOFTPLUS) else f"{own}.{layer[3]}"
        else:
            yield name, f"{_OUTER.get(match[1], _TOWER + match[1])}.{match[2]}"


def config_of(keys: Keys) -> dict[str, Any] | None:
    """audio_config; None if the file has no such tower. Raises CheckpointError."""
    if keys.get("audio.projector_type") != KIND:
        return None
    shapes = keys.shapes
    first, second, taps, out = (
        shapes.get(f"a.{name}.weight", (0, 0))
        for name in ("conv1d.0", "conv1d.1", "blk.0.conv_dw", "pre_encode.out")
    )
    if keys.whole("audio.num_mel_bins", first[0]) != first[0]:
        raise keys.refuse("audio.num_mel_bins", f"as the first convolution has outputs, {first[0]}")
    return {
        "model_type": "gemma4_audio",
        "hidden_size": keys.whole("audio.embedding_length"),
        "num_hidden_layers": keys.whole("audio.block_count"),
        "num_attention_heads": keys.whole("audio.attention.head_count"),
        "subsampling_conv_channels": [first[0], second[0]],
        "conv_kernel_size": taps[-1],
        "output_proj_dims": out[0],
        "use_clipped_linears": "a.blk.0.attn_q.input_max" in shapes,
    }
