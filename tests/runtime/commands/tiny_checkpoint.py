"""A Hugging Face folder of a tiny random Llama with a byte tokenizer and a chat template.

It compiles in a second; its answers are noise, but deterministic.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
)


def write_checkpoint(folder: Path, *, template: bool = True, positions: int = 256) -> Path:
    """Write the folder and return it. positions: tokens of the longest context."""
    folder.mkdir(parents=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(_weights(len(vocab)), str(folder / "model.safetensors"))
    tokenizer_config = {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer_config |= {"chat_template": TEMPLATE} if template else {}
    config = _config(len(vocab)) | {"max_position_embeddings": positions}
    for name, value in (("config", config), ("tokenizer_config", tokenizer_config)):
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def _config(vocab_size: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _weights(vocab_size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / 4).astype(np.float32)

    width = HIDDEN // HEADS
    weights = {"model.embed_tokens.weight": matrix(vocab_size, HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        weights |= {
            f"{name}.self_attn.q_proj.weight": matrix(HEADS * width, HIDDEN),
            f"{name}.self_attn.k_proj.weight": matrix(KV_HEADS * width, HIDDEN),
            f"{name}.self_attn.v_proj.weight": matrix(KV_HEADS * width, HIDDEN),
            f"{name}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * width),
            f"{name}.mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{name}.mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{name}.mlp.down_proj.weight": matrix(HIDDEN, INNER),
            f"{name}.input_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{name}.post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
        }
    return weights | {"model.norm.weight": np.ones(HIDDEN, np.float32)}
