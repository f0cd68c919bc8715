"""8-bit pages on the CPU against the twin: the rounding to the bit, the attention over them, and
what no rounding can hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference.attention import append_kv, round_heads
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.attention import attention
from mlcc_compiler.kernels.cpu.attention.blocking import Blocking
from mlcc_compiler.kernels.cpu.kv_cache import append
from tests.compiler.kernels.attention_cases import MIXED, Case, inputs, laid_out
from tests.compiler.kernels.cpu_kernels import (
    BEST,
    CPUS,
    NEON,
    NEON_DOTPROD,
    Cpu,
    call,
    compiled,
    normal,
    run,
)
from tests.compiler.kernels.step_cases import LAYOUTS


def awkward(heads: int, dim: int) -> Any:
    """Rows of k or v [n, heads, dim] that are hard to round, one kind a token."""
    rows = normal(5, 12, heads, dim)
    rows[1] = 0
    rows[2] = -0.0
    rows[3] *= np.float32(2.0**-124)  # too small for a scale
    rows[4] *= np.float32(1e37)
    rows[5] = np.where(np.arange(dim) % 2, 3e38, -3e38)
    rows[6, :, 1:] = 0  # one number alone
    rows[7] = np.round(rows[7] * 40) + 0.5  # halves
    rows[7, :, 0] = 127  # with a scale of 1
    rows[8, 0, -1] = np.nan
    rows[9, 0, 0] = np.inf
    rows[10, -1, dim // 2] = -np.inf
    return rows.astype(np.float32)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("heads", "dim", "page"), [(3, 64, 16), (1, 40, 8), (2, 80, 4)])
def test_append(cpu: Cpu, heads: int, dim: int, page: int) -> None:
    """Bit for bit, of any numbers, and nothing else is touched."""
    k, v = awkward(heads, dim), awkward(heads, dim)[::-1].copy()
    pages = np.random.default_rng(0).integers(-127, 128, (20, 2, heads, page, dim)).astype(np.int8)
    scales = normal(4, 20, 2, heads, page)
    slots = np.random.default_rng(1).permutation(20 * page)[: len(k)].astype(np.int32)
    slots[11] = -1
    expected, own = pages.copy(), scales.copy()
    append_kv(k, v, slots, expected, own)
    layout = KvLayout(page, "int8", heads, dim, LAYOUTS[0], 0)
    *_, out, kept = call(append.append_kv, (layout,), [k, v, slots, laid_out(pages), scales], cpu)
    np.testing.assert_array_equal(out, laid_out(expected))
    np.testing.assert_array_equal(kept, own)


def test_what_is_rounded_is_near_and_what_is_not_finite_stays_so() -> None:
    rows = awkward(3, 64)
    small, scales = round_heads(rows)
    back = small * scales[..., None]
    finite = np.isfinite(rows).all(-1)
    assert np.isfinite(back[finite]).all() and not np.isfinite(back[~finite]).any()
    assert np.abs(small).max() == 127
    bound = np.where(finite, scales, 0) / 2 * (1 + 1e-5) + 2.0**-119
    assert (np.abs(back - rows) <= bound[..., None])[finite].all()
    assert (back[1] == 0).all() and (back[3] == 0).all() and (scales[1] == 0).all()


def bound(case: Case, cpu: Cpu) -> float:
    """Of outputs of order one. Where bytes are multiplied, numbers of queries and weights are
    rounded to 1/64,516 of their row's largest; the pages' own are to 1/254."""
    return 3e-4 if Blocking(*case.arguments, cpu.isa).uses_byte_dot else 1e-5


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_attention(cpu: Cpu) -> None:
    for case in (Case(dtype="int8"), Case(dtype="int8", window=33, softcap=5.0)):
        given = inputs(case, MIXED, padding=2)
        arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
        (found,) = run(attention.paged_attention, case.arguments, arguments, out, cpu)
        np.testing.assert_allclose(found, given.expected, rtol=0, atol=bound(case, cpu))


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("outlier", "part"), [(1, 100), (30, 50)])
def test_rows_as_bytes_cost_little_beside_pages(cpu: Cpu, outlier: int, part: int) -> None:
    """The rounding of queries and weights beside that of keys and values, also of queries of which
    one number is far larger than the others."""
    few = ((1, 40), (1, 700), (2, 300))
    case = Case(8, 2, dim=256, dtype="int8")
    given, unrounded = inputs(case, few), inputs(replace(case, dtype="float32"), few)
    for each in (given, unrounded):
        each.q[..., 3] *= outlier
    arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, cpu)
    of_rows, of_pages = found - given.expected, given.expected - unrounded.expected
    assert np.linalg.norm(of_rows) < np.linalg.norm(of_pages) / part


@pytest.mark.parametrize("cpu", [*CPUS, NEON_DOTPROD], ids=lambda c: c.name)
def test_which_cpus_multiply_bytes(cpu: Cpu) -> None:
    """Those that do it by one instruction, pages of whole fours."""
    case = Case(dtype="int8")
    wanted = cpu.name in ("avx512", "avx2-vnni", "neon-dotprod")
    assert Blocking(*case.arguments, cpu.isa).uses_byte_dot == wanted
    assert not Blocking(*Case(dtype="int8", page=2).arguments, cpu.isa).uses_byte_dot
    assert not Blocking(*Case(dtype="float16").arguments, cpu.isa).uses_byte_dot


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("dim", "page"), [(256, 16), (40, 4), (8, 64)])
def test_largest_numbers_do_not_saturate(cpu: Cpu, dim: int, page: int) -> None:
    """Whole numbers up to the largest, which nothing rounds: exact but for float32's sums. Keys are
    all alike, so that every value weighs as much."""
    case = Case(4, 2, dim=dim, page=page, dtype="int8")
    given = inputs(case, ((1, 300), (2, 299), (1, 5)))
    signs = np.where(np.arange(dim) % 3 == 1, -1, 1)
    given.q[:] = 127 * signs / 127 / dim
    given.pages[:, 0], given.pages[:, 1] = 127 * signs, np.where(given.pages[:, 1] > 0, 127, -127)
    given.scales[:] = 1 / 127
    arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, cpu)
    np.testing.assert_allclose(found, given.expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_queries_of_zeros_and_values_of_zeros(cpu: Cpu) -> None:
    case = Case(dtype="int8")
    given = inputs(case, ((1, 40), (1, 300)))
    given.q[:] = 0
    arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, cpu)
    np.testing.assert_allclose(found, given.expected, rtol=0, atol=bound(case, cpu))
    given.pages[:, 1] = 0
    arguments[1] = laid_out(given.pages)
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, cpu)
    assert (found == 0).all()


@pytest.mark.parametrize(
    "case",
    [
        Case(4, 2, dim=40, page=1, dtype="int8"),
        Case(4, 2, dim=8, page=128, dtype="int8"),
        Case(8, 2, dim=256, page=4, dtype="int8", window=100),
    ],
)
def test_pages_of_any_shape(case: Case) -> None:
    lengths = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257, 2049)
    given = inputs(case, [*((1, n) for n in lengths), (21, 120), (65, 65)])
    arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, BEST)
    np.testing.assert_allclose(found, given.expected, rtol=0, atol=bound(case, BEST))


def test_a_token_that_is_not_finite_spoils_who_sees_it_and_no_one_else() -> None:
    case = Case(dtype="int8")
    given = inputs(case, ((1, 40), (1, 300)))
    first = given.batch.page_list(0)[0]
    given.scales[first, 0, :, 3] = np.inf
    given.pages[first, 0, :, 3] = 0
    arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, BEST)
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def test_neon_compiles() -> None:
    case = Case(dtype="int8", window=64)
    for cpu in (NEON, NEON_DOTPROD):
        module = compiled(attention.paged_attention, case.arguments, cpu)
        assert ("sdot\tv" in module.mod.inspect_source("asm")) == (cpu is NEON_DOTPROD)
        compiled(append.append_kv, (case.layout,), cpu)
