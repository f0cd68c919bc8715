"""Kernels that move rows: exact, in place, without a change elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc.device.reference.attention import append_kv
from mlcc.device.reference.caches import copy_pages
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir.caches import CacheTensor
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.kv_cache import append
from tests.compiler.kernels.cases.attention import key_columns
from tests.compiler.kernels.cases.cpu_kernels import CPUS, Cpu, call, normal, run
from tests.compiler.kernels.cases.step import LAYOUTS, copy_step, token_step, words_of


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
    layout = KvLayout(page, dtype, heads, dim, LAYOUTS[0], 0)
    *_, out = call(append.append_kv, (layout,), [k, v, slots, key_columns(pages)], cpu)
    expected = key_columns(append_kv(k, v, slots, pages.copy()))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("group", [0, 2])
@pytest.mark.parametrize("layout", LAYOUTS[::2])
@pytest.mark.parametrize("shape", [(2, 3, 16, 48), (3, 40), (7,)])
def test_copy_pages(dtype: str, group: int, layout: StepLayout, shape: tuple[int, ...]) -> None:
    """Copies of the group's pages, no more than their count; pages of any shape."""
    pages = normal(3, 12, *shape).astype(dtype)
    copies = [(2, 4, 1), (0, 5, 2), (1, 0, 7), (2, 6, 3), (0, 10, 8)]
    step = words_of(copy_step(layout, copies))
    arguments = (CacheTensor("", shape, dtype), layout, group)
    for count in (0, 1, 4, 5):
        read, out, _ = call(append.copy_pages, arguments, [step, pages, count])
        own = [copy[1:] for copy in copies[:count] if copy[0] == group]
        source, to = np.array(own, np.int32).reshape(-1, 2).T
        np.testing.assert_array_equal(out, copy_pages(source, to, pages.copy()))
        np.testing.assert_array_equal(read, step)


@pytest.mark.parametrize("rows", [[], [0], [4, 4, 1]])
def test_take_rows(rows: list[int]) -> None:
    x, index = normal(1, 5, 100), np.array(rows, np.int32)
    (y,) = run(append.take_rows, ((100,), ()), [x, index], [((len(rows), 100), "float32")])
    np.testing.assert_array_equal(y, twin.take_rows(x, index))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_step(layout: StepLayout) -> None:
    """Exactly, for any offsets of the columns, and with garbage beyond the counts."""
    last = np.array([10, 11, 12], np.int32)
    for sequences in ([[5, -1, 7, 8], [-3], [0], [-2]], [[4]], []):
        batch = token_step(layout, sequences)
        for more in (0, 5):
            n, r = batch.num_tokens + more, batch.num_rows + 2 * more
            expected = twin.read_step(StepView(batch), last, n, r)
            outputs = [(column.shape, "int32") for column in expected]
            found = run(append.read_step, (layout,), [words_of(batch), last], outputs)
            assert len(found) == len(expected)
            for column, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(column, wanted)
    batch = token_step(layout, [[5, -1, -3, 0, -2]])
    assert twin.read_step(StepView(batch), last)[0].tolist() == [5, 10, 12, 0, 11]
