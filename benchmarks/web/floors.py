"""Floors of a token's time on this CPU, which is the adapter: by bytes and by operations.

Both rates are measured here, on all cores: memory reads as in `kernels/linear.py`, and numpy's f32
product.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.linear import bandwidth
from benchmarks.models.random_checkpoint import tensor_shapes


def floors(checkpoint: Path, weight_bytes: int, kv_bytes: int, prompt: int) -> dict[str, Any]:
    """Milliseconds of a decode step and of a prefill, by each bound.

    Decode reads all weights once (the tied head is the table) and the pages of its context; prefill
    does two operations per weight of a layer and token. `kv_bytes`: of one token.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    shapes = {"tie_word_embeddings": True, **config}
    weights = {n: int(np.prod(s)) for n, s in tensor_shapes(shapes).items()}
    layers = sum(count for name, count in weights.items() if ".layers." in name)
    memory, peak = bandwidth(), _operations()
    return {
        "memory_gb_s": round(memory / 1e9, 1),
        "f32_gflop_s": round(peak / 1e9),
        "decode_bytes": weight_bytes + prompt * kv_bytes,
        "decode_ms_by_bytes": round(1e3 * (weight_bytes + prompt * kv_bytes) / memory, 2),
        "decode_ms_by_operations": round(2e3 * sum(weights.values()) / peak, 2),
        "prefill_ms_by_operations": round(2e3 * layers * prompt / peak, 1),
    }


def _operations(size: int = 2048) -> float:
    """f32 operations a second of a large matrix product; the best of five."""
    a = np.ones((size, size), np.float32)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
