"""A mixture's kernels against their twins: each kind of scheme, odd sizes, idle experts, parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import moe as twin
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.moe import biased_router, expert_bias, router, sort_tokens
from mlcc_compiler.kernels.cpu.moe.experts import expert_linear, stored
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.moe import biased_router as gpu_biased_router
from mlcc_compiler.kernels.gpu.moe import expert_bias as gpu_expert_bias
from mlcc_compiler.kernels.gpu.moe import experts as kernels
from mlcc_compiler.kernels.gpu.moe import router as gpu_router
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.cases.cpu_kernels import normal, run
from tests.compiler.kernels.cases.gpu_kernels import (
    F16,
    F32,
    SMALL,
    VULKAN,
    call,
    on_vulkan,
    round_rows,
)
from tests.compiler.kernels.cases.gpu_kernels import normal as gpu_normal
from tests.compiler.kernels.cases.gpu_kernels import run as gpu_run
from tests.compiler.kernels.cases.moe import (
    CORRECTED,
    OF_EACH_KIND,
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
from tests.compiler.kernels.linear.test_linear import HERE, best, host_runs

BEST = best()
WHOLE = 128 << 20


@pytest.mark.parametrize("case", ROUTERS, ids=str)
def test_route(case: tuple[int, int, str, int, float]) -> None:
    check_route(run, router.route, case)


def test_any_logits_choose_different_experts() -> None:
    check_strange_logits(run, router.route)


@pytest.mark.parametrize("case", CORRECTED, ids=str)
def test_route_corrected(case: tuple[Any, ...]) -> None:
    check_corrected(run, biased_router.route_corrected, case)


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


def test_order() -> None:
    for tokens in (0, 1, 50):
        choice = choices(tokens, tokens, 9, 3)
        out = [((tokens, 3), "int32"), ((10,), "int32"), ((10,), "int32")]
        found, begin, active = run(sort_tokens.expert_order, (9, 3), [choice], out)
        flat = choice.reshape(-1)
        np.testing.assert_array_equal(found.reshape(-1), np.argsort(flat, kind="stable"))
        np.testing.assert_array_equal(np.diff(begin), np.bincount(flat, minlength=9))
        assert begin[0] == 0
        assert active[1 : active[0] + 1].tolist() == np.unique(flat).tolist()


def check(
    shape: tuple[int, int, int],
    name: str,
    experts: int,
    chosen: int,
    each: bool,
    cpu: Isa = BEST,
    tokens: tuple[int, ...] = (0, 1, 2, 25),
) -> None:
    """`each`: every choice reads a part of x of its own."""
    count, n_out, k = shape
    form = stored(cpu, shape, name)
    arrays = form.pack(normal(0, count * n_out, k) + np.float32(0.1))
    matrices = form.unpack(arrays)
    width = chosen * k if each else k
    built = expert_linear(cpu, shape, name, experts, chosen, width)
    kernel = lt.build(built, cpu)
    for n in tokens:
        x, choice = normal(n, n, width), choices(n, n, experts, chosen)
        inputs: list[Any] = [x]
        if not scheme(name).is_float:
            inputs = lt.rows_for(x, form.one.scheme, cpu, k)
            if cpu.activation_parts == 1:
                x = lt.dequantize_rows(inputs[0], inputs[1])
        out = [((n, chosen), "int32"), ((experts + 1,), "int32"), ((experts + 1,), "int32")]
        found = run(sort_tokens.expert_order, (experts, chosen), [choice], out)
        given = [*found, *inputs, *arrays]
        out = [((n, count // experts * chosen * n_out), "float32")]
        (y,) = lt.call(kernel, given, out)
        expected = twin.expert_linear(x.astype(np.float64), choice, *matrices, experts=experts)
        assert lt.relative_error(y, expected) < 1e-5 * (1 + 4 * (cpu.activation_parts - 1)), n


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_every_kind_of_scheme(name: str) -> None:
    check((10, 40, 128), name, 5, 3, each=False, tokens=(1, 25))


@pytest.mark.parametrize(
    ("shape", "name", "experts", "chosen", "each"),
    [
        ((7, 33, 32), "int8_g32", 7, 1, True),
        ((4, 5, 36), "f16", 4, 4, True),
        ((1, 64, 32), "int4a_g16", 1, 1, False),
        ((6, 20, 68), "int4_row", 3, 2, True),
        ((9, 1, 7), "bf16", 3, 2, False),
    ],
    ids=str,
)
def test_odd_sizes(
    shape: tuple[int, int, int], name: str, experts: int, chosen: int, each: bool
) -> None:
    check(shape, name, experts, chosen, each)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", ["q6_k", "k4_g32", "int4a_g32"])
def test_experts_of_many_tokens_and_of_few(name: str, each: bool) -> None:
    """Tiles unpacked once, and not; the other experts are idle."""
    check((6, 40, 96), name, 3, 2, each, tokens=(33, 100))


@pytest.mark.parametrize("cpu", [c for c in HERE if c != BEST], ids=lambda c: c.name)
def test_other_instruction_sets(cpu: Isa) -> None:
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    check((4, 20, 64), "int8a_g32", 4, 2, True, cpu)


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL, VULKAN], ids=["f16", "small", "subgroups"])
@pytest.mark.parametrize("case", ROUTERS, ids=str)
def test_gpu_route(gpu: Gpu, case: tuple[int, int, str, int, float]) -> None:
    check_route(partial(gpu_run, gpu=gpu), gpu_router.route, case)


@on_vulkan
def test_gpu_any_logits_choose_different_experts() -> None:
    check_strange_logits(gpu_run, gpu_router.route)


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL, VULKAN], ids=["f16", "small", "subgroups"])
@pytest.mark.parametrize("case", CORRECTED, ids=str)
def test_gpu_route_corrected(gpu: Gpu, case: tuple[Any, ...]) -> None:
    check_corrected(partial(gpu_run, gpu=gpu), gpu_biased_router.route_corrected, case)


@on_vulkan
def test_gpu_any_corrected_logits_choose_different_experts() -> None:
    check_strange_corrected(gpu_run, gpu_biased_router.route_corrected)


@on_vulkan
def test_gpu_biases() -> None:
    check_biases(gpu_run, gpu_expert_bias.add_expert_bias)


@on_vulkan
def test_gpu_factors() -> None:
    check_factors(gpu_run, gpu_expert_bias.scale_chosen)


@on_vulkan
def test_gpu_clamped_swiglu() -> None:
    check_clamped_swiglu(gpu_run, gpu_expert_bias.clamped_swiglu)


@on_vulkan
def test_gpu_combine() -> None:
    check_combine(gpu_run, gpu_router.combine)


def ordered(gpu: Gpu, choice: Any, experts: int, few: int | None = None) -> list[Any]:
    """The outputs of the kernel that sorts tokens by expert; few: of `expert_order_over_grid`."""
    n, chosen = choice.shape
    factory, arguments = kernels.order_of(gpu, experts, chosen)
    if few is not None:
        arguments = (*arguments[:3], few)
    out = [((n, chosen), "int32"), ((1 + len(arguments[2]), experts + 1), "int32")]
    return gpu_run(factory, arguments, [choice], out, gpu)


def check_order(gpu: Gpu, tokens: int, experts: int, chosen: int, few: int | None = None) -> None:
    """Against numpy's stable sort, to the entry."""
    choice = choices(tokens, tokens, experts, chosen)
    found, begin = ordered(gpu, choice, experts, few)
    flat = choice.reshape(-1)
    np.testing.assert_array_equal(found.reshape(-1), np.argsort(flat, kind="stable"))
    counts = np.bincount(flat, minlength=experts)
    for row, height in zip(begin, (1, *kernels.heights(gpu)), strict=True):
        np.testing.assert_array_equal(row, np.cumsum([0, *(-(-counts // height))]))


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL, VULKAN], ids=["f16", "small", "subgroups"])
def test_gpu_order(gpu: Gpu) -> None:
    """Fewer and more experts than threads."""
    for sizes in ((0, 9, 3), (50, 9, 3), (40, 300, 10)):
        check_order(gpu, *sizes)


def gpu_check(
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
    form = kernels.stored(replace(gpu, binding_bytes=binding), shape, name)
    arrays = form.pack(gpu_normal(0, count * n_out, k) + np.float32(0.1))
    matrices = form.unpack(arrays).reshape(shape)
    numbers = kernels.ExpertLinearShape(count, experts, chosen, chosen * k if each else k)
    columns = len(form.columns)
    for n in tokens:
        x, choice = gpu_normal(n, n, numbers.width), choices(n, n, experts, chosen)
        found = ordered(gpu, choice, experts)
        rounded = round_rows(gpu, form, x) if form.fragments else []
        y = np.full((n, numbers.slots * n_out), 77, np.float32)
        for p in range(len(form.parts)):
            given = [x, *rounded, choice, *found, *arrays[p * columns : (p + 1) * columns], y]
            y = call(kernels.expert_part, (form, p, numbers), given, gpu)[-1]
        expected = twin.expert_linear(x, choice, *matrices, experts=experts)
        largest = twin.expert_linear(np.abs(x), choice, *np.abs(matrices), experts=experts)
        many = gpu.f16 and n > kernels.max_per_token(gpu, numbers)
        tiles = many or form.fragments  # of f16
        assert (np.abs(y - expected) <= 2.0 ** (-10 if tiles else -20) * largest + 1e-6).all(), n


@on_vulkan
@pytest.mark.parametrize("name", ["f32", "f16", "int4a_g16"])
def test_gpu_schemes(name: str) -> None:
    gpu_check(F16, (10, 24, 128), name, 5, 3, each=False, tokens=(1, 20, 70))


@on_vulkan
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
def test_gpu_odd_sizes(
    gpu: Gpu, shape: tuple[int, int, int], name: str, experts: int, chosen: int, each: bool
) -> None:
    gpu_check(gpu, shape, name, experts, chosen, each)


@on_vulkan
def test_gpu_a_weight_in_parts() -> None:
    """The weight is split within an expert."""
    gpu_check(F16, (6, 50, 64), "int4a_g32", 3, 2, True, binding=200 * 64 // 2)
