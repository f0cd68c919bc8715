"""A GGUF file of a Hugging Face folder, as llama.cpp's converter would make it.

Written with the `gguf` package's writer and the converter's documented changes: rows of Llama's q
and k in pairs, Gemma's norms with 1 added, experts in one tensor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

Array = np.ndarray[Any, Any]
Formats = Callable[[str], str]
"""The name of the format of a tensor, by its name."""

ARCHITECTURES = {"mistral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
}
_GEMMA = _NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_REALS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}


def write_gguf(
    folder: Path,
    out: Path,
    formats: Formats = lambda name: "F32",
    metadata: Mapping[str, Any] | None = None,
    split: int = 0,
) -> Path:
    """Write `out` (with `split`, files of so many tensors) and return the first file."""
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    architecture = ARCHITECTURES.get(kind, kind)
    tensors = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(out, architecture, split_max_tensors=split)
    add_config(writer, config)
    for key, value in (metadata or {}).items():
        add(writer, key, value)
    for name, array in converted(tensors, config, architecture).items():
        wanted = gguf.GGMLQuantizationType[formats(name) if array.ndim > 1 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(array, wanted), raw_dtype=wanted)
    for name, array in frequencies(config).items():
        writer.add_tensor(name, np.asarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(iter(sorted(out.parent.glob(f"{out.stem}*.gguf"))))


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """A value of metadata, of the type that the converter takes for it."""
    if isinstance(value, (list, np.ndarray)):
        writer.add_array(key, list(value))
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_float32(key, value)


def add_config(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    prefix = writer.arch
    for table, kind in ((_KEYS, int), (_REALS, float)):
        for key, name in table.items():
            if config.get(key) is not None:
                add(writer, f"{prefix}.{name}", kind(config[key]))
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        add(writer, f"{prefix}.{key}", width)
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    add(writer, f"{prefix}.rope.freq_base", float(rope["rope_theta"]))
    if rope["rope_type"] in ("linear", "yarn"):
        add(writer, f"{prefix}.rope.scaling.type", rope["rope_type"])
        add(writer, f"{prefix}.rope.scaling.factor", float(rope["factor"]))
    if original := rope.get("original_max_position_embeddings"):
        add(writer, f"{prefix}.rope.scaling.original_context_length", original)
    if rope["rope_type"] == "longrope":
        factor = config["max_position_embeddings"] / original
        scale = float(np.sqrt(1 + np.log(factor) / np.log(original)))
        add(writer, f"{prefix}.rope.scaling.attn_factor", scale)


def frequencies(config: Mapping[str, Any]) -> dict[str, list[float]]:
    """The tensors that say how each frequency is divided."""
    rope = config["rope_parameters"]
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{k}.weight": rope[f"{k}_factor"] for k in ("short", "long")}
    if rope.get("rope_type") != "llama3":
        return {}
    width = config["hidden_size"] // config["num_attention_heads"]
    found = []
    for i in range(0, width, 2):  # Llama 3.1's rule, as published
        wave = 2 * np.pi * rope["rope_theta"] ** (i / width)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] / wave
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        found.append(float(1 / ((1 - smooth) / rope["factor"] + smooth)))
    return {"rope_freqs.weight": found}


def converted(
    tensors: Mapping[str, Array], config: Mapping[str, Any], architecture: str
) -> dict[str, Array]:
    """Tensors under GGUF's names, with what the converter does to them."""
    names = _GEMMA if architecture.startswith("gemma") else _NAMES
    found: dict[str, Array] = {}
    experts: dict[str, dict[int, Array]] = {}
    for name, array in tensors.items():
        stem, _, kind = name.rpartition(".")
        layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
        part = layer[2] if layer else stem
        prefix = f"blk.{layer[1]}." if layer else ""
        if expert := re.fullmatch(r"mlp\.experts\.(\d+)\.(\w+)_proj", part):
            experts.setdefault(f"{prefix}ffn_{expert[2]}_exps.{kind}", {})[int(expert[1])] = array
            continue
        if architecture == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
            key = "num_attention_heads" if part.endswith("q_proj") else "num_key_value_heads"
            heads = config[key]
            halves = array.reshape(heads, 2, len(array) // heads // 2, *array.shape[1:])
            array = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
        if architecture.startswith("gemma") and names[part].endswith("norm"):
            array = array + 1
        found[f"{prefix}{names[part]}.{kind}"] = array
    return found | {
        name: np.stack([rows[i] for i in range(len(rows))]) for name, rows in experts.items()
    }
