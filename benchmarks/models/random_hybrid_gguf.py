"""The shape `hybrid` (Qwen3.5) of `published_shapes.py` as a GGUF in Q4_0, for llama.cpp.

    python -m benchmarks.models.random_hybrid_gguf OUT.gguf

Like `random_moe_gguf.py`. Names, keys and the choice of matrices come from the tests' GGUF writer,
so it needs the tests' dependencies.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from gguf import GGUFWriter

from benchmarks.models.published_shapes import SHAPES
from benchmarks.models.random_moe_gguf import Q4, Q8, add_vocabulary, blocks
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.pipeline import trace
from tests.compiler.checkpoint.helpers.gguf_keys import keys_of
from tests.compiler.checkpoint.helpers.gguf_of import add, architecture_of, converted, is_matrix


def shapes_of(config: dict[str, Any], architecture: str) -> dict[str, tuple[int, ...]]:
    """GGUF name -> shape; the first layers are converted and their pattern repeated."""
    period = config["layer_types"].index("full_attention") + 1
    truncated = {
        **config,
        "num_hidden_layers": period,
        "layer_types": config["layer_types"][:period],
    }
    traced = trace(build_model(truncated, 64).model)
    arrays = {n: np.zeros(s, "f4") for n, s in zip(traced.names, traced.shapes, strict=True)}
    shapes = {}
    for name, array in converted(arrays, truncated, architecture).items():
        layer = re.match(r"blk\.(\d+)(\..*)", name)
        if layer is None:
            shapes[name] = array.shape
            continue
        for i in range(int(layer[1]), config["num_hidden_layers"], period):
            shapes[f"blk.{i}{layer[2]}"] = array.shape
    return shapes


def values(name: str, shape: tuple[int, ...], rng: Any) -> Any:
    """Values of vectors: decays of about a third, norms of 1, and small random numbers."""
    if name.endswith("ssm_a"):
        return np.full(shape, -1, "f4")
    return np.ones(shape, "f4") if "norm" in name else rng.standard_normal(shape, "f4") * 0.02


def write(out: Path, shape: str) -> None:
    """Write the file."""
    config = transformers.Qwen3_5TextConfig(**SHAPES[shape]).to_dict()
    architecture = architecture_of(config)
    writer = GGUFWriter(out, architecture, use_temp_file=True)
    for key, value in keys_of(config).items():
        add(writer, f"{architecture}.{key}", value)
    add_vocabulary(writer, config["vocab_size"])
    rng = np.random.default_rng(0)
    for name, size in shapes_of(config, architecture).items():
        if is_matrix(name, np.broadcast_to(np.float32(0), size)):
            kind = Q8 if name == "token_embd.weight" else Q4
            writer.add_tensor(name, blocks(rng, size, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values(name, size, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    write(parser.parse_args().out, "hybrid")


if __name__ == "__main__":
    main()
