"""The order of weights for tensor cores: what a lane reads, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir._tvm import relax, tvm
from mlcc_compiler.ir.graph import Graph, Weight, calls, tensor
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.kernel_set import gpu_kernels
from mlcc_compiler.kernels.gpu.linear.fragments import order as fragments
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.split_weights import packing
from mlcc_compiler.quantization import scheme
from mlcc_targets import Choices, get_target
from tests.compiler.kernels.cases.gpu_kernels import normal

GPU = Gpu(fragments=True)
NAMES = ("int4_g32", "t4_g32", "t5_g32", "int8_g32", "bf16")


def test_a_lane_reads_its_unit_of_four_groups_at_once() -> None:
    """Row 11 is g = 3 in the lower half; unit 2 of groups 4 to 7 are words 18, 22, 26 and 30."""
    (region,) = fragments.order_of_codes(512, 4).regions
    found = [region.place(3, 1, word) for word in (18, 22, 26, 30)]
    at = 16 * 16 + 128 + (3 * 4 + 2) * 4  # behind a chunk, the upper rows and the lanes before
    assert found == [at + i for i in range(4)] and region.start(1, 3, 1, 2) == at


def test_narrow_planes_are_shared_by_lanes() -> None:
    """Words of 1 bit by all four, of 2 bits by two; of 8 bits a unit has two."""
    bit, nibbles = fragments.order_of_codes(256, 5).regions
    assert [bit.place(0, 0, word) for word in range(8)] == [*range(4), *range(64, 68)]
    assert bit.start(1, 0, 0, 3) == 64 and nibbles.first == 8
    pair, _ = fragments.order_of_codes(256, 6).regions
    assert (
        pair.place(2, 0, 1) == pair.start(0, 2, 0, 2) == pair.start(0, 2, 0, 3) == (2 * 2 + 1) * 4
    )
    (both,) = fragments.order_of_codes(256, 8).regions
    assert [both.place(0, 0, word) for word in (2, 3, 10, 11)] == [8, 9, 10, 11]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [32, 192, 256, 1216])
def test_the_order_changes_no_weight(name: str, k: int) -> None:
    weight, made = normal(1, 80, k), packing(GPU, (80, k), name)
    rows = GpuPacking(80, k, made.scheme, GPU.binding_bytes)
    assert made.fragments and not rows.fragments
    stored, plain = made.pack(weight), rows.pack(weight)
    assert [t.shape for t in made.tensors] == [(5, 16 * t.shape[1]) for t in rows.tensors]
    assert [a.shape for a in stored] == [t.shape for t in made.tensors]
    np.testing.assert_array_equal(made.unpack(stored), rows.unpack(plain))
    for a, b in zip(stored, plain, strict=True):
        if not made.mirrored or b is plain[-1]:
            np.testing.assert_array_equal(np.sort(a, axis=None), np.sort(b, axis=None))


def test_parts_are_whole_tiles() -> None:
    made = packing(Gpu(fragments=True, binding_bytes=128 * 32), (200, 64), "int4_g32")
    assert not made.fragments  # 200 rows are no whole tiles
    made = packing(Gpu(fragments=True, binding_bytes=128 * 32), (208, 64), "int4_g32")
    assert made.fragments and [len(part) for part in made.parts] == [128, 80]
    weight = normal(1, 208, 64)
    expected = packing(Gpu(), (208, 64), "int4_g32")
    found = made.unpack(made.pack(weight))
    np.testing.assert_array_equal(found, expected.unpack(expected.pack(weight)))


def test_which_weights_have_it() -> None:
    for name, k in (("int4_g8", 256), ("int3_g64", 256), ("int4_g16", 48), ("f32", 256)):
        assert not packing(GPU, (64, k), name).fragments
    for name in (
        "int4a_g128",
        "q4_k",
        "k5_g64",
        "k6_g32",
        "q6_k",
        "int8_row",
        "mxfp4",
        "iq4_xs",
        "f16",
    ):
        assert packing(GPU, (64, 256), name).fragments
    assert not packing(Gpu(), (64, 256), "int4_g32").fragments


@pytest.mark.parametrize("bits", [4, 5])
def test_curves_are_mirrored(bits: int) -> None:
    how = scheme(f"t{bits}_g32")
    codes = np.arange(how.levels + 1, dtype=np.uint8)
    stored = fragments.mirror(codes, bits)
    np.testing.assert_array_equal(fragments.mirror(stored, bits), codes)
    assert how.curve is not None
    sign, place = stored >= how.middle, stored % how.middle
    magnitudes = np.array(how.table[how.middle :]) + how.curve[1]
    found = np.where(sign, magnitudes[place], -magnitudes[place]) - how.curve[1]
    np.testing.assert_array_equal(found, how.table)


def test_which_targets_have_it() -> None:
    """Not those of older GPUs, whose libraries share one set of weights with newer ones."""
    assert Gpu.of(get_target("cuda")).fragments
    assert not Gpu.of(get_target("cuda", Choices(archs=("sm_75", "sm_90")))).fragments
    assert not Gpu.of(get_target("vulkan")).fragments


@pytest.mark.parametrize(("schemes", "times"), [(("t4_g32", "bf16"), 1), (("t4_g32", "k6_g32"), 2)])
def test_activations_are_rounded_once(schemes: tuple[str, str], times: int) -> None:
    """For all weights that read them, in each order of columns."""
    forms = [packing(GPU, (64, 256), name) for name in schemes]
    kernels, graph, n = gpu_kernels(GPU), Graph(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", tensor([n, 256]))
    parts = [
        [relax.Var(f"w{i}_{t.suffix}", tensor(t.shape, t.dtype)) for t in form.tensors]
        for i, form in enumerate(forms)
    ]
    with graph.builder.function("forward", [x, *parts[0], *parts[1]]):
        with graph.builder.dataflow():
            values = [
                kernels.emit("linear", graph, x, weight, out=tensor([n, 64]))
                for weight in map(weight_of, forms, parts)
            ]
            output = graph.builder.emit_output(relax.Tuple(values))
        graph.builder.emit_func_output(output)
    names = [str(call.args[0].name_hint).rstrip("1") for call in calls(graph.finalize()["forward"])]
    assert names.count("linear") == 2 and names.count("round_rows") == times


def weight_of(form: GpuPacking, parts: list[Any]) -> Weight:
    shape = form.n, form.k
    return Weight(WeightPlan(("w",), shape, "matrix", form.scheme.name, form.layout()), parts)
