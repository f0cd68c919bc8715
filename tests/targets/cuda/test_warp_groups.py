"""Products of 128 rows by warp groups (`wgmma`), for sm_90a, on the emulated device.

It reads W's registers and x, and writes sums, as late as a card may: emulation/warp_groups.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import split_weights
from mlcc_compiler.kernels.gpu.linear.fragments import joined, rounded, warp_group
from mlcc_compiler.kernels.gpu.linear.fragments.codes import columns_of
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import Tile, tile_for
from mlcc_compiler.kernels.gpu.linear.fragments.split_k import SplitK
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.moe import experts
from mlcc_targets import Choices, get_target
from tests.compiler.kernels import test_moe as moe
from tests.compiler.kernels.cases import gpu_kernels
from tests.compiler.kernels.linear import test_gpu_linear as linear
from tests.targets.cuda import emulation
from tests.targets.cuda import test_rounded_activations as rounded_activations
from tests.targets.cuda.test_emulated_kernels import compiled

pytestmark = pytest.mark.usefixtures("emulated")
ARCH = "sm_90a"
CUDA = Gpu.of(get_target("cuda", Choices(archs=(ARCH,))))
OLDER = Gpu.of(get_target("cuda", Choices(archs=("sm_90",))))


@pytest.fixture(autouse=True, params=["ascending", "descending"])
def on_cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    emulation.replace_nvcc(monkeypatch)
    monkeypatch.setattr(gpu_kernels, "compiled", lambda f, gpu, given: compiled(f, given, ARCH))
    for module in (gpu_kernels, linear):
        monkeypatch.setattr(module, "device", lambda: tvm.device("cuda", 0))
    emulation.device().emulated_order(request.param == "descending")
    yield
    emulation.device().emulated_order(0)


def many(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """The variant for 128 rows alone."""
    return linear.many_rows(gpu, packing, 128)


def shared(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """The same where workgroups share out K."""
    return linear.many_rows(gpu, packing, 128, single=True)


def is_right(sizes: tuple[int, int], name: str, rows: int, factory: Any = many) -> bool:
    """Whether the product is the twin's, within the rounding of x and W to float16."""
    packing = split_weights.packing(CUDA, sizes, name)
    assert tile_for(CUDA, 128, packing).warp_groups
    stored, x = packing.pack(linear.normal(1, *sizes)), linear.normal(rows, rows, packing.k)
    y, weight = linear.fragments_product(CUDA, packing, factory, x, stored), packing.unpack(stored)
    bound = linear.bound(CUDA, x, weight, fragments=True)
    return bool((np.abs(y - twin.linear(x, weight)) <= bound).all())


PRODUCTS = [
    ((272, 320), "t4_g32", 131),  # two tiles each way, parts of tiles
    ((16, 64), "f16", 128),  # one step
    ((32, 192), "t5_g32", 70),
    ((48, 512), "q6_k", 65),
    ((32, 128), "int4a_g16", 128),
    ((16, 320), "iq4_nl", 100),
    ((16, 256), "iq4_xs", 65),
    ((16, 128), "mxfp4", 129),
    ((16, 384), "int8_g32", 128),
    ((16, 384), "e4m3_g128", 140),
    ((32, 192), "e4m3_row", 66),
    ((16, 384), "nvfp4", 140),
    ((16, 256), "int4a_g128", 140),
    ((32, 320), "k6_g32", 100),
    ((16, 512), "q4_k", 65),
    ((16, 640), "k5_g32", 200),
    ((48, 384), "bf16", 130),
]


@pytest.mark.parametrize(
    ("sizes", "name", "rows"),
    [*PRODUCTS[:2], *(pytest.param(*case, marks=pytest.mark.long) for case in PRODUCTS[2:])],
    ids=str,
)
def test_products(sizes: tuple[int, int], name: str, rows: int) -> None:
    assert is_right(sizes, name, rows)


def test_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of 128 tokens that chose one expert; of other tiles no kernel is compiled."""
    assert experts.heights(CUDA) == (16, 64, 128) and experts.heights(OLDER) == (16, 64)
    monkeypatch.setattr(experts, "heights", lambda gpu: (128,))
    moe.gpu_check(CUDA, (2, 16, 64), "f16", 2, 1, each=True, tokens=(30,))


@pytest.mark.long
def test_experts_by_number_of_tokens() -> None:
    """Those of one alone, tiles of 16, of 64, and from 64 tokens an expert on of 128."""
    moe.gpu_check(CUDA, (4, 272, 128), "t4_g32", 2, 2, each=False, tokens=(5, 15, 60, 200))


def test_kernels_start_while_the_one_before_runs() -> None:
    """For sm_90a each launch allows it, for others none."""
    device, form = emulation.device(), split_weights.packing(CUDA, (16, 64), "f16")
    for arch, gpu in ((ARCH, CUDA), ("sm_90", OLDER)):
        kernel = compiled(rounded.round_rows, (64, columns_of(form)), arch)
        before = device.emulated_launches(), device.emulated_dependent_launches()
        x = tvm.runtime.tensor(linear.normal(1, 9, 64), tvm.device("cuda", 0))
        kernel(x, tvm.runtime.tensor(np.zeros((9, 32), np.uint32), tvm.device("cuda", 0)))
        assert device.emulated_launches() == before[0] + 1
        dependent = device.emulated_dependent_launches() - before[1]
        assert dependent == int(gpu is CUDA)


def test_k_is_shared_out() -> None:
    packing = split_weights.packing(CUDA, (16, 576), "t4_g32")
    assert SplitK(tile_for(CUDA, 128, packing), 9, 1, 1).parts == 2
    assert is_right((16, 576), "t4_g32", 100, shared)


@pytest.mark.long
def test_several_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one launch."""
    monkeypatch.setattr(rounded_activations, "CUDA", CUDA)
    monkeypatch.setattr(joined, "ROWS", (128,))
    sizes = (("t4_g32", 80), ("t5_g32", 48))
    rounded_activations.test_several_weights(sizes, 256, (100,), True)


@pytest.mark.parametrize(
    "left_out",
    ["wait", *(pytest.param(n, marks=pytest.mark.long) for n in ("begin", "publish", "a stage"))],
)
def test_what_is_left_out_is_seen(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device gives NaN where a card may read or write too early or too late."""
    if left_out == "a stage":
        monkeypatch.setattr(Tile, "ahead", property(lambda tile: tile.stages - 1))
    else:
        monkeypatch.setattr(warp_group, left_out, lambda *newest: None)

    def broken(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
        return linear.many_rows(gpu, packing, 128)

    assert not is_right((16, 448), "t4_g32", 128, broken)


def test_other_rows_of_the_table() -> None:
    """Where K is no whole steps, and where the library is for other cards too."""
    assert not tile_for(CUDA, 128, split_weights.packing(CUDA, (32, 96), "t4_g32")).warp_groups
    assert not tile_for(CUDA, 64, split_weights.packing(CUDA, (32, 128), "t4_g32")).warp_groups
    assert not tile_for(OLDER, 128, split_weights.packing(OLDER, (32, 128), "t4_g32")).warp_groups
