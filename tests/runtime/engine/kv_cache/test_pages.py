"""The pools of pages and state slots, and their integrity check."""

from __future__ import annotations

import pytest

from mlcc.engine import Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import CacheManager, PagePool


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


def test_a_sequence_whose_first_tokens_were_rejected_holds_nothing() -> None:
    """Drafts may be verified in the step that computes the whole prompt: with a state, all of it is
    undone."""
    groups = [CacheGroup("paged", 4), CacheGroup("state")]
    pools = CacheManager(
        Capacity.of(groups, [8, 2], vocab_size=8, context=32, max_batch=2, max_step_tokens=16)
    )
    caches = pools.empty()
    assert pools.claim(caches, 0, 9) == 9
    pools.trim(caches, 5)
    pools.check_integrity([caches])
    assert [pool.free_count for pool in pools.pools] == [6, 1]
    pools.trim(caches, 0)
    pools.check_integrity([caches])
    assert [pool.free_count for pool in pools.pools] == [8, 2]
