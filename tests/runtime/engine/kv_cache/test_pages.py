"""The page pool, and its integrity check."""

from __future__ import annotations

import pytest

from mlcc.engine.kv_cache.cache_manager import PagePool


def test_pages_go_round() -> None:
    pool = PagePool(4)
    taken = pool.allocate(3)
    assert sorted([*taken, *pool.allocate(1)]) == [0, 1, 2, 3]
    pool.free([3])
    pool.free([0, 1])
    assert pool.free_count == 3
    pool.check_integrity([2])
    assert list(pool.allocate(2)) == [1, 0], "the most recently freed first"
    assert list(pool.allocate(0)) == []


def test_the_check_finds_leaks_and_doubles() -> None:
    pool = PagePool(3)
    (page,) = pool.allocate(1)
    pool.check_integrity([page])
    for owned in ([], [page, page], [page, pool.num_pages]):
        with pytest.raises(AssertionError, match="lost or owned twice"):
            pool.check_integrity(owned)
    with pytest.raises(AssertionError, match="free"):
        pool.allocate(3)
