"""The checkpoint of `random_checkpoint.py` as a GGUF, for llama.cpp: same shape and vocabulary.

    python -m benchmarks.models.random_gguf FOLDER OUT.gguf [--type Q4_0|Q8_0|BF16|F16]

Linear layers have the type, the embedding (also the head) Q8_0, or the type itself if it is a float
type; norms are float32. That is 4.5 bits, as mlcc's q4, and 8.5 in the head. Needs the package
gguf.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names of a layer's tensors: Hugging Face -> GGUF."""
FLOATS = (GGMLQuantizationType.BF16, GGMLQuantizationType.F16)
TOPS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_of(tensor: str) -> str:
    """GGUF's name of a tensor."""
    stem = tensor.removesuffix(".weight")
    if stem in TOPS:
        return f"{TOPS[stem]}.weight"
    layer, _, rest = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES[rest]}.weight"


def write_tensors(writer: GGUFWriter, path: Path, linear: GGMLQuantizationType) -> None:
    """Write all tensors of a bfloat16 safetensors file; q and k are random, so not permuted."""
    data = np.memmap(path, "u1", "r")
    size = int(data[:8].view("<u8")[0])
    for name, entry in json.loads(bytes(data[8 : 8 + size])).items():
        start, end = (8 + size + at for at in entry["data_offsets"])
        values = (data[start:end].view("<u2").astype("u4") << 16).view("f4").reshape(entry["shape"])
        if values.ndim == 1:
            writer.add_tensor(name_of(name), values)
            continue
        top = name.removesuffix(".weight") in TOPS and linear not in FLOATS
        kind = GGMLQuantizationType.Q8_0 if top else linear
        writer.add_tensor(name_of(name), quantize(values, kind), raw_dtype=kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", default="Q4_0", choices=("Q4_0", "Q8_0", "BF16", "F16"))
    given = parser.parse_args()
    config: dict[str, Any] = json.loads((given.folder / "config.json").read_text())
    tokenizer = json.loads((given.folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].__getitem__)
    heads = config["num_attention_heads"]
    writer = GGUFWriter(given.out, "llama")
    writer.add_file_type(LlamaFileType[f"MOSTLY_{given.type}"])  # OpenVINO requires it
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(["a b"])  # llama.cpp requires some; nothing here is tokenized
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_add_bos_token(False)
    write_tensors(writer, given.folder / "model.safetensors", GGMLQuantizationType[given.type])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
