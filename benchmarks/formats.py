"""What a byte of each format costs to read: products of one row, on a CPU or through Vulkan.

    python benchmarks/formats.py [--gpu] [--schemes q4_k,q6_k] [--shapes 2048x640] [--json F]

Decoding reads every weight once, so formats may differ in time as they differ in bytes; what they
take beyond that is unpacking. Time is the process's CPU time, of one thread, so that other work on
the machine changes it little; each format takes turns with `int4_g32` and `k4_g32`, and of all
turns the least counts. A column says how much more, or less, a byte costs than a byte of those.

Weights come from caches here (few copies of each), which is strict: memory hides unpacking that is
faster than it. With --gpu the kernels are WGSL on the machine's first Vulkan device; lavapipe runs
them on the CPU, where what a GPU's memory would hide shows, too.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np
from linear import compile_kernel, tensor

from mlcc_compiler._tvm import tvm
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.linear.bf16 import multiplies_bf16
from mlcc_compiler.kernels.frame import kernel_passes
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import linear as gpu_linear
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.quantization import Quantized, quantize, scheme
from mlcc_compiler.quantization.quantized import PARTS
from mlcc_targets.cpu import host_level

BASES = ("int4_g32", "k4_g32")
SCHEMES = (
    "int4_g32,int4m_g32,int5_g32,int5m_g32,int8_g32,q2_k,q3_k,q4_k,q5_k,q6_k,iq4_nl,iq4_xs,mxfp4,"
    "k3_g32,k4_g32,k5_g32,k5_g64,k6_g32,int4a_g128,int4m_g64,bf16,f16"
)
SHAPES = "2048x2048,2048x8192,2048x640"
_COPIES = 24 << 20
"""Bytes of copies of a weight: more than second-level caches hold."""
_BINDING = 128 << 20

_ROWS = 32
"""That are quantized; the others are the same again."""

Call = Callable[[], Any]


def packed(packing: Any, rng: np.random.Generator) -> list[Any]:
    """A weight as it is stored."""
    rows = rng.standard_normal((_ROWS, packing.k), np.float32)
    if packing.scheme.is_float:
        stored: list[Any] = packing.pack(np.tile(rows, (packing.n // _ROWS, 1)))
        return stored
    few = quantize(rows, packing.scheme)
    parts = {n: p for n in PARTS if (p := getattr(few, n)) is not None}
    parts = {name: np.tile(part, (packing.n // _ROWS, 1)) for name, part in parts.items()}
    stored = packing.pack_quantized(Quantized(packing.scheme, **parts))
    return stored


def cpu_calls(n_out: int, k: int, name: str, rng: np.random.Generator) -> tuple[int, list[Call]]:
    """Bytes of a weight, and calls of the product that take turns with copies of it."""
    level = host_level()
    isa = Isa.from_features(level.arch, level.features)
    packing = linear.packing(n_out, k, name, isa)
    weight = packed(packing, rng)
    size = sum(array.nbytes for array in weight)
    kernel = compile_kernel(linear.linear(isa, n_out, k, name, False))
    x, y = rng.standard_normal((1, k), np.float32), tensor(np.zeros((1, n_out), np.float32))
    inputs = [tensor(x)]
    if multiplies_bf16(isa, k, scheme(name)):
        inputs = [tensor((x.view(np.uint32) >> 16).astype(np.uint16))]
    elif linear.needs_quantized_rows(name):
        form = packing.rows
        inputs = [tensor(np.zeros((1, k), np.int8))]
        inputs += [tensor(np.zeros((1, k // form.group), np.float32))]
        inputs += [tensor(np.zeros((1, k // form.sums), np.int32))]
        compile_kernel(linear.quantize_rows(isa, k, form.group, form.sums))(tensor(x), *inputs)

    def call(copy: list[Any]) -> Call:
        return lambda: kernel(*inputs, *copy, y)

    copies = [[tensor(a) for a in weight] for _ in range(max(2, _COPIES // size))]
    return size, [call(copy) for copy in copies]


def gpu_calls(n_out: int, k: int, name: str, rng: np.random.Generator) -> tuple[int, list[Call]]:
    """The same on a GPU."""
    packing = GpuPacking(n_out, k, scheme(name), _BINDING)
    weight = packed(packing, rng)
    kernel = gpu_linear.linear_part(Gpu(f16=False), packing, 0, False)
    target = tvm.target.Target({"kind": "webgpu", "max_num_threads": 256}, host={"kind": "llvm"})
    with target, kernel_passes():
        module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
        executable = tvm.compile(module, target=target)
    with tempfile.TemporaryDirectory() as folder:
        executable.export_library(f"{folder}/kernel.so")
        function = tvm.runtime.load_module(f"{folder}/kernel.so")["main"]
    device = tvm.device("webgpu", 0)
    x = tvm.runtime.tensor(rng.standard_normal((1, k), np.float32), device)
    y = tvm.runtime.tensor(np.zeros((1, n_out), np.float32), device)
    parts = [tvm.runtime.tensor(array, device) for array in weight]

    def call() -> None:
        function(x, *parts, y)
        device.sync()

    return sum(array.nbytes for array in weight), [call]


def least(turns: Sequence[list[Call]], seconds: float) -> list[float]:
    """The least CPU time of one call of each, in turns."""
    found = [float("inf")] * len(turns)
    for calls in turns:
        for call in calls:
            call()
    end = time.process_time() + seconds * len(turns)
    while time.process_time() < end:
        for i, calls in enumerate(turns):
            for call in calls:
                start = time.process_time()
                call()
                found[i] = min(found[i], time.process_time() - start)
    return found


def compare(shape: str, names: Sequence[str], gpu: bool, seconds: float) -> list[dict[str, Any]]:
    """A row for each format: bytes, the least time, and what a byte costs beside the bases."""
    n_out, k = (int(d) for d in shape.split("x"))
    calls = gpu_calls if gpu else cpu_calls
    bases = [calls(n_out, k, name, np.random.default_rng(0)) for name in BASES]
    rows = []
    for name in names:
        if not scheme(name).fits(k):
            continue
        size, own = calls(n_out, k, name, np.random.default_rng(0))
        time_of, *others = least([own, *(c for _, c in bases)], seconds)
        each = [t / s for t, (s, _) in zip(others, bases, strict=True)]
        row: dict[str, Any] = {"shape": shape, "scheme": name, "bytes": size, "seconds": time_of}
        row["gb_s"] = size / time_of / 1e9
        for base, cost in zip(BASES, each, strict=True):
            row[f"per_byte_of_{base}"] = time_of / size / cost
        rows.append(row)
        show(row)
    return rows


def show(row: dict[str, Any]) -> None:
    line = f"{row['scheme']:<11} {row['shape']:<10} {row['bytes'] / 1e6:7.2f}"
    line += f" {row['seconds'] * 1e6:9.1f} {row['gb_s']:6.1f}"
    line += "".join(f" {row[f'per_byte_of_{base}']:9.2f}" for base in BASES)
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="WGSL through Vulkan")
    parser.add_argument("--shapes", default=SHAPES, help="N x K, comma separated")
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--seconds", type=float, default=0.4, help="of CPU, for each of the turns")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; time per byte is relative to {' and '.join(BASES)}\n")
    print("scheme      shape           MB        us   GB/s", *(f"{base:>9}" for base in BASES))
    rows = []
    for shape in options.shapes.split(","):
        rows += compare(shape, options.schemes.split(","), options.gpu, options.seconds)
    if options.json:
        report = {"load": os.getloadavg()[0], "gpu": options.gpu, "rows": rows}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
