"""Linear layers, one shape at a time: bandwidth in decode, operations per second in prefill.

    python -m benchmarks.kernels.linear [--schemes int4_g32,int8_g32] [--shapes 576x576]
        [--json out.json]
    python -m benchmarks.kernels.linear --cpu avx512-vbmi   # beside a run without: the gain of AMX

Floors to read the table against, for weights of B bytes, n rows, N x K weights:

    decode  (n = 1)    time >= B / (measured memory bandwidth); "of bandwidth" is the share reached
    prefill (n = 512)  time >= 2 n N K / (cores x peak of one core), where per core and cycle
                       AVX512-VNNI on two ports does 2 x 64 byte products, f32 FMA 2 x 16. A group
                       of 32 costs 8 dot products, 1 product and 1 FMA on those ports, so that int4
                       and int8 with groups of 32 can reach 80 % of the byte peak.

Zen 5 at 4.1 GHz: 1.05 TOP/s of bytes and 0.26 TFLOP/s of f32 per core. A model of SmolLM2-135M's
shape reads 90 MB per token as q4 (60 MB of int4, 30 MB of int8 head) and does 109 GOP per 512
tokens of prefill: at 50 GB/s and 1.6 TOP/s (two cores) no less than 1.8 ms and 68 ms.

Decode cycles through copies of the weight that together exceed every cache. The table has the first
decile of single calls; above it numpy's f32 product (n = 512) and the bandwidth, measured just
before. Other processes affect the times: read the load, and compare only quiet runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))

import numpy as np

from mlcc.util.machine import allow_tiles
from mlcc_compiler.ir._tvm import B, IRBuilder, T, tvm
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.linear.amx_gemm import uses_amx
from mlcc_compiler.kernels.cpu.linear.amx_rows import TILE, tiles_of
from mlcc_compiler.kernels.cpu.linear.bf16 import uses_bf16_dot
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE
from mlcc_compiler.quantization import SCHEMES, scheme
from mlcc_targets.cpu import Level, host_level, level

SHAPES = "960x576,576x576,3072x576,576x1536,49152x576"
"""SmolLM2-135M: q k v together, output, gate and up, down, head."""

_CACHES = 128 << 20
_PREFILL_ROWS = 512
_HEAD_COLUMNS = 16384
"""A head this wide is not run in prefill: a model computes one row of logits."""


def compile_kernel(kernel: Any, cpu: Level | None = None) -> Any:
    cpu = cpu or host_level()
    features = [f"+{name}" for name in cpu.features]
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu.cpu, "mattr": features})
    main = kernel.with_attr("global_symbol", "main")
    return tvm.compile(tvm.IRModule({"main": main}), target, tir_pipeline=CPU_PIPELINE)["main"]


def measure(calls: Sequence[Callable[[], Any]], seconds: float = 0.4) -> dict[str, float]:
    """First decile and median of the seconds of one call; the calls take turns."""
    times: list[float] = []
    for call in calls:
        call()
    while sum(times) < seconds or len(times) < 5:
        for call in calls:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return {"best": float(np.quantile(times, 0.1)), "median": float(np.median(times))}


def bandwidth() -> float:
    """Bytes per second that all threads read from memory, summing 32 MiB of 512 at a time."""
    pieces, words = 64, (32 << 20) // 64 // 4
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        x = B.arg("x", B.buffer((pieces, words), "int32"))
        y = B.arg("y", B.buffer((pieces, 64), "int32"))
        with B.parallel(pieces) as p:
            total = B.alloc_buffer((64,), "int32")
            B.buffer_store(total, T.Broadcast(T.int32(0), 64), [T.Ramp(0, 1, 64)])
            with B.serial(words // 64) as i:
                value = total.vload([0], "int32x64") + x.vload([p, i * 64], "int32x64")
                B.buffer_store(total, value, [T.Ramp(0, 1, 64)])
            B.buffer_store(y, total.vload([0], "int32x64"), [p, T.Ramp(0, 1, 64)])
    kernel = compile_kernel(builder.get())
    inputs = [tensor(np.ones((pieces, words), np.int32)) for _ in range(16)]
    result = tensor(np.zeros((pieces, 64), np.int32))
    return (32 << 20) / measure([partial(kernel, x, result) for x in inputs])["best"]


def tensor(array: Any) -> Any:
    return tvm.runtime.tensor(array)


def random_tensors(packing: linear.CpuPacking, rng: np.random.Generator) -> list[Any]:
    """A packed weight; its values do not matter, but must not be subnormal."""
    arrays = []
    for part in packing.tensors:
        if part.dtype.startswith("float"):
            values = (rng.standard_normal(part.shape, np.float32) * 0.01).astype(part.dtype)
        elif part.dtype == "uint16":
            values = np.full(part.shape, 0x3C00, part.dtype)
        else:
            top = 64 if part.dtype == "int8" else 256
            values = rng.integers(0, top, part.shape, part.dtype)
        arrays.append(tensor(values))
    return arrays


def inputs_of(cpu: Level, k: int, name: str, x: Any, row: dict[str, Any]) -> list[Any]:
    """x as the kernel reads it; the time to quantize it goes to `row`."""
    isa, quantization = isa_of(cpu), scheme(name)
    n, tiles = len(x), []
    if uses_amx(isa, k, quantization):
        tiles.append(tensor(np.full((tiles_of(n, k), TILE), 0x3C00, np.uint16)))
    if uses_bf16_dot(isa, k, quantization):
        return [tensor((x.view(np.uint32) >> 16).astype(np.uint16))]
    if quantization.is_float:
        return [tensor(x), *tiles]
    form = linear.row_form(quantization, k)
    codes = [tensor(np.zeros((n, k), np.int8))]
    codes += [tensor(np.zeros((n, k // form.group), np.float32))]
    codes += [tensor(np.zeros((n, k // form.sums), np.int32))]
    rows = compile_kernel(linear.quantize_rows(isa, k, form.group, form.sums), cpu)
    call = partial(rows, tensor(x), *codes)
    row[f"quantize_rows_{n}_s"] = measure([call], 0.1)["best"]
    return [*codes, *tiles]


def isa_of(cpu: Level) -> Isa:
    return Isa.from_features(cpu.arch, cpu.features)


def benchmark(
    n_out: int, k: int, name: str, cpu: Level, rng: np.random.Generator
) -> dict[str, Any]:
    """One shape and scheme: compile time, decode and prefill."""
    packing = linear.packing(n_out, k, name, isa_of(cpu))
    start = time.perf_counter()
    kernel = compile_kernel(linear.linear(isa_of(cpu), n_out, k, name, False), cpu)
    row: dict[str, Any] = {"shape": f"{n_out}x{k}", "scheme": name}
    row["compile_s"] = time.perf_counter() - start
    weight = random_tensors(packing, rng)
    row["bytes"] = sum(np.prod(t.shape) * np.dtype(t.dtype).itemsize for t in packing.tensors)
    copies = [
        weight,
        *([tensor(t.numpy()) for t in weight] for _ in range(_extra_copies(row["bytes"]))),
    ]

    def run(n: int, weights: list[list[Any]]) -> dict[str, float]:
        inputs = inputs_of(cpu, k, name, rng.standard_normal((n, k), np.float32), row)
        y = tensor(np.zeros((n, n_out), np.float32))
        return measure([partial(kernel, *inputs, *w, y) for w in weights])

    row["decode_s"] = run(1, copies)
    row["decode_gb_s"] = row["bytes"] / row["decode_s"]["best"] / 1e9
    if n_out < _HEAD_COLUMNS:
        row["prefill_s"] = run(_PREFILL_ROWS, [weight])
        row["prefill_top_s"] = 2 * _PREFILL_ROWS * n_out * k / row["prefill_s"]["best"] / 1e12
    return row


def _extra_copies(size: int) -> int:
    """The number of further copies, so that all together exceed the caches."""
    return min(int(_CACHES // size), 200)


def numpy_flops(rng: np.random.Generator) -> float:
    """f32 operations per second of numpy's product of 512 x 576 and 576 x 1536."""
    x, w = (rng.standard_normal(s, np.float32) for s in ((512, 576), (576, 1536)))
    return 2 * 512 * 576 * 1536 / measure([lambda: x @ w])["best"]


def show(row: dict[str, Any], memory: float) -> None:
    """One line of the table."""
    line = f"{row['scheme']:<11} {row['shape']:<11} {row['compile_s']:6.2f}s"
    line += f" {row['decode_s']['best'] * 1e6:10.1f} {row['decode_gb_s']:6.1f}"
    line += f" {row['decode_gb_s'] * 1e9 / memory:12.0%}"
    if "prefill_s" in row:
        line += f" {row['prefill_s']['best'] * 1e6:11.0f} {row['prefill_top_s']:7.3f}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES, help="N x K, comma separated")
    parser.add_argument("--schemes", default="int4_g32,int8_g32,bf16", help=", ".join(SCHEMES))
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--cpu", default="host", help="a level of `mlcc compile --cpu`")
    options = parser.parse_args()
    cpu, rng = level(options.cpu), np.random.default_rng(0)
    if "amx-tile" in cpu.features and allow_tiles():
        parser.error("this system has no AMX or does not allow it; leave out --cpu")
    memory, blas = bandwidth(), numpy_flops(rng)
    threads, load = int(os.environ["TVM_NUM_THREADS"]), os.getloadavg()[0]
    print(f"{cpu.name}, {threads} threads, load {load:.1f}")
    print(f"memory {memory / 1e9:.1f} GB/s, numpy f32 {blas / 1e12:.3f} TFLOP/s\n")
    print("scheme      shape       compile  decode us   GB/s of bandwidth  prefill us   TOP/s")
    rows = []
    for name in options.schemes.split(","):
        for shape in options.shapes.split(","):
            n_out, k = (int(d) for d in shape.split("x"))
            rows.append(benchmark(n_out, k, name, cpu, rng))
            show(rows[-1], memory)
    if options.json:
        report: dict[str, Any] = {"isa": cpu.name, "threads": threads, "load": load, "rows": rows}
        report |= {"memory_gb_s": memory / 1e9, "numpy_tflop_s": blas / 1e12}
        options.json.write_text(json.dumps(report, indent=2, default=int) + "\n")


if __name__ == "__main__":
    main()
