"""The changes of llama.cpp's converter to tensors that it writes to GGUF, by `model_type`.

Its documented behaviour, implemented independently: rows of Llama's q and k in pairs, norms with 1
added, fused and split tensors, and the transformed vectors of a Mamba.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Config = Mapping[str, Any]
Named = tuple[str, Array]

_IN_PAIRS = (
    "llama", "mistral", "mixtral", "ministral3", "smollm3", "granite", "granitemoe",
    "granitemoeshared", "granitemoehybrid", "nemotron_h",
)  # fmt: skip
_ONE_MORE = (
    "gemma", "gemma2", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5_text",
    "qwen3_5_moe_text",
)  # fmt: skip
_TILED = ("qwen3_5_text", "qwen3_5_moe_text")


def changed(name: str, array: Array, config: Config) -> Iterator[Named]:
    """One tensor of the checkpoint as those of the file; names are still Hugging Face's, or
    GGUF's where it has none for them."""
    kind = config["model_type"]
    if kind in _IN_PAIRS and re.search(r"\.[qk]_proj\.(weight|bias)$", name):
        array = in_pairs(array, config["num_attention_heads" if "q_proj" in name
                                       else "num_key_value_heads"])  # fmt: skip
    if kind in _ONE_MORE and name.endswith("norm.weight") and "linear_attn.norm" not in name:
        array = array + 1
    if kind in _TILED and ".linear_attn." in name:
        array = tiled(name, array, config)
    if kind == "falcon_h1":
        array = multiplied(name, array, config)
    if kind == "cohere2" and name.endswith(".bias"):
        assert not array.any()
        return
    for change in (_mixtures, _latents, _delta, _gpt_oss):
        if (found := change(name, array, config)) is not None:
            yield from found
            return
    yield _vectors(name, array, config)


def in_pairs(array: Array, heads: int) -> Array:
    halves = array.reshape(heads, 2, len(array) // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


def _vectors(name: str, array: Array, config: Config) -> Named:
    """Filters lose their middle dimension, -exp is taken of A; its and D's become columns."""
    column = config["model_type"] not in (*_TILED, "qwen3_next")
    if name.endswith((".conv1d.weight", ".conv.conv.weight")):
        array = array.squeeze(1)
    elif name.endswith(".A_log"):
        array = -np.exp(array)
        array = array.reshape(-1, 1) if column else array
    elif name.endswith((".mixer.D", ".mamba.D")):
        array = array.reshape(-1, 1)
    elif name.endswith(".dt_bias"):
        name = name.replace(".dt_bias", ".dt_proj.bias")
    elif name.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
        groups = config.get("mamba_n_groups") or config["n_groups"]
        array = array.reshape(groups, -1)
    elif name.endswith((".sinks", ".layer_scalar", ".correct_output_scale")):
        name += ".weight"
    elif name.endswith(".expert_bias"):
        name += ".bias"
    elif name.endswith(".e_score_correction_bias"):
        name = name.replace("_correction_bias", "_correction.bias")
        array = array.reshape(-1)
    if config["model_type"] == "nemotron_h":
        name = name.replace(".mixer.dt_proj.bias", ".mixer.dt.bias")
        name = re.sub(r"backbone\.(layers\.\d+)\.mixer\.experts", r"model.\1.mlp.experts", name)
    return name, array


def _mixtures(name: str, array: Array, config: Config) -> list[Named] | None:
    """Granite's are gate and up in one."""
    layer = re.search(r"layers\.(\d+)\.", name)
    prefix = f"blk.{layer[1]}." if layer else ""
    shared = "_shexp" if config.get("num_local_experts") else ""
    for part, kind in (("block_sparse_moe", "_exps"), ("shared_mlp", shared)):
        if name.endswith(f"{part}.input_linear.weight"):
            gate, up = np.split(array, 2, axis=-2)
            return [(f"{prefix}ffn_gate{kind}.weight", gate), (f"{prefix}ffn_up{kind}.weight", up)]
        if name.endswith(f"{part}.output_linear.weight"):
            return [(f"{prefix}ffn_down{kind}.weight", array)]
    if config["model_type"] == "llama4_text" and ".experts." in name:
        array = array.swapaxes(-1, -2)
    if config["model_type"] == "gemma4_text":
        return _gemma4(name, array, prefix)
    if name.endswith(".experts.gate_up_proj") and config["model_type"] != "gpt_oss":
        gate, up = np.split(array, 2, axis=-2)
        stem = name.removesuffix("gate_up_proj")
        return [(f"{stem}gate_proj.weight", gate), (f"{stem}up_proj.weight", up)]
    if name.endswith(".experts.down_proj") and config["model_type"] != "gpt_oss":
        return [(f"{name}.weight", array)]
    return None


def _gemma4(name: str, array: Array, prefix: str) -> list[Named] | None:
    """Gate and up stay in one; the factors of a router and of experts are scales."""
    if name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        return [(f"{name}.weight", array)]
    if name.endswith(".router.scale"):
        return [(f"{prefix}ffn_gate_inp.scale", array)]
    if name.endswith(".per_expert_scale"):
        return [(f"{prefix}ffn_down_exps.scale", array)]
    return None


def _latents(name: str, array: Array, config: Config) -> list[Named] | None:
    """The keys' half of a latent's key-value projection is transposed."""
    if not name.endswith("kv_b_proj.weight"):
        return None
    nope, heads = config["qk_nope_head_dim"], config["num_attention_heads"]
    both = array.reshape(heads, -1, array.shape[-1])
    keys, values = both[:, :nope].swapaxes(1, 2), both[:, nope:]
    return [
        (name.replace("kv_b_proj", "k_b_proj"), keys),
        (name.replace("kv_b_proj", "v_b_proj"), values),
    ]


def _delta(name: str, array: Array, config: Config) -> list[Named] | None:
    """Qwen3-Next's heads have their query, key, values and gates together; files have not."""
    if not name.endswith("in_proj_qkvz.weight"):
        return None
    heads, width = config["linear_num_key_heads"], config["linear_key_head_dim"]
    each = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    groups = array.reshape(heads, -1, array.shape[-1])
    ends = np.cumsum([width, width, each])
    q, k, v, z = (part.reshape(-1, array.shape[-1]) for part in np.split(groups, ends, axis=1))
    layer = re.findall(r"layers\.(\d+)\.", name)[0]
    return [
        (f"blk.{layer}.attn_qkv.weight", np.concatenate([q, k, v])),
        (f"blk.{layer}.attn_gate.weight", z),
    ]


def _gpt_oss(name: str, array: Array, config: Config) -> list[Named] | None:
    """Experts are transposed, gate and up taken apart."""
    if config["model_type"] != "gpt_oss" or ".experts." not in name:
        return None
    stem, part = name.rsplit(".", 1)
    kind = "bias" if part.endswith("_bias") else "weight"
    array = array if kind == "bias" else array.swapaxes(1, 2)
    if part.startswith("down_proj"):
        return [(f"{stem}.down_proj.{kind}", array)]
    return [(f"{stem}.gate_proj.{kind}", array[:, ::2]), (f"{stem}.up_proj.{kind}", array[:, 1::2])]


def tiled(name: str, array: Array, config: Config) -> Array:
    """Qwen3.5's value heads: the first of every key head, then the second."""
    groups, width = config["linear_num_key_heads"], config["linear_value_head_dim"]
    each = config["linear_num_value_heads"] // groups

    def reordered(part: Array, run: int) -> Array:
        shape = (groups, each, run, *part.shape[1:])
        return part.reshape(shape).swapaxes(0, 1).reshape(part.shape)

    before = 2 * groups * config["linear_key_head_dim"]
    if "in_proj_qkv." in name or "conv1d" in name:
        return np.concatenate([array[:before], reordered(array[before:], width)])
    if "in_proj_z." in name:
        return reordered(array, width)
    if name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
        return reordered(array, 1)
    return reordered(array.T, width).T if "out_proj" in name else array


def multiplied(name: str, array: Array, config: Config) -> Array:
    """Falcon-H1's multipliers are put into the matrices."""
    gate, down = config["mlp_multipliers"]
    attend = config["attention_in_multiplier"]
    factors = {
        "down_proj": down,
        "gate_proj": gate,
        "k_proj": config["key_multiplier"] * attend,
        "q_proj": attend,
        "v_proj": attend,
        "o_proj": config["attention_out_multiplier"],
        "mamba.out_proj": config["ssm_out_multiplier"],
        "lm_head": config["lm_head_multiplier"],
        "embed_tokens": config["embedding_multiplier"],
    }
    for part, factor in factors.items():
        if part in name:
            return np.asarray(array * np.float32(factor))
    if "in_proj" not in name:
        return array
    inner = config["mamba_d_ssm"]
    vectors = config["mamba_n_groups"] * config["mamba_d_state"]
    sizes = inner, inner, vectors, vectors, config["mamba_n_heads"]
    rows = np.repeat(np.asarray(config["ssm_multipliers"], np.float32), sizes)
    return np.asarray(array * rows[:, None] * np.float32(config["ssm_in_multiplier"]))
