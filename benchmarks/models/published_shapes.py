"""Checkpoints of published shapes of newer families, with random weights or without any.

    python -m benchmarks.models.published_shapes FOLDER --shape moe|moe-small|hybrid|...

For speed, and for compiles that only look at shapes; the answers are noise. Names and shapes of
tensors come from the compiler's own model of the config, so this file has no list of them. Random
tensors repeat a block of normal(0, 0.02) at changing offsets, which takes as long as the disk; the
rows of a router differ, so tokens choose different experts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.models.random_checkpoint import header_of, write_tokenizer
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.pipeline import trace

COMMON = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "bos_token_id": 0, "eos_token_id": 0}
OLMOE = {  # OLMoE-1B-7B: 6.9B weights, 1.3B of them for a token
    **COMMON,
    "model_type": "olmoe",
    "hidden_size": 2048,
    "intermediate_size": 1024,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "norm_topk_prob": False,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 50304,
}
QWEN3_5 = {
    **COMMON,
    "model_type": "qwen3_5_text",
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "rope_theta": 10000000.0,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "tie_word_embeddings": True,
}
YARN = {
    "rope_type": "yarn",
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 4096,
}

SHAPES: dict[str, dict[str, Any]] = {
    "moe": OLMOE,
    "moe-small": {**OLMOE, "num_hidden_layers": 4},
    "moe-small-dense": {  # all of the weights that a token of moe-small uses, and no others
        **COMMON,
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8 * 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 50304,
    },
    "hybrid": {  # Qwen3.5-0.8B's layers, with a smaller vocabulary
        **QWEN3_5,
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 16,
        "vocab_size": 65536,
    },
    "hybrid-dense": {  # as many weights in layers of attention
        **COMMON,
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 4736,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "vocab_size": 65536,
    },
    "qwen3-30b-a3b": {
        **COMMON,
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "gpt-oss-20b": {
        **COMMON,
        "model_type": "gpt_oss",
        "attention_bias": True,
        "head_dim": 64,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "max_position_embeddings": 131072,
        "rope_theta": 150000.0,
        "rope_scaling": {**YARN, "factor": 32.0, "truncate": False},
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    },
    "deepseek-v2-lite": {
        **COMMON,
        "model_type": "deepseek_v2",
        "attention_bias": False,
        "first_k_dense_replace": 1,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 163840,
        "rope_theta": 10000.0,
        "rope_scaling": {**YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707},
        "tie_word_embeddings": False,
        "vocab_size": 102400,
    },
    "qwen3.5-4b": {
        **QWEN3_5,
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 32,
        "max_position_embeddings": 262144,
        "vocab_size": 248320,
    },
}


@dataclass(frozen=True)
class NoTensors:
    """A `mlcc_compiler.checkpoint.safetensors.Tensors` with shapes and no data."""

    shapes: Mapping[str, tuple[int, ...]]
    schemes: Mapping[str, str] = field(default_factory=dict)
    nearest: Mapping[str, str] = field(default_factory=dict)
    is_quantized: bool = False
    notes: tuple[str, ...] = ()
    nbytes: int = 0

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def check_dtypes(self, names: Iterable[str]) -> None:
        """There are no dtypes to check."""


def tensor_shapes(shape: str, context: int = 4096) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model."""
    traced = trace(build_model(SHAPES[shape], context).model)
    return dict(zip(traced.names, traced.shapes, strict=True))


def without_weights(folder: Path, shape: str) -> Checkpoint:
    """A checkpoint that can be planned and lowered, without readable weights."""
    write_small_files(folder, shape)
    checkpoint = Checkpoint.open(folder)
    checkpoint.__dict__["tensors"] = NoTensors(tensor_shapes(shape))  # a cached property
    return checkpoint


def write_small_files(folder: Path, shape: str) -> None:
    """Write config.json and a tokenizer with the shape's vocabulary size."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPES[shape], "torch_dtype": "bfloat16"}))
    write_tokenizer(folder, SHAPES[shape]["vocab_size"])


def write_random(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """bfloat16 safetensors; vectors are ones."""
    rng = np.random.default_rng(0)
    block = _bfloat16(rng.standard_normal(1 << 24, "f4") * np.float32(0.02))
    with path.open("wb") as file:
        file.write(header_of(shapes)[0])
        for shape in shapes.values():
            count = int(np.prod(shape))
            if len(shape) == 1:
                file.write(_bfloat16(np.ones(count, "f4")).tobytes())
                continue
            while count:
                start = int(rng.integers(len(block) // 2))
                part = block[start : start + count]
                file.write(part.tobytes())
                count -= len(part)


def _bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    return (values.view("u4") >> 16).astype("u2")


def make(folder: Path, shape: str) -> None:
    """Write config, tokenizer and random weights."""
    write_small_files(folder, shape)
    write_random(folder / "model.safetensors", tensor_shapes(shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    given = parser.parse_args()
    make(given.folder, given.shape)


if __name__ == "__main__":
    main()
