"""What a sequence holds in each cache group, and how it gets room for more tokens.

A paged group keeps every page of a sequence, a window group those that a query still sees, a state
group one slot. The rules of the kinds are here, and what sequences share of the prefix cache; who
gets room before whom is the scheduler's.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from functools import partial

from mlcc.engine.batch.batch import Cache, Capacity, PageList, StateSlot
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.page_pool import PagePool
from mlcc.engine.kv_cache.radix_tree import Hit, RadixTree, first_seen


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


class CacheManager:
    """The pools of all groups of a model, and what is shared of them."""

    def __init__(self, capacity: Capacity) -> None:
        self.groups = capacity.groups
        self.tree = RadixTree(self.groups)
        forget = [partial(self.tree.evict, g) for g in range(len(self.groups))]
        self.pools = tuple(map(PagePool, capacity.pools, forget))
        self.copies: list[tuple[int, int, int]] = []
        """(group, source, destination) that the next step must make; sources are held for it."""
        self._most_copies = capacity.layout.max_copies
        self._sliding = [g for g, group in enumerate(self.groups) if group.window is not None]

    def empty(self) -> list[Cache]:
        """What a sequence holds before its first token."""
        return [PageList() if group.has_pages else StateSlot() for group in self.groups]

    def slide(self, caches: Sequence[Cache], computed: int) -> None:
        """Give back the pages that no query from position `computed` on can see."""
        for g in self._sliding:
            group, cache = self.groups[g], caches[g]
            assert isinstance(cache, PageList)
            seen = first_seen(computed, group) // group.page_size
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

    def advance(self, caches: Sequence[Cache]) -> None:
        """A step with these caches is planned: the next reads the states that it writes."""
        for pool, cache in zip(self.pools, caches, strict=True):
            if isinstance(cache, StateSlot):
                if cache.read not in (-1, cache.write):
                    pool.free((cache.read,))
                cache.read = cache.write

    def fork(self, caches: Sequence[Cache]) -> bool:
        """See to it that the next step can be undone: states are written elsewhere than they are
        read. Returns whether there is room for that; without, nothing is changed."""
        states = [
            (pool, cache)
            for pool, cache in zip(self.pools, caches, strict=True)
            if isinstance(cache, StateSlot) and cache.read == cache.write
        ]
        if not all(pool.free_count for pool, _ in states):
            return False
        for pool, cache in states:
            (cache.write,) = pool.allocate(1)
        return True

    def trim(self, caches: Sequence[Cache], computed: int) -> None:
        """Give back the pages behind so many tokens: what they hold was not said."""
        for group, pool, cache in zip(self.groups, self.pools, caches, strict=True):
            if isinstance(cache, PageList):
                keep = -(-computed // group.page_size) - cache.first
                if keep < len(cache.ids):
                    pool.free(reversed(cache.ids[keep:]))
                    del cache.ids[keep:]
                    cache.room = (cache.first + keep) * group.page_size

    def release(self, caches: Sequence[Cache]) -> None:
        """Take everything back."""
        for pool, cache in zip(self.pools, caches, strict=True):
            pool.free(reversed(held(cache)))

    def missing(self, caches: Sequence[Cache], tokens: int) -> list[int]:
        """Pages or slots of each group that a sequence of so many tokens still wants."""
        return [
            max(
                0,
                pages_for(tokens, group)
                - (len(cache.ids) if isinstance(cache, PageList) else cache.write >= 0),
            )
            for group, cache in zip(self.groups, caches, strict=True)
        ]

    def find(self, scope: Hashable, tokens: array[int]) -> Hit | None:
        """What of a prompt was computed before, and can be read now."""
        hit = self.tree.find(scope, tokens)
        if hit is None or self._can_copy(hit):
            return hit
        return self.tree.find(scope, tokens, parts=False)

    def _can_copy(self, hit: Hit) -> bool:
        """Whether there is room for the copies that it wants, beside what it reads."""
        copies = len(self.copies) + sum(found.partial for found in hit.found)
        return copies <= self._most_copies and all(
            not found.partial or pool.free_count > pool.idle_among(found.pages)
            for pool, found in zip(self.pools, hit.found, strict=True)
        )

    def free_beside(self, hit: Hit | None) -> list[int]:
        """Pages of each group that are free while a sequence reads those of the hit. What it only
        copies is free again after its first step."""
        if hit is None:
            return [pool.free_count for pool in self.pools]
        return [
            pool.free_count - pool.idle_among(found.pages[: -1 if found.partial else None])
            for pool, found in zip(self.pools, hit.found, strict=True)
        ]

    def take(self, caches: Sequence[Cache], hit: Hit) -> None:
        """Give a sequence that holds nothing what was found for it, just now."""
        for g, (pool, cache, found) in enumerate(zip(self.pools, caches, hit.found, strict=True)):
            for page in found.pages:
                pool.acquire(page)
            if isinstance(cache, StateSlot):
                (cache.read,) = found.pages
                continue
            cache.ids, cache.first = found.pages[:], found.first
            if found.partial:
                (copy,) = pool.allocate(1)
                self.copies.append((g, cache.ids[-1], copy))
                cache.ids[-1] = copy
            cache.room = (cache.first + len(cache.ids)) * self.groups[g].page_size

    def adopt(self, caches: Sequence[Cache], firsts: Sequence[int], counts: Sequence[int]) -> bool:
        """Give a sequence that holds nothing so many pages of each group, `firsts` being which of
        its pages the first is; False, and nothing is taken, if there are not as many."""
        if any(count > pool.free_count for count, pool in zip(counts, self.pools, strict=True)):
            return False
        wanted = zip(self.groups, self.pools, caches, firsts, counts, strict=True)
        for group, pool, cache, first, count in wanted:
            if isinstance(cache, StateSlot):
                (cache.read,) = pool.allocate(count)
                cache.write = cache.read
            else:
                cache.ids, cache.first = pool.allocate(count), first
                cache.room = (first + count) * group.page_size
        return True

    def clear_copies(self) -> None:
        """The copies are in a step."""
        for g, source, _ in self.copies:
            self.pools[g].free((source,))
        self.copies.clear()

    def insert(
        self, scope: Hashable, tokens: array[int], caches: Sequence[Cache], ended: bool
    ) -> None:
        """Keep what a sequence has computed, or will have before the next step. tokens: those; if
        they have not `ended`, only whole blocks are kept, and the state after them."""
        if not tokens or (len(tokens) < self.tree.block and not ended):
            return
        whole = len(tokens) % self.tree.block == 0 and not ended
        pages: list[tuple[int, Sequence[int]]] = []
        for pool, cache in zip(self.pools, caches, strict=True):
            if isinstance(cache, PageList):
                pages.append((cache.first, cache.ids))
            else:  # a state that is kept needs another slot for what follows
                pages.append((0, (cache.write,) if whole and pool.free_count else ()))
        for g, page in self.tree.insert(scope, tokens, pages, ended):
            self.pools[g].mark_cached(page)
            if isinstance(cache := caches[g], StateSlot):
                (cache.write,) = self.pools[g].allocate(1)

    def forget(self) -> None:
        """Nothing is kept any more but what sequences hold."""
        for pool in self.pools:
            pool.evict_idle()

    def check_integrity(self, sequences: Iterable[Sequence[Cache]]) -> None:
        """Raise AssertionError unless every page and slot is free or held by who reads it."""
        owned = list(sequences)
        for g, pool in enumerate(self.pools):
            sources = [source for group, source, _ in self.copies if group == g]
            pool.check_integrity([*sources, *(p for caches in owned for p in held(caches[g]))])
        self.tree.check_integrity(self.pools)


def held(cache: Cache) -> Sequence[int]:
    """Page or slot ids of a sequence in one group."""
    if isinstance(cache, PageList):
        return cache.ids
    return [slot for slot in dict.fromkeys((cache.read, cache.write)) if slot >= 0]
