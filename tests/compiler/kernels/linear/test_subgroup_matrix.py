"""Subgroup matrices of Chromium's WGSL: Tint accepts the products and attention that use them. No
adapter of CI has them (SwiftShader has none), so that none of these shaders runs: Tint validates
them on Dawn's null backend, which has every feature and computes nothing."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from mlcc_compiler.kernels.gpu.attention import attention
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.linear import linear_part
from mlcc_compiler.kernels.gpu.linear.matrix_tile import ROWS
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases.attention import Case
from tests.compiler.kernels.linear.test_cooperative_matrix import wgsl
from tests.helpers.needs import absent
from tests.helpers.web_package import node

PACKAGE = Path(__file__).parents[4] / "web" / "node_modules" / "webgpu"
PROGRAM = Path(__file__).with_name("validate.mjs")
HEAD = """enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
"""
"""Before TVM's text. Tint cannot see that all threads of a subgroup have one `threadIdx.y`."""


def texts(edge: int) -> list[str]:
    """Products of each number of rows, and attention of a prompt."""
    gpu = Gpu(shared_bytes=32768, subgroup=32, matrix_unit=f"subgroup_matrix{edge}x{edge}")
    packing = GpuPacking(256, 512, scheme("int4_g32"), 1 << 27)
    kernels = (
        linear_part(gpu, packing, 0, False),
        attention.attend(gpu, *Case(dtype="float16").arguments),
    )
    return [text for kernel in kernels for text in wgsl(kernel, "subgroup_matrix_")]


def validated(shaders: list[str]) -> list[list[str]]:
    """Tint's messages about each shader."""
    if not PACKAGE.is_dir():
        absent("no WebGPU for Node: type `npm ci` in web/")
    command = [node(), str(PROGRAM), str(PACKAGE / "index.js")]
    done = subprocess.run(command, input=json.dumps(shaders), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("edge", [8, 16])
def test_tint_accepts_them(edge: int) -> None:
    made = [HEAD + "//" + text for text in texts(edge)]
    assert len(made) == len(ROWS) + 1
    wrong = re.sub(r"row_major>\(whole, at, ", "row_major>(whole, ", made[0], count=1)
    unheaded = made[0].removeprefix(HEAD)
    *accepted, refused, without = validated([*made, wrong, unheaded])
    assert accepted == [[]] * len(made)
    assert any("no matching call" in message for message in refused)
    assert any("subgroup_matrix" in message for message in without)


@pytest.mark.parametrize("edge", [8, 16])
def test_rows_of_x_and_columns_of_w(edge: int) -> None:
    """In workgroup memory both lie along K, so that the right side's columns follow one another."""
    for text in texts(edge)[:-1]:
        for side, layout in (("left", "row_major"), ("right", "col_major")):
            kind = f"subgroup_matrix_{side}<f16, {edge}, {edge}>"
            loads = re.findall(rf"subgroupMatrixLoad<{kind}, (\w+)>\(whole, at, \d+u\);", text)
            assert loads and {*loads} == {layout}
        stores = re.findall(r"subgroupMatrixStore<(\w+)>\(whole, at, matrix_y_\d+, ", text)
        assert stores and {*stores} == {"row_major"}
