"""The OLMoE shapes of `published_shapes.py` as a GGUF in Q4_0, for llama.cpp.

    python -m benchmarks.models.random_moe_gguf OUT.gguf [--shape moe|moe-small]

Matrices are Q4_0, head and embedding Q8_0, router and norms float32, as in `random_gguf.py`. The
weights are random bytes of the formats themselves, with scales that keep values small, so nothing
is quantized: a 7B shape takes as long as the disk. Needs the package gguf.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

from benchmarks.models.published_shapes import SHAPES

Q4, Q8 = GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0
SCALE = 0.004
"""The scale of Q4_0 blocks; codes of Q8_0 are 16 times as large, so its scale is SCALE / 16."""
MOE = ("moe", "moe-small")


def blocks(rng: Any, shape: tuple[int, ...], kind: GGMLQuantizationType) -> Any:
    """Random codes [.., rows, bytes of a row] of 32 weights and a float16 scale each."""
    *rows, width = shape
    codes, scale = (16, SCALE) if kind == Q4 else (32, SCALE / 16)
    out = np.empty((*rows, width // 32, 2 + codes), np.uint8)
    out[..., :2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    out[..., 2:] = rng.integers(0, 256, (*rows, width // 32, codes), np.uint8)
    return out.reshape(*rows, -1)


def tensors(
    c: dict[str, Any],
) -> Iterator[tuple[str, tuple[int, ...], GGMLQuantizationType | None]]:
    """(name, shape, kind) of each; None = float32."""
    hidden, inner, experts = c["hidden_size"], c["intermediate_size"], c["num_experts"]
    yield "token_embd.weight", (c["vocab_size"], hidden), Q8
    for i in range(c["num_hidden_layers"]):
        layer = f"blk.{i}."
        for name in ("attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"):
            yield f"{layer}{name}.weight", (hidden,), None
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{layer}{name}.weight", (hidden, hidden), Q4
        yield f"{layer}ffn_gate_inp.weight", (experts, hidden), None
        for name in ("ffn_gate_exps", "ffn_up_exps"):
            yield f"{layer}{name}.weight", (experts, inner, hidden), Q4
        yield f"{layer}ffn_down_exps.weight", (experts, hidden, inner), Q4
    yield "output_norm.weight", (hidden,), None
    yield "output.weight", (c["vocab_size"], hidden), Q8


def add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """Add a vocabulary of `size` placeholder tokens."""
    writer.add_vocab_size(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["a", "b", "ab", *(f"<|{i}|>" for i in range(3, size))])
    writer.add_token_types([TokenType.NORMAL] * size)
    writer.add_token_merges(["a b"])  # llama.cpp requires some
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)


def write(out: Path, shape: str) -> None:
    """Write the file."""
    c = SHAPES[shape]
    writer = GGUFWriter(out, "olmoe", use_temp_file=True)
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_expert_count(c["num_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    add_vocabulary(writer, c["vocab_size"])
    rng = np.random.default_rng(0)
    for name, size, kind in tensors(c):
        if kind is None:
            values = (
                np.ones(size, "f4") if len(size) == 1 else rng.standard_normal(size, "f4") * 0.02
            )
            writer.add_tensor(name, values.astype("f4"))
        else:
            writer.add_tensor(name, blocks(rng, size, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=MOE, default="moe")
    given = parser.parse_args()
    write(given.out, given.shape)


if __name__ == "__main__":
    main()
