"""A mixture's CPU kernels against their twins: each kind of scheme, odd sizes, idle experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import moe as twin
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.moe import biased_router, expert_bias, router, sort_tokens
from mlcc_compiler.kernels.cpu.moe.experts import expert_linear, stored
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels import linear_twin as lt
from tests.compiler.kernels.cpu_kernels import normal, run
from tests.compiler.kernels.moe_cases import (
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
from tests.compiler.kernels.test_linear import HERE, best, host_runs

BEST = best()


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
    kernel = lt.build(built, cpu)["main"]
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
    """Whose tiles are unpacked once, and not; the other experts are idle."""
    check((6, 40, 96), name, 3, 2, each, tokens=(33, 100))


@pytest.mark.parametrize("cpu", [c for c in HERE if c != BEST], ids=lambda c: c.name)
def test_other_instruction_sets(cpu: Isa) -> None:
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    check((4, 20, 64), "int8a_g32", 4, 2, True, cpu)
