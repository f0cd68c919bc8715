"""8-bit pages on the GPU against the twin: what is appended, within a unit where a product lies
between two whole numbers, and the attention over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc.device.reference.attention import append_kv
from mlcc_compiler.ir.layout import INT8_WORDS, KvLayout
from mlcc_compiler.kernels.gpu import kv
from mlcc_compiler.kernels.gpu.attention.decode import attend_ranges
from mlcc_compiler.kernels.gpu.device import Gpu
from tests.compiler.kernels.attention_cases import MIXED, Case
from tests.compiler.kernels.gpu_kernels import F16, F32, GPUS, SMALL, call, normal, source
from tests.compiler.kernels.step_cases import LAYOUTS
from tests.compiler.kernels.test_gpu_attention import check
from tests.compiler.kernels.test_kv_int8 import awkward

pytestmark = pytest.mark.usefixtures("vulkan")


def pages_of(heads: int, dim: int, page: int) -> tuple[Any, Any]:
    """Pages of something already, and their scales."""
    rng = np.random.default_rng(0)
    pages = rng.integers(-127, 128, (5, 2, heads, page, dim)).astype(np.int8)
    return pages, normal(4, 5, 2, heads, page)


def near(found: Any, kept: Any, expected: Any, scales: Any) -> None:
    """Numbers of equal value but for few that are one off; what is no number is none."""
    np.testing.assert_allclose(kept, scales, rtol=1e-6)
    apart = np.abs(found.view(np.int8).astype(int) - expected)
    assert apart.max() <= 1 and (apart != 0).mean() < 0.01


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=str)
@pytest.mark.parametrize(("heads", "dim", "page"), [(3, 64, 4), (1, 40, 8), (2, 256, 4)])
def test_append(gpu: Gpu, heads: int, dim: int, page: int) -> None:
    k, v = awkward(heads, dim), awkward(heads, dim)[::-1].copy()
    pages, scales = pages_of(heads, dim, page)
    slots = np.random.default_rng(1).permutation(5 * page)[: len(k)].astype(np.int32)
    slots[11] = -1
    expected, own = pages.copy(), scales.copy()
    append_kv(k, v, slots, expected, own)
    layout = KvLayout(page, INT8_WORDS, heads, dim, LAYOUTS[0], 0)
    given = [k, v, slots, pages.view(np.uint32), scales]
    *_, out, kept = call(kv.append_kv, (layout,), given, gpu)
    near(out, kept, expected, own)


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=str)
@pytest.mark.parametrize("norm", [None, (1e-6, 1.0)])
@pytest.mark.parametrize("dim, rotary", [(40, 40), (64, 16)])
def test_rotate_and_append(gpu: Gpu, norm: Any, dim: int, rotary: int) -> None:
    heads, kv_heads, page = 9, 3, 4
    slots = np.array([3, 7, -1, 19, 18, 4], np.int32)
    qkv = normal(0, 6, (heads + 2 * kv_heads) * dim)
    inv_freq = (100.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    table = twin.rope_table(np.arange(6, dtype=np.int32), inv_freq, 1.0)
    pages, scales = pages_of(kv_heads, dim, page)
    weights = [normal(2, dim), normal(3, dim)] if norm else []
    q, k, v = np.split(qkv.reshape(6, -1, dim), [heads, heads + kv_heads], axis=1)
    if norm:
        q, k = (twin.rms_norm(x, w, *norm) for x, w in zip((q, k), weights, strict=True))
    expected, own = pages.copy(), scales.copy()
    append_kv(twin.rope(k, table), v, slots, expected, own)
    arguments = (KvLayout(page, INT8_WORDS, kv_heads, dim, LAYOUTS[0], 0), heads, rotary, norm)
    out = np.zeros((6, heads, dim), np.float32)
    given = [qkv, table, *weights, slots, pages.view(np.uint32), scales, out]
    *_, found, kept, out = call(kv.rotate_and_append, arguments, given, gpu)
    np.testing.assert_allclose(out, twin.rope(q, table), rtol=0, atol=1e-5)
    near(found, kept, expected, own)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_attention(gpu: Gpu) -> None:
    check(Case(dtype=INT8_WORDS), MIXED, gpu)


@pytest.mark.parametrize(
    "case",
    [
        Case(4, 2, dim=40, page=1, dtype=INT8_WORDS),
        Case(4, 2, dim=8, page=128, dtype=INT8_WORDS, softcap=5.0),
        Case(8, 2, dim=256, page=4, dtype=INT8_WORDS, window=100),
    ],
)
def test_pages_of_any_shape(case: Case) -> None:
    lengths = (1, 15, 16, 17, 31, 33, 127, 128, 129, 257)
    check(case, [*((1, n) for n in lengths), (21, 120), (33, 65)], F32)


def test_within_the_buffers_that_a_browser_gives() -> None:
    """With norms the append binds eight, and no browser promises more."""
    arguments = (KvLayout(16, INT8_WORDS, 3, 64, LAYOUTS[0], 0), 9, 64, (1e-6, 1.0))
    for text in (
        source("webgpu", kv.rotate_and_append(F32, *arguments)),
        source("webgpu", attend_ranges(F32, *Case(dtype=INT8_WORDS).arguments)),
    ):
        assert 0 < text.count("var<storage") <= 8
        assert "f16" not in text.replace("f16;", "")
