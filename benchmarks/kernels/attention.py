"""Paged attention: decode against a long context, and a prefill of 512 tokens.

    python -m benchmarks.kernels.attention [--heads 9/3/64,32/8/128] [--dtypes int8]
        [--json out.json]

Floors to read the table against, for a context of n keys, H heads and KV heads of D dimensions:

    decode   time >= 2 n KV D bytes / (measured memory bandwidth); "of bandwidth" is the share
             reached. Layers take turns, so that the keys come from memory, as between two tokens.
    prefill  time >= 2 n^2 H D / (cores x peak of one core): scores and sums of a causal square.
             Zen 5 at 4.1 GHz does 0.26 TFLOP/s of f32 on each core.

First decile and median of single calls. Other processes affect the times: compare quiet runs only.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.linear import bandwidth, compile_kernel, measure, tensor
from mlcc.engine.batch.batch import BatchWriter, PageList, int32
from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels.cpu.attention.attention import paged_attention
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_targets.cpu import host_level

_PAGE = 16
_CACHES = 192 << 20
_PREFILL = 512


def layout_of(shape: tuple[int, int, int], dtype: str, contexts: list[int]) -> KvLayout:
    """The layout of pages for one sequence of the longest context."""
    _, kv_heads, dim = shape
    group, pages = CacheGroup("paged", _PAGE), -(-max(*contexts, _PREFILL) // _PAGE)
    return KvLayout(_PAGE, dtype, kv_heads, dim, StepLayout((group,), _PREFILL, 1, 1, pages, 1), 0)


def inputs(
    shape: tuple[int, int, int], layout: KvLayout, queries: int, keys: int, rng: np.random.Generator
) -> list[list[Any]]:
    """Kernel arguments of enough layers to exceed the CPU caches; pages are shuffled."""
    heads, kv_heads, dim = shape
    count = -(-keys // _PAGE)
    page = 2 * kv_heads * _PAGE * dim
    bytes_of_layer = count * page * np.dtype(layout.dtype).itemsize
    layers = max(2, _CACHES // bytes_of_layer) if queries == 1 else 2
    layers = min(layers, 400)
    noise = rng.standard_normal(1 << 20, np.float32)
    noise = (noise * 30 if layout.is_int8 else noise).astype(layout.dtype)
    values = np.resize(noise, layers * count * page)
    pages = [tensor(values.reshape(layers * count, 2, kv_heads, _PAGE, dim))]
    if layout.is_int8:
        shape_of_scales = (layers * count, 2, kv_heads, _PAGE)
        pages.append(tensor(np.full(shape_of_scales, 1 / 30, np.float32)))
    q = tensor(rng.standard_normal((queries, heads, dim), np.float32))
    out = tensor(np.zeros((queries, heads, dim), np.float32))
    order = rng.permutation(layers * count)

    def layer(i: int) -> list[Any]:
        writer = BatchWriter(layout.step)
        own = PageList(int32(order[i * count : (i + 1) * count].tolist()))
        writer.sequence([0] * queries, keys - queries, [own])
        step = np.frombuffer(writer.finish().words, np.int32)
        return [q, *pages, tensor(step), 1, out]

    return [layer(i) for i in range(layers)]


def benchmark(
    shape: tuple[int, int, int], dtype: str, contexts: list[int], isa: Isa
) -> list[dict[str, Any]]:
    """Rows of the table for one shape and page type."""
    heads, kv_heads, dim = shape
    layout = layout_of(shape, dtype, contexts)
    function = paged_attention(isa, AttentionShape(*shape, dim**-0.5), layout)
    kernel, rng, rows = compile_kernel(function), np.random.default_rng(0), []
    for queries, keys in [*((1, n) for n in contexts), (_PREFILL, _PREFILL)]:
        calls = [partial(kernel, *a) for a in inputs(shape, layout, queries, keys, rng)]
        seconds = measure(calls)
        size = 2 * keys * kv_heads * (dim * np.dtype(dtype).itemsize + 4 * layout.is_int8)
        pairs = queries * (2 * keys - queries + 1) // 2
        rows.append(
            {
                "shape": "/".join(map(str, shape)),
                "dtype": dtype,
                "queries": queries,
                "keys": keys,
                "seconds": seconds,
                "gb_s": size / seconds["best"] / 1e9,
                "gflop_s": 4 * heads * dim * pairs / seconds["best"] / 1e9,
            }
        )
    return rows


def show(row: dict[str, Any], memory: float) -> None:
    """One line of the table."""
    line = f"{row['shape']:<10} {row['dtype']:<8} {row['queries']:>7} {row['keys']:>6}"
    line += f" {row['seconds']['best'] * 1e6:10.1f} {row['seconds']['median'] * 1e6:10.1f}"
    line += f" {row['gflop_s']:9.1f}"
    if row["queries"] == 1:
        line += f" {row['gb_s']:7.1f} {row['gb_s'] * 1e9 / memory:13.0%}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", default="9/3/64,32/8/64,32/8/128", help="heads/kv_heads/dim")
    parser.add_argument("--dtypes", default="float32,float16", help="of the pages")
    parser.add_argument("--contexts", default="128,1024,4096,32768", help="keys when decoding")
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    level = host_level()
    isa = Isa.from_features(level.arch, level.features)
    memory, load = bandwidth(), os.getloadavg()[0]
    threads = int(os.environ["TVM_NUM_THREADS"])
    print(f"{isa.name}, {threads} threads, load {load:.1f}, memory {memory / 1e9:.1f} GB/s\n")
    print("shape      pages    queries   keys    best us  median us   GFLOP/s   GB/s  of bandwidth")
    contexts, rows = [int(n) for n in options.contexts.split(",")], []
    for text in options.heads.split(","):
        heads, kv_heads, dim = (int(n) for n in text.split("/"))
        for dtype in options.dtypes.split(","):
            for row in benchmark((heads, kv_heads, dim), dtype, contexts, isa):
                rows.append(row)
                show(row, memory)
    if options.json:
        report = {"isa": isa.name, "threads": threads, "load": load, "memory_gb_s": memory / 1e9}
        options.json.write_text(json.dumps(report | {"rows": rows}, indent=2, default=int) + "\n")


if __name__ == "__main__":
    main()
