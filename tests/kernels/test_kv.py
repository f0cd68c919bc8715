"""Kernels that move rows: exact, in place, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels import CPUS, Cpu, normal, run, run_in_place

from mlcc.device import reference_ops as twin
from mlcc_compiler.kernels.cpu import kv
from mlcc_compiler.layout import KvLayout


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("heads", "dim", "page"), [(3, 64, 16), (1, 40, 8), (8, 80, 32)])
@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_append(cpu: Cpu, dtype: str, heads: int, dim: int, page: int, count: int) -> None:
    rng = np.random.default_rng(count)
    pages = normal(3, 20, 2, heads, page, dim).astype(dtype)
    slots = rng.permutation(20 * page)[:count].astype(np.int32)
    slots[rng.random(count) < 0.2] = -1
    k, v = normal(1, count, heads, dim), normal(2, count, heads, dim)
    out = run_in_place(
        kv.append_kv, (KvLayout(page, dtype, 1, heads, dim),), [k, v, slots, pages], cpu
    )
    np.testing.assert_array_equal(out, twin.append_kv(k, v, slots, pages.copy()))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_copy_pages(dtype: str, count: int) -> None:
    pages = normal(3, 12, 2, 3, 16, 48).astype(dtype)
    order = np.random.default_rng(count).permutation(12).astype(np.int32)
    src, dst = order[:count], order[6 : 6 + count]
    out = run_in_place(kv.copy_pages, (KvLayout(16, dtype, 1, 3, 48),), [src, dst, pages])
    np.testing.assert_array_equal(out, twin.copy_pages(src, dst, pages.copy()))


@pytest.mark.parametrize("rows", [[], [0], [4, 4, 1]])
def test_take_rows(rows: list[int]) -> None:
    x, index = normal(1, 5, 100), np.array(rows, np.int32)
    (y,) = run(kv.take_rows, ((100,), ()), [x, index], [((len(rows), 100), "float32")])
    np.testing.assert_array_equal(y, twin.take_rows(x, index))


def test_resolve_tokens() -> None:
    ids, last = np.array([5, -1, -3, 0, -2], np.int32), np.array([10, 11, 12], np.int32)
    (out,) = run(kv.resolve_tokens, (), [ids, last], [((5,), "int32")])
    assert out.tolist() == [5, 10, 12, 0, 11]
    np.testing.assert_array_equal(out, twin.resolve_tokens(ids, last))
    (out,) = run(kv.resolve_tokens, (), [ids[:0], last[:0]], [((0,), "int32")])
    assert out.size == 0
