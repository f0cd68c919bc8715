"""Writes a Whisper of transformers (a folder with safetensors and tokenizer.json) as whisper.cpp's
ggml file, in float16 or Q8_0.

    python -m benchmarks.peers.whisper_ggml FOLDER OUT.bin [--quant q8_0]

The file, all numbers little-endian i32 unless named otherwise: the magic, 11 sizes of which the
last is the type of the weights, the mel filters (rows, columns, f32), the vocabulary (count, then
length and bytes of each token), then of each tensor its rank, length of its name, type, sizes with
the innermost first, name and data.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import load_file
from transformers import WhisperFeatureExtractor
from transformers.convert_slow_tokenizer import bytes_to_unicode

MAGIC = 0x67676D6C
F32, F16, Q8_0 = 0, 1, 8
"""Types of a tensor."""
_FILE_TYPES = {"f16": 1, "q8_0": 7 + 2 * 1000}
"""Types of a file: of quantized ones with 1000 times the version of the format, 2."""
BLOCK = 32
_SIZES = (
    *("vocab_size", "max_source_positions", "d_model", "encoder_attention_heads"),
    *("encoder_layers", "max_target_positions", "d_model", "decoder_attention_heads"),
    *("decoder_layers", "num_mel_bins"),
)
_PARTS = {
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "final_layer_norm": "mlp_ln",
    "self_attn": "attn",
    "encoder_attn": "cross_attn",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
    "layers": "blocks",
}
_WHOLE = {
    "encoder.layer_norm": "encoder.ln_post",
    "decoder.layer_norm": "decoder.ln",
    "encoder.embed_positions.weight": "encoder.positional_embedding",
    "decoder.embed_positions.weight": "decoder.positional_embedding",
    "decoder.embed_tokens": "decoder.token_embedding",
}


def name_of(name: str) -> str:
    """OpenAI's name of a tensor of transformers."""
    name = name.removeprefix("model.")
    for begin, other in _WHOLE.items():
        if name.startswith(begin):
            return other + name.removeprefix(begin)
    return ".".join(_PARTS.get(part, part) for part in name.split("."))


def q8_0(values: Any) -> bytes:
    """Blocks of 32 numbers of a row: the scale in f16, then 32 i8."""
    blocks = values.astype(np.float32).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    steps = np.round(blocks / np.where(scale == 0, 1, scale)).astype(np.int8)
    packed = np.concatenate([scale.astype("<f2").view(np.uint8), steps.view(np.uint8)], axis=1)
    return bytes(packed.tobytes())


def _tensor(out: IO[bytes], name: str, values: Any, quant: str) -> None:
    kind, shape = F16, values.shape
    if name.startswith("encoder.conv") and name.endswith("bias"):
        shape = (*shape, 1)
    if len(shape) < 2 or name.endswith(("bias", "positional_embedding")):
        kind = F32
    elif quant == "q8_0" and len(shape) == 2:
        kind = Q8_0
    text = name.encode()
    out.write(struct.pack(f"<{3 + len(shape)}i", len(shape), len(text), kind, *shape[::-1]) + text)
    out.write(q8_0(values) if kind == Q8_0 else values.astype(("<f4", "<f2")[kind]).tobytes())


def _vocabulary(folder: Path) -> list[bytes]:
    """The tokens of text, in order; whisper.cpp adds the others."""
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    made = json.loads((folder / "tokenizer.json").read_text())
    special = {token["content"] for token in made["added_tokens"]}
    vocabulary = sorted(made["model"]["vocab"].items(), key=lambda each: int(each[1]))
    return [bytes(letters[c] for c in text) for text, _ in vocabulary if text not in special]


def write(folder: Path, out: Path, quant: str = "f16") -> Path:
    """The file. quant: f16 or q8_0."""
    config = json.loads((folder / "config.json").read_text())
    bins = config["num_mel_bins"]
    filters = np.ascontiguousarray(WhisperFeatureExtractor(bins).mel_filters.T, "<f4")
    with out.open("wb") as file:
        sizes = [config[name] for name in _SIZES]
        file.write(struct.pack("<12i", MAGIC, *sizes, _FILE_TYPES[quant]))
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        tokens = _vocabulary(folder)
        file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            file.write(struct.pack("<i", len(token)) + token)
        for name, values in load_file(folder / "model.safetensors").items():
            if name != "proj_out.weight":  # the embeddings' own
                _tensor(file, name_of(name), values, quant)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quant", choices=[*_FILE_TYPES], default="f16")
    given = parser.parse_args()
    print(write(given.folder, given.out, given.quant))


if __name__ == "__main__":
    main()
