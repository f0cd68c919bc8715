"""Experts of a mixture beside a dense layer of as many weights, for one token.

    python -m benchmarks.kernels.experts [--schemes int4_g32] [--shapes 64x8x1024x2048]

A shape is experts x chosen x N x K. A call multiplies with the chosen experts; the dense layer has
as many copies as make up all experts. In a cycle each copy and each expert is used once, so that a
weight is reused after the same number of bytes on both sides: otherwise a last-level cache of
hundreds of megabytes would hold the smaller side. Both alternate, call by call, in this process.
Prints first deciles and medians of single calls.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.kernels.linear import compile_kernel, random_tensors, tensor
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.moe.experts import expert_linear, stored
from mlcc_compiler.kernels.cpu.moe.sort_tokens import expert_order
from mlcc_targets.cpu import host_level

SHAPES = "64x8x1024x2048,64x8x2048x1024,128x8x768x2048"
"""OLMoE's gate or up and its down, Qwen3-30B-A3B's gate or up."""


def rows_of(form: Any, k: int, rng: np.random.Generator) -> list[Any]:
    """One row, quantized if the scheme requires it."""
    if form.scheme.is_float:
        return [tensor(rng.standard_normal((1, k), np.float32))]
    rows = form.rows
    codes = tensor(rng.integers(-100, 100, (1, k), np.int8))
    scales = tensor(np.full((1, k // rows.group), 0.01, np.float32))
    return [codes, scales, tensor(np.zeros((1, k // rows.sums), np.int32))]


def measure(name: str, shape: str, rounds: int) -> None:
    """Print one line."""
    experts, chosen, n_out, k = (int(d) for d in shape.split("x"))
    level, rng = host_level(), np.random.default_rng(0)
    isa = Isa.from_features(level.arch, level.features)
    form = stored(isa, (experts, n_out, k), name)
    sparse = compile_kernel(expert_linear(isa, (experts, n_out, k), name, experts, chosen, k))
    sort = compile_kernel(expert_order(isa, experts, chosen))
    dense = compile_kernel(linear.linear(isa, chosen * n_out, k, name, False))
    packed = linear.packing(chosen * n_out, k, name, isa)
    size = sum(np.prod(t.shape) * np.dtype(t.dtype).itemsize for t in packed.tensors)
    weights = random_tensors(form, rng)
    copies = [random_tensors(packed, rng) for _ in range(experts // chosen)]
    x = rows_of(form.one, k, rng)
    y = tensor(np.zeros((1, chosen * n_out), np.float32))
    lists = [np.zeros(shape, np.int32) for shape in ((1, chosen), experts + 1, experts + 1)]
    order = [tensor(array) for array in lists]

    def with_experts(choice: Any) -> Any:
        sort(tensor(choice.astype(np.int32).reshape(1, chosen)), *order)
        return partial(sparse, *order, *x, *weights, y)

    times: dict[str, list[float]] = {"dense": [], "experts": []}
    for _ in range(max(rounds * chosen // experts, 1)):
        turns = rng.permutation(experts)[: len(copies) * chosen].reshape(len(copies), chosen)
        for copy, choice in zip(copies, turns, strict=True):
            calls = {"dense": partial(dense, *x, *copy, y), "experts": with_experts(choice)}
            for kind, call in calls.items():
                start = time.perf_counter()
                call()
                times[kind].append(time.perf_counter() - start)
    line = f"{name:<10} {shape:<16}"
    for at in (0.1, 0.5):
        seconds = {kind: float(np.quantile(values, at)) for kind, values in times.items()}
        line += "".join(f" {size / s / 1e9:8.1f}" for s in seconds.values())
        line += f" {seconds['dense'] / seconds['experts']:6.2f}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES, help="experts x chosen x N x K")
    parser.add_argument("--schemes", default="int4_g32")
    parser.add_argument("--rounds", type=int, default=300)
    given = parser.parse_args()
    print(f"{os.environ['TVM_NUM_THREADS']} threads, load {os.getloadavg()[0]:.1f}; GB/s")
    print("scheme     shape            | first decile: dense experts ratio | median")
    for name in given.schemes.split(","):
        for shape in given.shapes.split(","):
            measure(name, shape, given.rounds)


if __name__ == "__main__":
    main()
