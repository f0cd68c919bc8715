"""Cooperative matrices in WGSL: the text of a product and of attention. No released wgpu-native
lets a device have them (docs/notes/devices.md), so that no shader of these runs in CI."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.frame import PrimFunc
from mlcc_compiler.kernels.gpu.attention import attention
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.linear import linear_part
from mlcc_compiler.kernels.gpu.linear.matrix_tile import tile_for
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases.attention import Case

GPU = Gpu(shared_bytes=32768, subgroup=32, matrix_unit="coop_mat16x16")
CALL = re.compile(r"(matrix_\w+) = coopMultiplyAdd\((\w+), (\w+), \1\);")


def wgsl(kernel: PrimFunc, word: str = "coop_mat") -> list[str]:
    """The functions of a kernel that use cooperative matrices, or another `word`."""
    described = {"kind": "webgpu", "max_num_threads": 256, "supports_subgroups": True}
    target = tvm.target.Target(described, host={"kind": "llvm"})
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
    with target:
        built = tvm.compile(module, target, tir_pipeline=GPU_PIPELINE)
    functions = built.mod.imports[0].inspect_source().split("// Function:")
    return [text for text in functions if word in text]


def declared(text: str) -> dict[str, str]:
    """Type of each matrix."""
    return dict(re.findall(r"var (matrix_\w+) = (coop_mat\S+)\(\);", text))


@pytest.mark.parametrize("rows", (16, 128))
def test_a_product(rows: int) -> None:
    packing = GpuPacking(256, 512, scheme("int4_g32"), 1 << 27)
    texts = wgsl(linear_part(GPU, packing, 0, False))
    tile = tile_for(rows, packing.n, 16)
    text = texts[(16, 32, 64, 128).index(rows)]
    matrices = declared(text)
    of = {"x": "f16,A", "w": "f16,B", "y": "f32,C"}
    count = {"x": tile.high, "w": tile.wide, "y": tile.high * tile.wide}
    assert matrices == {
        f"matrix_{name}_{i}": f"coop_mat16x16<{of[name]}>"
        for name in of
        for i in range(count[name])
    }
    steps = tile.depth // tile.over_depth // 16
    assert len(CALL.findall(text)) == steps * tile.high * tile.wide
    # rows of x lie one after the other in workgroup memory; so do those of W, its columns
    assert len(re.findall(r"= coopLoadT<coop_mat16x16<f16,A>>\(at, ", text)) == steps * tile.high
    assert len(re.findall(r"= coopLoad<coop_mat16x16<f16,B>>\(at, ", text)) == steps * tile.wide
    assert len(re.findall(r"coopStoreT\(matrix_y_\d+, at, 16u\);", text)) == count["y"]


def test_attention() -> None:
    (text,) = wgsl(attention.attend(GPU, *Case(dtype="float16").arguments))
    types = {re.sub(r"_\d+$", "", name): kind for name, kind in declared(text).items()}
    inputs = dict.fromkeys(("matrix_query", "matrix_weight"), "coop_mat16x16<f16,A>")
    inputs |= dict.fromkeys(("matrix_key", "matrix_value"), "coop_mat16x16<f16,B>")
    sums = dict.fromkeys(("matrix_score", "matrix_output"), "coop_mat16x16<f32,C>")
    assert types == inputs | sums
    pairs = {tuple(re.sub(r"_\d+$", "", n) for n in call) for call in CALL.findall(text)}
    assert pairs == {
        ("matrix_score", "matrix_query", "matrix_key"),
        ("matrix_output", "matrix_weight", "matrix_value"),
    }


def test_each_pointer_is_in_a_block_of_its_own() -> None:
    """Two of one name in a block would be refused."""
    packing = GpuPacking(256, 512, scheme("int4_g32"), 1 << 27)
    for text in wgsl(linear_part(GPU, packing, 0, False)):
        lines = [line.strip() for line in text.splitlines()]
        for line, after in pairwise(lines):
            if "let at" in line:
                assert line.startswith("{ let at = &(") and after.endswith("} //();")
