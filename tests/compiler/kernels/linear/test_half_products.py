"""Products of many rows in float16, against a twin that multiplies and adds in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.kernels.frame import f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.gemm import gemm
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases.gpu_kernels import F16, normal, run, source
from tests.compiler.kernels.cases.scheme import KERNELS

HALVES = replace(F16, half_products=True)
WHOLE = 128 << 20
DEPTH, LANES = 32, 4
"""Columns of a tile, and sums in float16 of each of its rows."""


def tiled(gpu: Gpu, packing: GpuPacking, height: int) -> Any:
    """The linear layer by tiles of 16 * height rows alone."""

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        job = LinearWork(x, packing.n, lambda m, n, value: store(y, value, m, n))
        gemm(gpu, WeightReader(gpu, packing, tensors), job, height)

    arguments = {"x": f32("n", packing.k), **weight_arguments(packing, 0)}
    return kernel(body, **arguments, y=f32("n", packing.n))


def in_halves(x: Any, weight: Any, fused: bool) -> Any:
    """x @ weight.T as the kernel adds it up in float16. WGSL lets a device round each multiply-add
    once (fused), or the product before the sum."""
    x, weight = (np.float16(a).astype(np.float64) for a in (x, weight))
    products = x[:, None, :] * weight
    if not fused:
        products = np.float16(products)
    total = np.zeros(products.shape[:2], np.float32)
    for first in range(0, x.shape[1], DEPTH):
        sums = np.zeros((*products.shape[:2], LANES), np.float16)
        for k in range(first, min(first + DEPTH, x.shape[1]), LANES):
            sums = np.float16(products[..., k : k + LANES].astype(np.float64) + sums)
        even, odd = (np.float32(sums[..., i] + sums[..., i + 2]) for i in (0, 1))
        total = total + (even + odd)
    return total


def answers(name: str, height: int, x: Any, sizes: tuple[int, int]) -> tuple[Any, Any]:
    """(y of the kernel, the weight as it is read)."""
    packing = GpuPacking(*sizes, scheme(name), WHOLE)
    stored = packing.pack(normal(1, *sizes, scale=0.05))
    shape = [((len(x), packing.n), "float32")]
    return run(tiled, (packing, height), [x, *stored], shape, HALVES)[0], packing.unpack(stored)


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize("name", KERNELS)
def test_every_scheme(name: str) -> None:
    """Equal to the bit; also rows of x and W beyond the last one."""
    x = normal(2, 45, 384)
    y, weight = answers(name, 2, x, (70, 384))
    assert any(np.array_equal(y, in_halves(x, weight, fused)) for fused in (True, False))


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize(("height", "k"), [(4, 72), (8, 104)])
def test_other_tiles_and_a_step_beyond_the_row(height: int, k: int) -> None:
    x = normal(3, 130, k)
    y, weight = answers("f16", height, x, (66, k))
    assert any(np.array_equal(y, in_halves(x, weight, fused)) for fused in (True, False))


def inner_loop(gpu: Gpu) -> str:
    """The text of the loop over a tile's columns."""
    packing = GpuPacking(256, 512, scheme("int4_g32"), WHOLE)
    text = source("webgpu", tiled(gpu, packing, 2))
    return text.split("workgroupBarrier")[1].partition("for (")[2].partition("}")[0]


def test_halves_are_multiplied_as_vectors_and_never_converted() -> None:
    loop = inner_loop(HALVES)
    assert loop.count("= fma(") == 2 * 4 and "f32(" not in loop
    assert "f32(" in inner_loop(F16)


def test_devices_without_float16_multiply_floats() -> None:
    loop = inner_loop(replace(HALVES, f16=False))
    assert "=" in loop and loop == inner_loop(replace(F16, f16=False))
