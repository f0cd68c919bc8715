"""A checkpoint folder of a Llama-like shape with random bf16 weights, for speed measurements.

    python -m benchmarks.models.random_checkpoint FOLDER [--shape tiny|135m|1b|8b]

Needs numpy and tokenizers only. `make(..., empty=True)` leaves the weights out: a file with holes
of the right size, for compiles that only look at shapes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SHAPES: dict[str, dict[str, int]] = {  # nothing, SmolLM2-135M, Llama-3.2-1B and Llama-3.1-8B
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 256,
        "vocab_size": 1024,
    },
    "135m": {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
    },
    "1b": {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 128256,
    },
    "8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
}


def tensor_shapes(c: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama's tensors."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes = {
        "model.embed_tokens.weight": (c["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not c.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        rows = {"q": hidden, "k": kv, "v": kv, "o": hidden}
        shapes |= {f"{layer}self_attn.{n}_proj.weight": (r, hidden) for n, r in rows.items()}
        shapes |= {f"{layer}mlp.{n}_proj.weight": (inner, hidden) for n in ("gate", "up")}
        shapes[f"{layer}mlp.down_proj.weight"] = (hidden, inner)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (hidden,)
    return shapes


def header_of(shapes: Mapping[str, tuple[int, ...]]) -> tuple[bytes, int]:
    """(header of a bfloat16 safetensors file, bytes of the tensors after it)."""
    header, position = {}, 0
    for name, shape in shapes.items():
        end = position + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text, position


def write_weights(path: Path, shapes: dict[str, tuple[int, ...]], empty: bool) -> None:
    """Stream normal(0, 0.02) matrices and vectors of one, as bfloat16; or write a sparse file."""
    header, size = header_of(shapes)
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(header)
        if empty:
            file.truncate(len(header) + size)
            return
        for shape in shapes.values():
            vector = len(shape) == 1
            values = np.ones(shape, "f4") if vector else rng.standard_normal(shape, "f4") * 0.02
            file.write((values.astype("f4").view("u4") >> 16).astype("u2").tobytes())


def write_tokenizer(folder: Path, size: int) -> None:
    """Bytes, then filler up to the vocabulary's size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(alphabet)}
    vocabulary |= {f"<|{i}|>": i for i in range(len(alphabet), size)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def make(folder: Path, shape: str, context: int = 16384, empty: bool = False) -> None:
    """Write config, weights and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = SHAPES[shape]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "max_position_embeddings": context,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
        **sizes,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder, sizes["vocab_size"])
    write_weights(folder / "model.safetensors", tensor_shapes(sizes), empty)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    given = parser.parse_args()
    make(given.folder, given.shape)


if __name__ == "__main__":
    main()
