"""A mixture's GPU kernels against their twins: each kind of scheme, odd sizes, parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import moe as twin
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.moe import biased_router, expert_bias, router, sort_tokens
from mlcc_compiler.kernels.gpu.moe import experts as kernels
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.gpu_kernels import F16, F32, SMALL, call, normal, run
from tests.compiler.kernels.moe_cases import (
    CORRECTED,
    ROUTERS,
    check_biases,
    check_clamped_swiglu,
    check_combine,
    check_corrected,
    check_factors,
    check_route,
    check_strange_corrected,
    check_strange_logits,
    choices,
)

pytestmark = pytest.mark.usefixtures("vulkan")
WHOLE = 128 << 20


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=["f16", "small"])
@pytest.mark.parametrize("case", ROUTERS, ids=str)
def test_route(gpu: Gpu, case: tuple[int, int, str, int, float]) -> None:
    check_route(partial(run, gpu=gpu), router.route, case)


def test_any_logits_choose_different_experts() -> None:
    check_strange_logits(run, router.route)


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=["f16", "small"])
@pytest.mark.parametrize("case", CORRECTED, ids=str)
def test_route_corrected(gpu: Gpu, case: tuple[Any, ...]) -> None:
    check_corrected(partial(run, gpu=gpu), biased_router.route_corrected, case)


def test_any_corrected_logits_choose_different_experts() -> None:
    check_strange_corrected(run, biased_router.route_corrected)


def test_biases() -> None:
    check_biases(run, expert_bias.add_expert_bias)


def test_factors() -> None:
    check_factors(run, expert_bias.scale_chosen)


def test_clamped_swiglu() -> None:
    check_clamped_swiglu(run, expert_bias.clamped_swiglu)


def test_combine() -> None:
    check_combine(run, router.combine)


def ordered(gpu: Gpu, choice: Any, experts: int) -> list[Any]:
    """The outputs of `expert_order`."""
    n, chosen = choice.shape
    heights = kernels.heights(gpu)
    out = [((n, chosen), "int32"), ((1 + len(heights), experts + 1), "int32")]
    return run(sort_tokens.expert_order, (experts, chosen, heights), [choice], out, gpu)


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=["f16", "small"])
def test_order(gpu: Gpu) -> None:
    """Of fewer and of more experts than threads."""
    for tokens, experts, chosen in ((0, 9, 3), (50, 9, 3), (40, 300, 10)):
        choice = choices(tokens, tokens, experts, chosen)
        found, begin = ordered(gpu, choice, experts)
        flat = choice.reshape(-1)
        np.testing.assert_array_equal(found.reshape(-1), np.argsort(flat, kind="stable"))
        counts = np.bincount(flat, minlength=experts)
        for row, height in zip(begin, (1, *kernels.heights(gpu)), strict=True):
            np.testing.assert_array_equal(row, np.cumsum([0, *(-(-counts // height))]))


def check(
    gpu: Gpu,
    shape: tuple[int, int, int],
    name: str,
    experts: int,
    chosen: int,
    each: bool,
    tokens: tuple[int, ...] = (0, 1, 3, 25, 60),
    binding: int = WHOLE,
) -> None:
    """`each`: every choice reads a part of x of its own. Parts are done one after the other."""
    count, n_out, k = shape
    form = GpuPacking(count * n_out, k, scheme(name), binding)
    arrays = form.pack(normal(0, count * n_out, k) + np.float32(0.1))
    matrices = form.unpack(arrays).reshape(shape)
    numbers = kernels.ExpertLinearShape(count, experts, chosen, chosen * k if each else k)
    columns = len(form.columns)
    for n in tokens:
        x, choice = normal(n, n, numbers.width), choices(n, n, experts, chosen)
        found = ordered(gpu, choice, experts)
        y = np.full((n, numbers.slots * n_out), 77, np.float32)
        for p in range(len(form.parts)):
            given = [x, choice, *found, *arrays[p * columns : (p + 1) * columns], y]
            y = call(kernels.expert_part, (form, p, numbers), given, gpu)[-1]
        expected = twin.expert_linear(x, choice, *matrices, experts=experts)
        largest = twin.expert_linear(np.abs(x), choice, *np.abs(matrices), experts=experts)
        tiles = gpu.f16 and n > kernels.max_per_token(gpu, numbers)  # of f16
        assert (np.abs(y - expected) <= 2.0 ** (-10 if tiles else -20) * largest + 1e-6).all(), n


@pytest.mark.parametrize("name", ["f32", "f16", "int4a_g16"])
def test_schemes(name: str) -> None:
    check(F16, (10, 24, 128), name, 5, 3, each=False, tokens=(1, 20, 70))


@pytest.mark.parametrize(
    ("gpu", "shape", "name", "experts", "chosen", "each"),
    [
        (F32, (7, 33, 32), "int8_g32", 7, 1, True),
        (SMALL, (4, 5, 36), "f16", 4, 4, True),
        (F16, (1, 64, 32), "int4a_g16", 1, 1, False),
        (SMALL, (6, 20, 68), "int4_row", 3, 2, True),
        (F32, (9, 1, 7), "bf16", 3, 2, False),
    ],
    ids=str,
)
def test_odd_sizes(
    gpu: Gpu, shape: tuple[int, int, int], name: str, experts: int, chosen: int, each: bool
) -> None:
    check(gpu, shape, name, experts, chosen, each)


def test_a_weight_in_parts() -> None:
    """Cut within an expert."""
    check(F16, (6, 50, 64), "int4a_g32", 3, 2, True, binding=200 * 64 // 2)
