"""Products by packed 8-bit integers, against a twin that rounds x as they do; their text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.frame import f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.gemv import gemv
from mlcc_compiler.kernels.gpu.linear.packed_dot import STRETCH
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases.gpu_kernels import F32, VULKAN, normal, run
from tests.compiler.kernels.cases.scheme import AFFINE, FLOATS, KERNELS

PACKED, SUBGROUPS = (replace(gpu, packed_dot=True) for gpu in (F32, VULKAN))
SHARED_BY_FEWER = ("int4a_g16", "int7a_g16")
"""Schemes with scales and zero points for each 16 weights: no step of 32 reads them at once."""
CODES = [name for name in KERNELS if name not in (*FLOATS, *SHARED_BY_FEWER)]
WHOLE = 128 << 20


def rounded(x: Any) -> Any:
    """x as the kernel sees it: of each 32 neighbours the largest magnitude is 127."""
    groups = x.reshape(len(x), -1, STRETCH)
    largest = np.abs(groups).max(-1, keepdims=True)
    inverse = np.float32(127) / np.where(largest > 0, largest, np.float32(np.inf))
    codes = np.rint(groups * inverse).astype(np.float32)
    return (codes * (largest * np.float32(1 / 127))).reshape(x.shape)


def one_variant(gpu: Gpu, packing: GpuPacking, columns: int) -> Any:
    """The linear layer for up to `columns` rows of x alone."""

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        job = LinearWork(x, packing.n, lambda m, n, value: store(y, value, m, n))
        gemv(gpu, WeightReader(gpu, packing, tensors), job, columns)

    arguments = {"x": f32("n", packing.k), **weight_arguments(packing, 0)}
    return kernel(body, **arguments, y=f32("n", packing.n))


def errors(gpu: Gpu, name: str, columns: int, x: Any, sizes: tuple[int, int]) -> tuple[Any, Any]:
    """(largest error, beside the bound of float32 sums, of rounded x and of x itself)."""
    packing = GpuPacking(*sizes, scheme(name), WHOLE)
    stored = packing.pack(normal(1, *sizes) + np.float32(0.1))
    weight = packing.unpack(stored)
    shape = [((len(x), packing.n), "float32")]
    y = run(one_variant, (packing, columns), [x, *stored], shape, gpu)[0]
    bound = np.float32(2.0**-20) * (np.abs(x) @ np.abs(weight).T) + np.float32(1e-6)
    return tuple(np.max(np.abs(y - twin.linear(seen, weight)) / bound) for seen in (rounded(x), x))


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize("name", CODES)
def test_every_scheme(name: str) -> None:
    """Also a stretch of zeros, and rows of W beyond the last one."""
    x = normal(2, 2, 384)
    x[0, 32:64] = 0
    of_rounded, of_x = errors(PACKED, name, 2, x, (70, 384))
    assert of_rounded < 1 < of_x


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize("name", ["t5_g32", "q4_k", "int8_row"])
def test_one_row_within_subgroups(name: str) -> None:
    of_rounded, of_x = errors(SUBGROUPS, name, 1, normal(3, 1, 2048), (33, 2048))
    assert of_rounded < 1 < of_x


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize("k", [4096 + 32, 16384])
def test_several_steps_of_a_lane(k: int) -> None:
    """Some lanes have fewer; the largest table is in memory that the sums take afterwards."""
    of_rounded, of_x = errors(PACKED, "t5_g32", 1, normal(5, 1, k), (40, k))
    assert of_rounded < 1 < of_x


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize(("name", "columns"), [("int4_g32", 4), ("f16", 1), ("int4a_g16", 1)])
def test_the_rest_is_multiplied_as_floats(name: str, columns: int) -> None:
    assert errors(PACKED, name, columns, normal(4, columns, 384), (40, 384))[1] < 1


def wgsl(gpu: Gpu, name: str) -> str:
    """The text of the kernel for one row of x."""
    described = {"kind": "webgpu", "max_num_threads": 256, "supports_subgroups": bool(gpu.subgroup)}
    target = tvm.target.Target(described, host={"kind": "llvm"})
    packing = GpuPacking(4096, 1024, scheme(name), WHOLE)
    made = one_variant(gpu, packing, 1).with_attr("global_symbol", "kernel")
    with target:
        built = tvm.compile(tvm.IRModule({"kernel": made}), target, tir_pipeline=GPU_PIPELINE)
    return str(built.mod.imports[0].inspect_source())


@pytest.mark.parametrize("name", ["t4_g32", "t5_g32", *AFFINE[:1]])
def test_an_instruction_multiplies_four_weights(name: str) -> None:
    text, rows = wgsl(PACKED, name), 8
    dots = re.findall(r"dot4I8Packed\(", text)
    assert len(dots) == rows * STRETCH // 4
    assert "dot4I8Packed" not in wgsl(F32, name)
