"""8-bit pages against the twin: rounding (to the bit on CPUs, within a unit on GPUs), attention
over them, and numbers that no rounding can hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc.device.reference.attention import append_kv, round_heads
from mlcc_compiler.ir.layout import INT8_WORDS, KvLayout
from mlcc_compiler.kernels.cpu.attention import attention
from mlcc_compiler.kernels.cpu.attention.blocking import Blocking
from mlcc_compiler.kernels.cpu.kv_cache import append
from mlcc_compiler.kernels.gpu.attention.decode import attend_ranges
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.kv_cache import append as gpu_append
from tests.compiler.kernels.attention.test_gpu_attention import check
from tests.compiler.kernels.cases.attention import MIXED, Case, inputs, laid_out
from tests.compiler.kernels.cases.cpu_kernels import (
    BEST,
    CPUS,
    NEON,
    NEON_DOTPROD,
    Cpu,
    assembly,
    call,
    normal,
    run,
)
from tests.compiler.kernels.cases.gpu_kernels import F16, F32, GPUS, SMALL, on_vulkan, source
from tests.compiler.kernels.cases.gpu_kernels import call as gpu_call
from tests.compiler.kernels.cases.gpu_kernels import normal as gpu_normal
from tests.compiler.kernels.cases.step import LAYOUTS


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
    """Bounds of outputs of order one. Where bytes are multiplied, numbers of queries and weights
    are rounded to 1/64,516 of their row's largest; those of the pages to 1/254."""
    return 3e-4 if Blocking(*case.arguments, cpu.isa).uses_byte_dot else 1e-5


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_attention(cpu: Cpu) -> None:
    for case in (Case(dtype="int8"), Case(dtype="int8", window=33, softcap=5.0)):
        given = inputs(case, MIXED, padding=2)
        arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
        (found,) = run(attention.paged_attention, case.arguments, arguments, out, cpu)
        np.testing.assert_allclose(found, given.expected, rtol=0, atol=bound(case, cpu))


BYTE_DOT_CPUS = [c for c in CPUS if Blocking(*Case(dtype="int8").arguments, c.isa).uses_byte_dot]
"""The others multiply floats: their rows are not rounded, and no sum can saturate."""


@pytest.mark.parametrize("cpu", BYTE_DOT_CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("outlier", "part"), [(1, 100), (30, 50)])
def test_rows_as_bytes_cost_little_beside_pages(cpu: Cpu, outlier: int, part: int) -> None:
    """The rounding of queries and weights in addition to that of keys and values, also for queries
    with one number far larger than the rest."""
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
    """Instruction sets with byte dot products, for pages whose tokens are a multiple of four."""
    case = Case(dtype="int8")
    wanted = cpu.name in ("avx512", "avx2-vnni", "neon-dotprod")
    assert Blocking(*case.arguments, cpu.isa).uses_byte_dot == wanted
    assert not Blocking(*Case(dtype="int8", page=2).arguments, cpu.isa).uses_byte_dot
    assert not Blocking(*Case(dtype="float16").arguments, cpu.isa).uses_byte_dot


@pytest.mark.parametrize(
    ("dim", "page", "cpu"),
    [
        *((256, 16, cpu) for cpu in BYTE_DOT_CPUS),
        *((*sizes, cpu) for sizes in ((40, 4), (8, 64)) for cpu in CPUS),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_largest_numbers_do_not_saturate(cpu: Cpu, dim: int, page: int) -> None:
    """Whole numbers up to the largest, which are not rounded: exact except for float32's sums. Keys
    are equal, so that every value has the same weight."""
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


def test_a_token_that_is_not_finite_affects_only_its_readers() -> None:
    case = Case(dtype="int8")
    given = inputs(case, ((1, 40), (1, 300)))
    first = given.batch.page_list(0)[0]
    given.scales[first, 0, :, 3] = np.inf
    given.pages[first, 0, :, 3] = 0
    arguments, out = [*given.columns, given.sequences], [(given.q.shape, "float32")]
    (found,) = run(attention.paged_attention, case.arguments, arguments, out, BEST)
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def test_neon_compiles() -> None:
    case = Case(dim=32, dtype="int8", window=64)
    for cpu in (NEON, NEON_DOTPROD):
        text = assembly(attention.paged_attention, case.arguments, cpu)
        assert ("sdot\tv" in text) == (cpu is NEON_DOTPROD)
        assert assembly(append.append_kv, (case.layout,), cpu)


def pages_of(heads: int, dim: int, page: int) -> tuple[Any, Any]:
    """Pages of something already, and their scales."""
    rng = np.random.default_rng(0)
    pages = rng.integers(-127, 128, (5, 2, heads, page, dim)).astype(np.int8)
    return pages, gpu_normal(4, 5, 2, heads, page)


def near(found: Any, kept: Any, expected: Any, scales: Any) -> None:
    """Equal codes except for a few that differ by one; NaN stays NaN."""
    np.testing.assert_allclose(kept, scales, rtol=1e-6)
    apart = np.abs(found.view(np.int8).astype(int) - expected)
    assert apart.max() <= 1 and (apart != 0).mean() < 0.01


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL], ids=str)
@pytest.mark.parametrize(("heads", "dim", "page"), [(3, 64, 4), (1, 40, 8), (2, 256, 4)])
def test_gpu_append(gpu: Gpu, heads: int, dim: int, page: int) -> None:
    k, v = awkward(heads, dim), awkward(heads, dim)[::-1].copy()
    pages, scales = pages_of(heads, dim, page)
    slots = np.random.default_rng(1).permutation(5 * page)[: len(k)].astype(np.int32)
    slots[11] = -1
    expected, own = pages.copy(), scales.copy()
    append_kv(k, v, slots, expected, own)
    layout = KvLayout(page, INT8_WORDS, heads, dim, LAYOUTS[0], 0)
    given = [k, v, slots, pages.view(np.uint32), scales]
    *_, out, kept = gpu_call(gpu_append.append_kv, (layout,), given, gpu)
    near(out, kept, expected, own)


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL], ids=str)
@pytest.mark.parametrize("norm", [None, (1e-6, 1.0)])
@pytest.mark.parametrize("dim, rotary", [(40, 40), (64, 16)])
def test_gpu_rotate_and_append(gpu: Gpu, norm: Any, dim: int, rotary: int) -> None:
    heads, kv_heads, page = 9, 3, 4
    slots = np.array([3, 7, -1, 19, 18, 4], np.int32)
    qkv = gpu_normal(0, 6, (heads + 2 * kv_heads) * dim)
    inv_freq = (100.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    table = twin.rope_table(np.arange(6, dtype=np.int32), inv_freq, 1.0)
    pages, scales = pages_of(kv_heads, dim, page)
    weights = [gpu_normal(2, dim), gpu_normal(3, dim)] if norm else []
    q, k, v = np.split(qkv.reshape(6, -1, dim), [heads, heads + kv_heads], axis=1)
    if norm:
        q, k = (twin.rms_norm(x, w, *norm) for x, w in zip((q, k), weights, strict=True))
    expected, own = pages.copy(), scales.copy()
    append_kv(twin.rope(k, table), v, slots, expected, own)
    arguments = (KvLayout(page, INT8_WORDS, kv_heads, dim, LAYOUTS[0], 0), heads, rotary, norm)
    out = np.zeros((6, heads, dim), np.float32)
    given = [qkv, table, *weights, slots, pages.view(np.uint32), scales, out]
    *_, found, kept, out = gpu_call(gpu_append.rotate_and_append, arguments, given, gpu)
    np.testing.assert_allclose(out, twin.rope(q, table), rtol=0, atol=1e-5)
    near(found, kept, expected, own)


@on_vulkan
@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_gpu_attention(gpu: Gpu) -> None:
    check(Case(dtype=INT8_WORDS), MIXED, gpu)


@on_vulkan
@pytest.mark.parametrize(
    "case",
    [
        Case(4, 2, dim=40, page=1, dtype=INT8_WORDS),
        Case(4, 2, dim=8, page=128, dtype=INT8_WORDS, softcap=5.0),
        Case(8, 2, dim=256, page=4, dtype=INT8_WORDS, window=100),
    ],
)
def test_gpu_pages_of_any_shape(case: Case) -> None:
    lengths = (1, 15, 16, 17, 31, 33, 127, 128, 129, 257)
    check(case, [*((1, n) for n in lengths), (21, 120), (33, 65)], F32)


@on_vulkan
def test_gpu_within_the_buffers_that_a_browser_gives() -> None:
    """With norms the append binds eight, and no browser promises more."""
    arguments = (KvLayout(16, INT8_WORDS, 3, 64, LAYOUTS[0], 0), 9, 64, (1e-6, 1.0))
    for text in (
        source("webgpu", gpu_append.rotate_and_append(F32, *arguments)),
        source("webgpu", attend_ranges(F32, *Case(dtype=INT8_WORDS).arguments)),
    ):
        assert 0 < text.count("var<storage") <= 8
        assert "f16" not in text.replace("f16;", "")
