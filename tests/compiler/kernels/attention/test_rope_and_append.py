"""Queries, keys and values of one product: equal to norm, rope and append one after the other, to
the bit except for LLVM's contractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc.device.reference.attention import append_kv
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.kv_cache import append, rope_and_append
from tests.compiler.kernels.cases.attention import key_columns, key_rows
from tests.compiler.kernels.cases.cpu_kernels import CPUS, Cpu, call, normal
from tests.compiler.kernels.cases.step import LAYOUTS

SLOTS = np.array([3, 7, -1, 19, 18, 4], np.int32)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize("norm", [None, (1e-6, 1.0)])
@pytest.mark.parametrize(
    ("dtype", "dim", "rotary"), [("float16", 64, 64), ("float32", 40, 16), ("int8", 48, 44)]
)
def test_rotate_and_append(cpu: Cpu, norm: Any, dtype: str, dim: int, rotary: int) -> None:
    """Rotary parts that are no whole vectors; a token that is not kept; pages that are not hit."""
    heads, kv_heads, page = 6, 2, 4
    qkv = normal(0, 6, (heads + 2 * kv_heads) * dim)
    inv_freq = (100.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    table = twin.rope_table(np.arange(6, dtype=np.int32), inv_freq, 1.0)
    weights = [normal(2, dim), normal(3, dim)] if norm else []
    q, k, v = np.split(qkv.reshape(6, -1, dim), [heads, heads + kv_heads], axis=1)
    if norm:
        q, k = (twin.rms_norm(x, w, *norm) for x, w in zip((q, k), weights, strict=True))
    q, k = twin.rope(q, table), np.ascontiguousarray(twin.rope(k, table), np.float32)
    layout = KvLayout(page, dtype, kv_heads, dim, LAYOUTS[0], 0)
    pages = [normal(5, 5, 2, kv_heads, page, dim).astype(dtype)]
    if dtype == "int8":
        pages.append(normal(6, 5, 2, kv_heads, page))
        kept = call(append.append_kv, (layout,), [k, np.ascontiguousarray(v), SLOTS, *pages], cpu)[
            3:
        ]
    else:
        kept = [key_columns(append_kv(k, v, SLOTS, key_rows(pages[0])))]
    given = [qkv, table, *weights, SLOTS, *pages, np.zeros((6, heads, dim), np.float32)]
    *_, out = found = call(
        rope_and_append.rotate_and_append, (layout, heads, rotary, norm), given, cpu
    )
    np.testing.assert_allclose(out, q, rtol=0, atol=1e-5)
    bounds = {"float32": 1e-5, "float16": 4e-3, "int8": 1}
    for array, expected in zip(found[-1 - len(pages) : -1], kept, strict=True):
        bound = bounds[str(array.dtype)]
        difference = np.abs(array.astype(np.float64) - expected.astype(np.float64))
        assert difference.max() <= bound
        assert (difference > 0).mean() < 0.2  # roundings that fell to the other side


def test_a_head_that_is_not_finite_is_kept_as_such() -> None:
    layout = KvLayout(4, "float32", 1, 16, LAYOUTS[0], 0)
    qkv, table = normal(0, 1, 48), np.ones((1, 16), np.float32)
    qkv[0, 20], qkv[0, 40] = np.nan, np.inf
    pages = np.zeros((1, 2, 1, 4, 16), np.float32)
    given = [qkv, table, np.zeros(1, np.int32), pages, np.zeros((1, 1, 16), np.float32)]
    *_, kept, q = call(rope_and_append.rotate_and_append, (layout, 1, 16, None), given)
    kept = key_rows(kept)
    assert np.isfinite(q).all() and np.isnan(kept[0, 0, 0, 0]).any()
    assert np.isinf(kept[0, 1, 0, 0]).sum() == 1 and not kept[0, :, :, 1:].any()
