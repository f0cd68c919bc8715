"""The page pool, and that its check finds what is wrong."""

from __future__ import annotations

import pytest

from mlcc.engine.pages import PagePool


def test_pages_go_round() -> None:
    pool = PagePool(4)
    taken = pool.allocate(3)
    assert sorted([*taken, *pool.allocate(1)]) == [0, 1, 2, 3]
    pool.retire([3], -1)
    pool.retire([0, 1], 0)
    pool.retire([2], 1)
    assert (pool.free_count, pool.retired_count) == (1, 3)
    pool.check_integrity([])
    pool.commit(0)
    assert (pool.free_count, pool.retired_count) == (3, 1)
    pool.commit(1)
    assert (pool.free_count, pool.retired_count) == (4, 0)
    pool.check_integrity([])
    assert pool.allocate(0) == []


def test_the_check_finds_leaks_and_doubles() -> None:
    pool = PagePool(3)
    (page,) = pool.allocate(1)
    pool.check_integrity([page])
    for owned in ([], [page, page], [page, pool.num_pages]):
        with pytest.raises(AssertionError, match="pages"):
            pool.check_integrity(owned)
    with pytest.raises(AssertionError, match="free"):
        pool.allocate(3)
