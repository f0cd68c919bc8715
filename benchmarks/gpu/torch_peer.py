"""A stage of `run`: what torch reaches on the same card, as JSON lines. Knows nothing of mlcc.

    python torch_peer.py [--quick]

Copies, the products of an 8B model's layers by cuBLAS (bfloat16, fp8), attention by SDPA, and an 8B
of plain torch over a dense cache: each step launched kernel by kernel, and replayed as one CUDA
graph, which is the better peer. (transformers' `generate` with a static cache did not finish within
150 s on an H200, so it is none.)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import torch
    import torch.nn.functional as F
except ImportError as absent:
    print(json.dumps({"torch": f"no peer: {absent}"}))
    sys.exit()

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS, VOCAB = 4096, 32, 8, 14336, 32, 128256
DIM = HIDDEN // HEADS
ROWS, FP8_ROWS = (1, 8, 64, 2048), (16, 64, 2048)
COPIED, SQUARE = 1 << 30, 8192
SPREAD = 300 << 20
"""Bytes of weights that a product alternates between, so that none stays in a cache."""
ATTENTION = {  # sequences, queries, keys
    "prefill_2048": (1, 2048, 2048),
    "prefill_8192": (1, 8192, 8192),
    "decode_64_512": (64, 1, 512),
    "decode_1_32768": (1, 1, 32768),
}
STEPS = {  # sequences, new tokens, tokens in the cache
    "decode_1": (1, 1, 512),
    "decode_8": (8, 1, 512),
    "decode_64": (64, 1, 512),
    "decode_long": (1, 1, 32768),
    "prefill": (1, 2048, 0),
}
CUDA = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda" if CUDA else "cpu"), torch.bfloat16
Run = Callable[[int], object]
"""Runs on the inputs of a number."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, on a CPU too")
    if parser.parse_args().quick:
        _shrink()
    elif not CUDA:
        print(json.dumps({"torch": "no peer: torch has no GPU"}))
        return
    parts = (copies, square, attention, products, products_fp8, model)
    with torch.inference_mode():
        for part in parts:
            try:
                row = part()
            except Exception as error:  # of one part: the others are still worth having
                row = {"error": f"{type(error).__name__}: {error}"[-300:]}
            print(json.dumps({"torch": part.__name__, **row}), flush=True)


def _shrink() -> None:
    small: dict[str, Any] = {"HIDDEN": 64, "HEADS": 4, "KV_HEADS": 2, "INNER": 160, "LAYERS": 2}
    small |= {
        "VOCAB": 512,
        "DIM": 16,
        "ROWS": (1, 8),
        "FP8_ROWS": (16,),
        "COPIED": 1 << 20,
        "SQUARE": 256,
    }
    small["ATTENTION"] = {
        name: (b, min(q, 32), min(k, 32)) for name, (b, q, k) in ATTENTION.items()
    }
    small["STEPS"] = {
        name: (min(b, 2), min(q, 16), min(k, 16)) for name, (b, q, k) in STEPS.items()
    }
    globals().update(small)


# -- clocks ---------------------------------------------------------------------------------------


def eager_us(run: Run, sets: int = 1) -> float:
    """Microseconds of a run, launched kernel by kernel; the best of three."""
    best = float("inf")
    for _ in range(4):  # the first warms up
        _wait()
        start = time.perf_counter()
        for i in range(sets):
            run(i)
        _wait()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best / sets


def graph_us(run: Run, sets: int = 1, rounds: int = 10) -> float:
    """Median microseconds of a run as one CUDA graph; without a GPU, `eager_us`."""
    if not CUDA:
        return eager_us(run, sets)
    for i in range(sets):
        run(i)
    _wait()
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(sets):
            run(i)
    times = []
    for _ in range(rounds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(1e3 * start.elapsed_time(stop) / sets)
    return sorted(times)[rounds // 2]


def _wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


# -- parts ----------------------------------------------------------------------------------------


def copies() -> dict[str, Any]:
    """Bytes a second, read and written."""
    a, b = (torch.rand(COPIED // 4, device=DEVICE) for _ in range(2))
    return {"bytes_s": 2e6 * COPIED / graph_us(lambda i: b.copy_(a))}


def square() -> dict[str, Any]:
    """Operations a second of a large product in bfloat16."""
    a, b = _normal(SQUARE, SQUARE), _normal(SQUARE, SQUARE)
    return {"flops": 2e6 * SQUARE**3 / graph_us(lambda i: a @ b)}


def attention() -> dict[str, Any]:
    """Microseconds of scaled_dot_product_attention in one layer."""
    found = {}
    for name, (b, q, k) in ATTENTION.items():
        queries = _normal(b, HEADS, q, DIM)
        keys, values = (_normal(b, KV_HEADS, k, DIM) for _ in range(2))
        found[name] = round(graph_us(lambda i: _sdpa(queries, keys, values, q > 1)), 2)  # noqa: B023
    return {"us": found}


def products() -> dict[str, Any]:
    """Microseconds of a layer's products and of the head, by rows of activations."""
    shapes = {**_layer_products(), "head": (VOCAB, HIDDEN)}
    found = {}
    for name, (n, k) in shapes.items():
        weights = [_normal(n, k) for _ in range(_sets(2 * n * k))]
        for rows in ROWS:
            x = _normal(rows, k)
            us = graph_us(lambda i: F.linear(x, weights[i]), len(weights))  # noqa: B023
            found[f"{name}_{rows}"] = round(us, 2)
    return {"us": found}


def products_fp8() -> dict[str, Any]:
    """The same in fp8 (e4m3), from 16 rows on."""
    one, kind, found = torch.ones((), device=DEVICE), torch.float8_e4m3fn, {}
    for name, (n, k) in _layer_products().items():
        weights = [_normal(n, k).to(kind) for _ in range(_sets(n * k))]
        for rows in FP8_ROWS:
            x = _normal(rows, k).to(kind)

            def multiply(i: int) -> object:
                return torch._scaled_mm(x, weights[i].t(), one, one, out_dtype=DTYPE)  # noqa: B023

            found[f"{name}_{rows}"] = round(graph_us(multiply, len(weights)), 2)
    return {"us": found}


def _layer_products() -> dict[str, tuple[int, int]]:
    """Columns and inputs of a layer's products."""
    qkv = HIDDEN + 2 * KV_HEADS * DIM
    return {
        "qkv": (qkv, HIDDEN),
        "o": (HIDDEN, HIDDEN),
        "gate_up": (2 * INNER, HIDDEN),
        "down": (HIDDEN, INNER),
    }


def _sets(nbytes: int) -> int:
    return max(1, min(8, SPREAD // nbytes))


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=DTYPE) / 8


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


# -- the model ------------------------------------------------------------------------------------


def model() -> dict[str, Any]:
    """Milliseconds of an 8B's steps, in a graph and without, and tokens a second in a graph."""
    layers = [[_normal(*shape) for shape in _layer_products().values()] for _ in range(LAYERS)]
    head, one, found = _normal(VOCAB, HIDDEN), torch.ones(HIDDEN, device=DEVICE, dtype=DTYPE), {}
    for name, (b, q, context) in STEPS.items():
        caches = [
            [_normal(b, KV_HEADS, max(context, 1), DIM) for _ in range(2)] for _ in range(LAYERS)
        ]
        step = partial(_step, _normal(b, q, HIDDEN), layers, caches, head, one)
        eager, graph = eager_us(step), graph_us(step, rounds=5)
        found[name] = {
            "graph_ms": round(graph / 1e3, 3),
            "eager_ms": round(eager / 1e3, 3),
            "tok_s": round(b * q / graph * 1e6),
        }
    return {"of": found}


def _step(x: torch.Tensor, layers: Any, caches: Any, head: Any, one: Any, _: int) -> torch.Tensor:
    """Token ids behind a step's activations: prefill if there are several tokens a sequence."""
    for (qkv, o, gate_up, down), cache in zip(layers, caches, strict=True):
        y = F.linear(F.rms_norm(x, (HIDDEN,), one), qkv)
        x = x + F.linear(_attend(y, cache), o)
        gate, up = F.linear(F.rms_norm(x, (HIDDEN,), one), gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, down)
    return F.linear(F.rms_norm(x[:, -1], (HIDDEN,), one), head).argmax(-1)


def _attend(y: torch.Tensor, cache: Any) -> torch.Tensor:
    """Attention over the cache, into whose last place the new key goes, or over the prompt."""
    b, q, _ = y.shape
    queries, *new = y.split((HIDDEN, KV_HEADS * DIM, KV_HEADS * DIM), -1)
    queries = queries.view(b, q, HEADS, DIM).transpose(1, 2)
    keys, values = (t.reshape(b, q, KV_HEADS, DIM).transpose(1, 2) for t in new)
    if q == 1:
        cache[0][:, :, -1:], cache[1][:, :, -1:] = keys, values
        keys, values = cache
    return _sdpa(queries, keys, values, q > 1).transpose(1, 2).reshape(b, q, HIDDEN)


if __name__ == "__main__":
    main()
