"""Memory that running requests do not need becomes pages of the prefix cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import CapacityError
from mlcc.model.memory.page_budget import MOST, SHARE, grow_pools, memory_share, with_pages
from mlcc.model.memory.planner import needed_bytes
from mlcc.util.memory import RESERVE_BYTES, DeviceMemory
from tests.runtime.model.test_memory import BASE, MANIFEST, PAGE, WANTED


@pytest.mark.parametrize("share", [None, 0.5, 1.0])
@pytest.mark.parametrize("pages", [256, 300, 700, 5000])
def test_it_stays_within_its_share(share: float | None, pages: int) -> None:
    free = BASE + pages * PAGE
    memory = memory_share(DeviceMemory(free), share)
    found = grow_pools(WANTED, MANIFEST, memory, share)
    assert found.pools[0] >= WANTED.pools[0]
    assert replace(found, pools=WANTED.pools) == WANTED
    if found != WANTED:
        used = needed_bytes(found, MANIFEST)
        most = (share or SHARE) * free - (RESERVE_BYTES if share is None else 0)
        assert used <= most
        assert used > most - 2 * PAGE or found.pools[0] == MOST * WANTED.pools[0]


def test_a_desktop_keeps_most_of_its_memory() -> None:
    memory = DeviceMemory(BASE + 100_000 * PAGE)
    assert grow_pools(WANTED, MANIFEST, memory, None).pools == (4 * 256,)
    assert grow_pools(WANTED, MANIFEST, memory_share(memory, 0.5), 0.5).pools[0] > 49_000


def test_unknown_memory_is_left_alone() -> None:
    assert grow_pools(WANTED, MANIFEST, DeviceMemory(), None) == WANTED
    with pytest.raises(CapacityError, match="--kv-pages"):
        memory_share(DeviceMemory(), 0.5)


def test_one_tensor_has_a_bound() -> None:
    memory = DeviceMemory(BASE + 100_000 * PAGE, tensor_bytes=300 * (PAGE // 64))
    assert grow_pools(WANTED, MANIFEST, memory, None).pools == (300,)


def test_pages_are_those_of_whole_sequences() -> None:
    groups = [CacheGroup("paged", 32), CacheGroup("paged", 16), CacheGroup("window", 16, 20)]
    wanted = Capacity.of(
        groups, [8, 16, 12], vocab_size=9, context=128, max_batch=2, max_step_tokens=16
    )
    assert with_pages(wanted, None) is wanted
    assert with_pages(wanted, 5).pools == (5, 10, 12)
    window = Capacity.of(
        groups[2:], [12], vocab_size=9, context=128, max_batch=2, max_step_tokens=16
    )
    assert with_pages(window, 7).pools == (7,)
    state = [CacheGroup("state")]
    states = Capacity.of(state, [2], vocab_size=9, context=128, max_batch=2, max_step_tokens=16)
    with pytest.raises(CapacityError, match="no pages"):
        with_pages(states, 7)
