"""A checkpoint that answers as a small Llama does, with the bytes of a large one.

    python -m benchmarks.models.padded_checkpoint examples/demo/model FOLDER [--hidden 2048]
        [--inner 8192] [--layers 16] [--vocabulary 32768]

Zeros are added to every matrix, and layers that add nothing. Kernels do not look for zeros, so a
step takes what a step of a model of that size takes, while tokens, and how often drafts are
accepted (`mtp.*` is padded too), are the small model's. Norms divide by the mean over the wider
rows, so their weights and epsilon are scaled. For measurements of speculation, which random weights
cannot show. Needs numpy and safetensors.
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
        self.small = int(config["hidden_size"])
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
        if part == "fc":  # embedding and state side by side
            halves = np.split(array, 2, axis=1)
            return np.concatenate([padded(half, self.hidden, self.hidden) for half in halves], 1)
        shapes = {
            "embed_tokens": (self.vocabulary, self.hidden),
            "q_proj": (self.queries, self.hidden),
            "k_proj": (self.keys, self.hidden),
            "v_proj": (self.keys, self.hidden),
            "o_proj": (self.hidden, self.queries),
            "gate_proj": (self.inner, self.hidden),
            "up_proj": (self.inner, self.hidden),
            "down_proj": (self.hidden, self.inner),
        }
        return padded(array, *shapes[part])


def pad(source: Path, folder: Path, sizes: argparse.Namespace) -> None:
    """Write the padded checkpoint."""
    config = json.loads((source / "config.json").read_text())
    padding = Padding(config, sizes.hidden, sizes.inner, sizes.vocabulary)
    tensors = load_file(source / "model.safetensors")
    out = {name: padding.of(name, array) for name, array in tensors.items()}
    first = "model.layers.0."
    for layer in range(config["num_hidden_layers"], sizes.layers):
        for name in [name for name in out if name.startswith(first)]:
            adds = name.endswith(("o_proj.weight", "down_proj.weight"))
            own = f"model.layers.{layer}.{name.removeprefix(first)}"
            out[own] = np.zeros_like(out[name]) if adds else out[name]
    shutil.copytree(source, folder, dirs_exist_ok=True)
    save_file(out, folder / "model.safetensors", {"format": "pt"})
    config |= {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "vocab_size": sizes.vocabulary,
        "num_attention_heads": padding.heads,
        "num_key_value_heads": padding.kv_heads,
        "rms_norm_eps": config["rms_norm_eps"] * padding.norm**2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    print(f"{sum(array.size for array in out.values()):,} weights in {folder}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=32768)
    args = parser.parse_args()
    pad(args.source, args.folder, args)


if __name__ == "__main__":
    main()
