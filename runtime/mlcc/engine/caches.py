"""What a sequence holds in each cache group, and how it gets room for more tokens.

A paged group keeps every page of a sequence, a window group those that a query still sees, a state
group one slot. The rules of the kinds are here; who gets room before whom is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlcc.engine.batch import Cache, Capacity, PageList, StateSlot
from mlcc.engine.pages import PagePool
from mlcc.engine.tables import CacheGroup


def pages_for(tokens: int, group: CacheGroup) -> int:
    """Pages or slots that a sequence of so many computed tokens needs, one token at a time."""
    if group.kind == "state":
        return 1
    size = group.page_size
    pages = -(-tokens // size)
    if group.window is not None:
        pages = min(pages, (group.window + size - 2) // size + 1)
    return pages


def tokens_within(pages: int, group: CacheGroup, context: int) -> int:
    """The longest sequence that so many pages or slots hold, at most `context` tokens."""
    if pages_for(context, group) <= pages:
        return context
    return min(context, pages * group.page_size) if group.has_pages else 0


def most_sequences(tokens: int, capacity: Capacity) -> int:
    """Sequences of so many tokens that the pools hold at once."""
    pools = zip(capacity.pools, capacity.groups, strict=True)
    longest = max(tokens, 1)
    return min(p // g.most_pages(longest, capacity.max_step_tokens) for p, g in pools)


class CachePools:
    """The pools of all groups of a model."""

    def __init__(self, capacity: Capacity) -> None:
        self.groups = capacity.groups
        self.pools = tuple(PagePool(size) for size in capacity.pools)
        self._sliding = [g for g, group in enumerate(self.groups) if group.window is not None]

    def empty(self) -> list[Cache]:
        """What a sequence holds before its first token."""
        return [PageList() if group.has_pages else StateSlot() for group in self.groups]

    def slide(self, caches: Sequence[Cache], computed: int) -> None:
        """Give back the pages that no query from position `computed` on can see."""
        for g in self._sliding:
            group, cache = self.groups[g], caches[g]
            assert isinstance(cache, PageList) and group.window is not None
            seen = (computed - group.window + 1) // group.page_size
            if seen > cache.first:
                self.pools[g].free(cache.ids[: seen - cache.first])
                del cache.ids[: seen - cache.first]
                cache.first = seen

    def claim(self, caches: Sequence[Cache], computed: int, want: int) -> int:
        """Take room for up to `want` more tokens; returns for how many there is."""
        if self._sliding:
            self.slide(caches, computed)
        end = computed + want
        for cache in caches:
            if cache.room < end:
                break
        else:  # most steps: what is held does
            return want
        count = self.room(caches, computed, want)
        if count:
            self.grow(caches, computed + count)
        return count

    def room(self, caches: Sequence[Cache], computed: int, want: int) -> int:
        """Tokens, up to `want`, that fit into what is held and what is free."""
        for group, pool, cache in zip(self.groups, self.pools, caches, strict=True):
            if isinstance(cache, PageList):
                pages = cache.first + len(cache.ids) + pool.free_count
                want = min(want, pages * group.page_size - computed)
            elif cache.write < 0 and not pool.free_count:
                return 0
        return want

    def grow(self, caches: Sequence[Cache], tokens: int) -> None:
        """Take what a sequence of so many tokens needs; `room` has said that it is there."""
        for group, pool, cache in zip(self.groups, self.pools, caches, strict=True):
            if isinstance(cache, StateSlot):
                if cache.write < 0:
                    (cache.write,) = pool.allocate(1)
                continue
            missing = -(-tokens // group.page_size) - cache.first - len(cache.ids)
            if missing > 0:
                cache.ids.extend(pool.allocate(missing))
                cache.room = (cache.first + len(cache.ids)) * group.page_size

    @staticmethod
    def advance(caches: Sequence[Cache]) -> None:
        """A step with these caches is planned: the next reads the states that it writes."""
        for cache in caches:
            if isinstance(cache, StateSlot):
                cache.read = cache.write

    def release(self, caches: Sequence[Cache]) -> None:
        """Take everything back."""
        for pool, cache in zip(self.pools, caches, strict=True):
            pool.free(held(cache))

    def lacking(self, caches: Sequence[Cache], tokens: int) -> list[int]:
        """Pages or slots of each group that a sequence of so many tokens still wants."""
        return [
            max(0, pages_for(tokens, group) - len(held(cache)))
            for group, cache in zip(self.groups, caches, strict=True)
        ]

    def check_integrity(self, sequences: Iterable[Sequence[Cache]]) -> None:
        """Raise AssertionError unless every page and slot is free or held by one sequence."""
        owned = list(sequences)
        for g, pool in enumerate(self.pools):
            pool.check_integrity([page for caches in owned for page in held(caches[g])])


def held(cache: Cache) -> Sequence[int]:
    """Page or slot ids of a sequence in one group."""
    if isinstance(cache, PageList):
        return cache.ids
    return () if cache.write < 0 else (cache.write,)
