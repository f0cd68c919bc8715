"""A checkpoint that answers as a small Llama does, with the bytes of a large one.

    python -m benchmarks.models.padded_checkpoint examples/demo/model FOLDER [--hidden 2048]
        [--inner 8192] [--layers 16] [--vocabulary 32768] [--head HEAD]

Zeros are added to every matrix, and layers that add nothing. Kernels do not look for zeros, so a
step takes what a step of a model of that size takes, while tokens, and how often drafts are
accepted (`mtp.*` is padded too), are the small model's. Norms divide by the mean over the wider
rows, so their weights and epsilon are scaled. For measurements of speculation, which random weights
cannot show. HEAD is an EAGLE-3 head of the small model; it is padded into FOLDER-eagle, and knows
as large a part of the vocabulary as before. Needs numpy and safetensors.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

Array = npt.NDArray[Any]


def padded(array: Array, *shape: int) -> Array:
    """The array in the first corner of zeros."""
    out = np.zeros(shape, np.float16)
    out[tuple(slice(0, size) for size in array.shape)] = array
    return out


class Padding:
    """Shapes of the padded model."""

    def __init__(self, config: dict[str, Any], hidden: int, inner: int, vocabulary: int) -> None:
        self.small, self.small_inner = int(config["hidden_size"]), int(config["intermediate_size"])
        self.small_vocabulary = int(config["vocab_size"])
        self.hidden, self.inner, self.vocabulary = hidden, inner, vocabulary
        width = int(config["head_dim"])
        group = config["num_attention_heads"] // config["num_key_value_heads"]
        self.heads = hidden // width // group * group
        self.kv_heads = self.heads // group
        self.queries, self.keys = self.heads * width, self.kv_heads * width
        self.norm = (self.small / hidden) ** 0.5
        """Factor of the weights of norms."""

    def of(self, name: str, array: Array) -> Array:
        """A padded tensor. Raises KeyError for a name that a Llama does not have."""
        if array.ndim == 1:
            return padded(array.astype(np.float32) * self.norm, self.hidden)
        part = name.split(".")[-2]
        shapes = {
            "fc": (self.hidden, self.hidden),
            "lm_head": (self.vocabulary * len(array) // self.small_vocabulary, self.hidden),
            "embed_tokens": (self.vocabulary, self.hidden),
            "q_proj": (self.queries, self.hidden),
            "k_proj": (self.keys, self.hidden),
            "v_proj": (self.keys, self.hidden),
            "o_proj": (self.hidden, self.queries),
            "gate_proj": (self.inner, self.hidden),
            "up_proj": (self.inner, self.hidden),
            "down_proj": (self.hidden, self.inner),
        }
        inputs = self.small_inner if part == "down_proj" else self.small
        count = 1 if part == "o_proj" else array.shape[1] // inputs  # states side by side
        return np.concatenate([padded(a, *shapes[part]) for a in np.split(array, count, 1)], 1)

    def config(self, small: dict[str, Any]) -> dict[str, Any]:
        """The small model's, or its head's, with the sizes of the padded one."""
        return {
            **small,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "vocab_size": self.vocabulary,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": small["rms_norm_eps"] * self.norm**2,
        }


def pad(source: Path, folder: Path, sizes: argparse.Namespace) -> None:
    """Write the padded checkpoint, and its head."""
    config = json.loads((source / "config.json").read_text())
    padding = Padding(config, sizes.hidden, sizes.inner, sizes.vocabulary)
    tensors = load_file(source / "model.safetensors")
    out = {name: padding.of(name, array) for name, array in tensors.items()}
    first, layers = "model.layers.0.", int(config["num_hidden_layers"])
    for layer in range(layers, sizes.layers):
        for name in [name for name in out if name.startswith(first)]:
            adds = name.endswith(("o_proj.weight", "down_proj.weight"))
            own = f"model.layers.{layer}.{name.removeprefix(first)}"
            out[own] = np.zeros_like(out[name]) if adds else out[name]
    shutil.copytree(source, folder, dirs_exist_ok=True)
    save(out, {**padding.config(config), "num_hidden_layers": sizes.layers}, folder)
    if sizes.head is not None:
        pad_head(sizes.head, folder.with_name(folder.name + "-eagle"), padding, layers)


def pad_head(source: Path, folder: Path, padding: Padding, layers: int) -> None:
    """Write the padded head, which reads the states that it read of the small model's `layers`.
    Further rows of it are of tokens that only the padded model has."""
    config = json.loads((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")
    known, _ = tensors.pop("d2t"), tensors.pop("t2d")
    out = {name: padding.of(name, array) for name, array in tensors.items()}
    count, small = len(out["lm_head.weight"]), padding.small_vocabulary
    tokens = np.concatenate([known + np.arange(len(known)), small + np.arange(count - len(known))])
    out |= {"d2t": tokens - np.arange(count), "t2d": np.isin(np.arange(padding.vocabulary), tokens)}
    read = {"eagle_aux_hidden_state_layer_ids": [2, layers // 2, layers - 3]}
    folder.mkdir(exist_ok=True)
    save(out, {**read, **padding.config(config), "draft_vocab_size": count}, folder)


def save(tensors: dict[str, Array], config: dict[str, Any], folder: Path) -> None:
    """The two files of a checkpoint."""
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    print(f"{sum(array.size for array in tensors.values()):,} weights in {folder}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--head", type=Path)
    args = parser.parse_args()
    pad(args.source, args.folder, args)


if __name__ == "__main__":
    main()
