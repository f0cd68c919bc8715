"""Loads of four neighbours: the emitted WGSL, and equal numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.linear import linear_part
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.vec4 import FOUR, Vec4Buffer, vec4_if_useful
from mlcc_compiler.kernels.gpu.workgroup import Local, int32, launch
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases.gpu_kernels import F16, normal, run, source


def backwards(gpu: Gpu, k: int) -> Any:
    """y[n, K]: the fours of each row, the last first."""

    def body(x: Any, y: Any) -> None:
        fours = Vec4Buffer(x)
        with launch((x.shape[0],), (1,)) as (row, _):
            four = Local(FOUR)
            with T.serial(k // FOUR) as i:
                place = T.Ramp(int32(0), int32(1), FOUR)
                store(four.buffer, fours.load4(row, k - FOUR - int32(i) * FOUR), place)
                for j in range(FOUR):
                    store(y, four[j], row, int32(i) * FOUR + j)

    return kernel(body, x=f32("n", k), y=f32("n", k))


@pytest.mark.usefixtures("vulkan")
def test_fours_are_the_tensor_s() -> None:
    for n, k in ((1, 4), (3, 12), (5, 64)):
        x = normal(0, n, k)
        (y,) = run(backwards, (k,), [x], [((n, k), "float32")])
        np.testing.assert_array_equal(y, x.reshape(n, -1, FOUR)[:, ::-1].reshape(n, k))


@pytest.mark.parametrize("name", ["t4_g32", "int8_g32", "f16"])
def test_wgsl_has_activations_as_an_array_of_vectors(name: str) -> None:
    part = linear_part(F16, GpuPacking(64, 256, scheme(name), 128 << 20), 0, False)
    assert "array<vec4<f32>>" in source("webgpu", part)


def test_what_is_left_as_it_is() -> None:
    """Rows that are not whole units, and languages whose generator makes vectors by itself."""

    class Row:
        shape = (1, 36)

    row = Row()
    assert vec4_if_useful(F16, row, 8) is row
    assert vec4_if_useful(replace(F16, narrow_types=True), row, 4) is row
