"""Converts a Hugging Face folder to GGUF as llama.cpp's converter does.

Uses the `gguf` package's writer and its map of names, with the converter's documented changes
(`gguf_changes.py`, `gguf_keys.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

from mlcc_compiler.quantization.schemes import E2M1
from tests.compiler.checkpoint.helpers.gguf_changes import changed
from tests.compiler.checkpoint.helpers.gguf_keys import full_layers, keys_of

Array = np.ndarray[Any, Any]
Formats = Callable[[str], str]
"""The name of the format of a tensor, by its name."""

ARCHITECTURES = {
    "mistral": "llama",
    "mixtral": "llama",
    "llama4_text": "llama4",
    "ministral3": "mistral3",
    "granitemoeshared": "granitemoe",
    "granitemoehybrid": "granitehybrid",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "olmo3": "olmo2",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen2_vl_text": "qwen2vl",
    "qwen2_5_vl_text": "qwen2vl",
    "qwen3_vl_text": "qwen3vl",
    "qwen3_vl_moe_text": "qwen3vlmoe",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "hunyuan_v1_dense": "hunyuan-dense",
    "ernie4_5_moe": "ernie4_5-moe",
    "gpt_oss": "gpt-oss",
    "glm4_moe": "glm4moe",
    "minimax_m2": "minimax-m2",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "lfm2_moe": "lfm2moe",
    "falcon_h1": "falcon-h1",
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
    architecture = architecture_of(config)
    tensors = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(out, architecture, split_max_tensors=split)
    drafts = sum(name.endswith(".eh_proj.weight") for name in tensors)
    keys = keys_of(config)
    if drafts:
        keys |= {"block_count": keys["block_count"] + drafts, "nextn_predict_layers": drafts}
    for key, value in keys.items():
        add(writer, f"{architecture}.{key}", value)
    for key, value in (metadata or {}).items():
        add(writer, key, value)
    for name, array in converted(tensors, config, architecture).items():
        wanted = gguf.GGMLQuantizationType[formats(name) if is_matrix(name, array) else "F32"]
        if wanted.name == "NVFP4":  # with a factor, of each expert
            factor = 2.0 ** -np.arange(
                4, 4 + (len(array) if array.ndim > 2 else 1), dtype=np.float32
            )
            writer.add_tensor(name.replace(".weight", ".scale"), factor)
            array = nvfp4(array / factor.reshape(-1, *[1] * (array.ndim - 1)))
        else:
            array = gguf.quants.quantize(array, wanted)
        writer.add_tensor(name, array, raw_dtype=wanted)
    for name, array in frequencies(config).items():
        writer.add_tensor(name, np.asarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(iter(sorted(out.parent.glob(f"{out.stem}*.gguf"))))


def nvfp4(array: Array) -> Array:
    """The bytes of blocks of 64, which the package only reads."""
    groups, table = array.reshape(-1, 4, 16), np.asarray(E2M1, np.float32)
    scales = (np.abs(groups).max(axis=2) / 6).astype(ml_dtypes.float8_e4m3fn)
    spread = scales.astype(np.float32)[:, :, None, None]
    codes = np.abs(groups[..., None] - spread * table).argmin(axis=-1).astype(np.uint8)
    pairs = codes[:, :, :8] | codes[:, :, 8:] << 4
    blocks = np.concatenate([scales.view(np.uint8), pairs.reshape(-1, 32)], axis=1)
    return blocks.reshape(*array.shape[:-1], -1)


def architecture_of(config: Mapping[str, Any]) -> str:
    kind = config["model_type"]
    if kind == "nemotron_h" and "moe" in config["layers_block_type"]:
        return "nemotron_h_moe"
    return ARCHITECTURES.get(kind, kind)


def is_matrix(name: str, array: Array) -> bool:
    """Whether the converter quantizes a tensor."""
    small = ("ssm_a", "ssm_d", "ssm_norm", "conv", "ffn_gate_inp", ".bias")
    return array.ndim > 1 and not any(part in name for part in small)


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


def frequencies(config: Mapping[str, Any]) -> dict[str, list[float]]:
    """The tensors that say how each frequency is divided."""
    rope = config.get("rope_parameters") or {}
    if config["model_type"] == "gemma4_text":
        return {"rope_freqs.weight": still(config)}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{k}.weight": rope[f"{k}_factor"] for k in ("short", "long")}
    if rope.get("rope_type") != "llama3":
        return {}
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    found = []
    for i in range(0, width, 2):  # Llama 3.1's rule, as published
        wave = 2 * np.pi * rope["rope_theta"] ** (i / width)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] / wave
        smooth = np.clip((turns - low) / (high - low or 1e-9), 0, 1)
        found.append(float(1 / ((1 - smooth) / rope["factor"] + smooth)))
    return {"rope_freqs.weight": found}


def still(config: Mapping[str, Any]) -> list[float]:
    """Gemma 4's: in layers with all tokens most frequencies stand still."""
    half = full_layers(config)["head_dim"] // 2
    share = config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    turning = int(half * share)
    return [1.0] * turning + [1e30] * (half - turning)


def converted(
    tensors: Mapping[str, Array], config: Mapping[str, Any], architecture: str
) -> dict[str, Array]:
    """Tensors under GGUF's names, with the converter's changes."""
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    layers = config.get("num_hidden_layers") or len(config["layers_block_type"])
    drafts = sum(name.endswith(".eh_proj.weight") for name in tensors)
    names = gguf.get_tensor_name_map(kind, layers + drafts)
    found: dict[str, Array] = {}
    experts: dict[str, dict[int, Array]] = {}
    stacks: dict[str, dict[int, Array]] = {}
    for original, whole in tensors.items():
        if original == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        for name, array in changed(original, whole, config):
            if part := re.fullmatch(r"(model\.altup_\w+)\.(\d+)(\.weight)", name):
                stacks.setdefault(part[1] + part[3], {})[int(part[2])] = array
            elif expert := re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+\.weight)", name):
                experts.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = array
            else:
                found[mapped(names, name)] = np.ascontiguousarray(array)
    for name, parts in stacks.items():
        found[mapped(names, name)] = np.stack([parts[i] for i in range(len(parts))])
    for name, rows in experts.items():
        found[mapped(names, name)] = np.stack([rows[i] for i in range(len(rows))])
    return found


def mapped(names: gguf.TensorNameMap, name: str) -> str:
    """By the package's map; a name that is GGUF's already stays."""
    if re.match(r"blk\.|token_embd|output", name):
        return name
    if ".feed_forward.experts." in name or ".block_sparse_moe.experts." in name:
        layer, part = re.findall(r"layers\.(\d+)\..*experts\.(\w+\.weight)", name)[0]
        old = part.startswith("w")
        name = f"{'' if old else 'model.'}layers.{layer}.feed_forward.experts.{part}"
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, f"the gguf package knows no name for {name}"
    return found
