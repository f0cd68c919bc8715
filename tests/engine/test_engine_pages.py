"""The page pool, and that its check finds what is wrong."""

from __future__ import annotations

import pytest

from mlcc.engine.pages import PagePool


def test_pages_go_round() -> None:
    pool = PagePool(4)
    taken = pool.allocate(3)
    assert sorted([*taken, *pool.allocate(1)]) == [0, 1, 2, 3]
    pool.free([3, 1])
    pool.check_integrity([0, 2])
    assert pool.free_count == 2 and pool.allocate(1) == [1]
    pool.free([0, 1, 2])
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
