"""Cost of a byte of each weight format: products with one row, on a CPU or through Vulkan.

    python -m benchmarks.kernels.weight_formats [--gpu] [--schemes q4_k,q6_k] [--shapes 2048x640]
        [--json F] [--cached] [--small-pages]

Decoding reads every weight once, so the times of two formats may differ as their bytes do; more is
the cost of unpacking. A timing is one pass over copies of a weight that together are four times the
last-level cache, so weights come from memory as in a model; it is the CPU time of one thread. All
formats read the same memory, because the place of the pages changes the time by up to a tenth.
A pass of a format runs between passes of `int4_g32` and `k4_g32`, and a column has the cost of a
byte relative to each of them: the median over the turns, since the load of the memory changes
slowly, and beside it the ratio of the minimum times.

With --cached there are two copies, which fit into the caches: the speed of a core without the
memory's limit. With --gpu the kernels are WGSL on the machine's first Vulkan device; lavapipe runs
them on the CPU, where costs show that a GPU's memory would hide.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np
import numpy.typing as npt

from benchmarks.kernels.linear import compile_kernel, tensor
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.linear.bf16 import uses_bf16_dot
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import linear as gpu_linear
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.quantization import Quantized, quantize, scheme
from mlcc_compiler.quantization.quantized import PARTS
from mlcc_targets.cpu import host_level

BASES = ("int4_g32", "k4_g32")
SCHEMES = (
    "int4_g32,int4m_g32,int5_g32,int5m_g32,int8_g32,q2_k,q3_k,q4_k,q5_k,q6_k,iq4_nl,iq4_xs,mxfp4,"
    "k3_g32,k4_g32,k5_g32,k5_g64,k6_g32,t3_g32,t4_g32,t5_g32,int4a_g128,int4m_g64,bf16,f16"
)
SHAPES = "2048x2048,2048x8192,2048x640"
_LEAST_COPIES, _CACHES = 128 << 20, 4
"""Bytes of all copies of a weight, or this multiple of the last-level cache if that is more."""
_ALIGNED = 64
_BINDING = 128 << 20

_BYTE = 0x3C
"""The byte that fills all weights: no float, scale or exponent made of it is subnormal."""
_ROWS = 32
"""The number of rows that are quantized; the others repeat them."""

Call = Callable[[], Any]
Array = npt.NDArray[Any]


def last_cache() -> int:
    """Bytes of the largest cache of a core; 0 if unknown."""
    sizes = [0]
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        number, unit = size.read_text().strip()[:-1], size.read_text().strip()[-1]
        sizes.append(int(number) << {"K": 10, "M": 20}[unit])
    return max(sizes)


def packed(packing: Any, rng: np.random.Generator) -> list[Any]:
    """A packed weight."""
    rows = rng.standard_normal((_ROWS, packing.k), np.float32)
    if packing.scheme.is_float:
        stored: list[Any] = packing.pack(np.tile(rows, (packing.n // _ROWS, 1)))
        return stored
    quantized = quantize(rows, packing.scheme)
    parts = {n: p for n in PARTS if (p := getattr(quantized, n)) is not None}
    parts = {name: np.tile(part, (packing.n // _ROWS, 1)) for name, part in parts.items()}
    stored = packing.pack_quantized(Quantized(packing.scheme, **parts))
    return stored


def cpu_calls(
    n_out: int, k: int, name: str, rng: np.random.Generator, memory: Array
) -> tuple[int, list[Call]]:
    """(bytes of a weight, calls of the product with each of its copies in memory)."""
    level = host_level()
    isa = Isa.from_features(level.arch, level.features)
    packing = linear.packing(n_out, k, name, isa)
    copies = copies_of(packing, memory)
    kernel = compile_kernel(linear.linear(isa, n_out, k, name, False))
    x, y = rng.standard_normal((1, k), np.float32), tensor(np.zeros((1, n_out), np.float32))
    inputs = [tensor(x)]
    if uses_bf16_dot(isa, k, scheme(name)):
        inputs = [tensor((x.view(np.uint32) >> 16).astype(np.uint16))]
    elif linear.needs_quantized_rows(name):
        form = packing.rows
        inputs = [tensor(np.zeros((1, k), np.int8))]
        inputs += [tensor(np.zeros((1, k // form.group), np.float32))]
        inputs += [tensor(np.zeros((1, k // form.sums), np.int32))]
        compile_kernel(linear.quantize_rows(isa, k, form.group, form.sums))(tensor(x), *inputs)

    def call(copy: list[Any]) -> Call:
        return lambda: kernel(*inputs, *copy, y)

    size = sum(t.numpy().nbytes for t in copies[0])
    return size, [call(copy) for copy in copies]


def pages(size: int, small: bool) -> Array:
    """Memory in huge pages, as the page cache has files on some systems, or in small pages."""
    mapped = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_NOHUGEPAGE if small else mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapped, np.uint8)
    memory[:] = _BYTE
    return memory


def copies_of(packing: Any, memory: Array) -> list[list[Any]]:
    """As many copies of a weight as fit in `memory`, consecutive, each in the layout of a file."""
    dtypes = [np.dtype(part.dtype) for part in packing.tensors]
    sizes = [
        int(np.prod(part.shape)) * d.itemsize
        for part, d in zip(packing.tensors, dtypes, strict=True)
    ]
    strides = [-(-size // _ALIGNED) * _ALIGNED for size in sizes]
    copies = []
    for first in range(0, len(memory) - sum(strides) + 1, sum(strides)):
        copy, at = [], first
        for part, dtype, size, stride in zip(packing.tensors, dtypes, sizes, strides, strict=True):
            view = memory[at : at + size].view(dtype).reshape(part.shape)
            copy.append(tvm.runtime.from_dlpack(view))
            at += stride
        copies.append(copy)
    return copies


def gpu_calls(
    n_out: int, k: int, name: str, rng: np.random.Generator, memory: Array
) -> tuple[int, list[Call]]:
    """(bytes of a weight, one call) on a GPU, with the weight in its memory."""
    packing = GpuPacking(n_out, k, scheme(name), _BINDING)
    weight = packed(packing, rng)
    kernel = gpu_linear.linear_part(Gpu(f16=False), packing, 0, False)
    target = tvm.target.Target({"kind": "webgpu", "max_num_threads": 256}, host={"kind": "llvm"})
    with target:
        module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
        executable = tvm.compile(module, target, tir_pipeline=GPU_PIPELINE)
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


def passes(turns: Sequence[list[Call]], seconds: float) -> Array:
    """CPU times [turn, format]: in every turn one pass over the calls of each format."""
    times: list[list[float]] = []
    end = time.process_time() + seconds * len(turns)
    while time.process_time() < end or len(times) < 4:
        row = []
        for calls in turns:
            start = time.process_time()
            for call in calls:
                call()
            row.append((time.process_time() - start) / len(calls))
        times.append(row)
    return np.array(times[1:])


def compare(shape: str, names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each format: bytes, median time, and cost of a byte relative to the bases."""
    n_out, k = (int(d) for d in shape.split("x"))
    calls = gpu_calls if options.gpu else cpu_calls
    total = 8 * n_out * k if options.cached else max(_LEAST_COPIES, _CACHES * last_cache())
    memory = pages(total, options.small_pages)
    bases = [calls(n_out, k, name, np.random.default_rng(0), memory) for name in BASES]
    rows = []
    for name in names:
        if not scheme(name).fits(k):
            continue
        size, own = calls(n_out, k, name, np.random.default_rng(0), memory)
        times = passes([bases[0][1], own, bases[1][1]], options.seconds)
        median, least = float(np.median(times[:, 1])), times.min(axis=0)
        row: dict[str, Any] = {"shape": shape, "scheme": name, "bytes": size, "seconds": median}
        row |= {"least_seconds": float(least[1]), "gb_s": size / median / 1e9}
        for column, base, (base_size, _) in zip((0, 2), BASES, bases, strict=True):
            bytes_ratio = size / base_size
            ratios = np.quantile(times[:, 1] / times[:, column], (0.5, 0.25, 0.75)) / bytes_ratio
            row[f"per_byte_of_{base}"], *row[f"quartiles_of_{base}"] = ratios.tolist()
            row[f"least_per_byte_of_{base}"] = float(least[1] / least[column] / bytes_ratio)
        rows.append(row)
        show(row)
    return rows


def show(row: dict[str, Any]) -> None:
    line = f"{row['scheme']:<11} {row['shape']:<10} {row['bytes'] / 1e6:7.2f}"
    line += f" {row['seconds'] * 1e6:9.1f} {row['gb_s']:6.1f}"
    for base in BASES:
        line += f" {row[f'per_byte_of_{base}']:9.3f} {row[f'least_per_byte_of_{base}']:6.3f}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="WGSL through Vulkan")
    parser.add_argument("--shapes", default=SHAPES, help="N x K, comma separated")
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument(
        "--cached", action="store_true", help="two copies, which fit into the caches"
    )
    parser.add_argument(
        "--small-pages", action="store_true", help="small memory pages instead of huge ones"
    )
    parser.add_argument("--seconds", type=float, default=0.4, help="CPU seconds of each format")
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; time per byte is relative to {' and '.join(BASES)}\n")
    print(
        "scheme      shape           MB        us   GB/s", *(f"{base:>9}  least" for base in BASES)
    )
    rows = []
    for shape in options.shapes.split(","):
        rows += compare(shape, options.schemes.split(","), options)
    if options.json:
        report = {"load": os.getloadavg()[0], "gpu": options.gpu, "rows": rows}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
