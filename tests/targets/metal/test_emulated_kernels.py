"""The GPU kernels as MSL, run on an emulated device, against the twins.

Threads run in ascending and in descending order, so that a missing barrier is detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.pipeline import tvm_target_of
from mlcc_targets import get_target
from tests.compiler.kernels.attention import test_gpu_attention as attention
from tests.compiler.kernels.cases import gpu_kernels
from tests.compiler.kernels.cases.attention import MIXED, Case
from tests.compiler.kernels.linear import test_gpu_linear as linear
from tests.targets.kernel_checks import Check, checks, names
from tests.targets.metal import emulation

pytestmark = pytest.mark.usefixtures("emulated")
ROW = emulation.row()
METAL = Gpu.of(ROW)
IOS = Gpu.of(get_target("ios"))
CHECKS = checks(METAL)
IOS_CHECKS: list[Check] = [
    (linear.check, (IOS, (72, 256), linear.scheme("int4_g32"), True, (1, 17, 33))),
    (attention.check, (Case(dtype="float16"), MIXED, IOS)),
]
"""The kernels that differ on iOS, which has no matrix instructions."""


@cache
def compiled(factory: Callable[..., Any], gpu: Gpu, arguments: tuple[Any, ...]) -> Any:
    """Like gpu_kernels.compiled, for the row's device."""
    kernel = gpu_kernels.made(factory, gpu, arguments)
    return gpu_kernels.loaded(kernel, tvm_target_of(ROW), emulation.code_made_of())


@pytest.fixture(autouse=True, params=["ascending", "descending"])
def on_metal(
    request: pytest.FixtureRequest, emulated: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setattr(gpu_kernels, "compiled", lambda f, _, a: compiled(f, METAL, a))
    for module in (gpu_kernels, linear):
        monkeypatch.setattr(module, "device", lambda: tvm.device("metal", 0))
    emulation.device().emulated_order(request.param == "descending")
    yield


def test_the_row_uses_what_metal_has() -> None:
    assert METAL.subgroup == 32 and METAL.matrix_unit == "simdgroup" and METAL.f16


@pytest.mark.parametrize("check, arguments", CHECKS, ids=names(CHECKS))
def test_kernel(check: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    before = emulation.device().emulated_launches()
    check(*arguments)
    assert emulation.device().emulated_launches() > before


@pytest.mark.parametrize("check, arguments", IOS_CHECKS, ids=names(IOS_CHECKS))
def test_kernel_without_matrix_instructions(
    check: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_kernels, "compiled", compiled)
    before = emulation.device().emulated_launches()
    check(*arguments)
    assert emulation.device().emulated_launches() > before
