"""Cache manager: the pages and state slots of each sequence, in each cache group.

A paged group keeps all pages of a sequence, a window group those that a query still sees, a state
group one slot. This module knows the rules of the kinds, and shares cached prefixes; the scheduler
decides which sequence gets pages first.

`PagePool` has the pages, or slots, of one group (Kwon et al., 2023, vLLM). Pages are
reference-counted. A page with no readers is free; if the prefix cache still indexes it, it is
evicted last, LRU first. The pool knows ids only, not contents. A freed page may be reused at once
although a step in flight still writes it: a device runs steps in the order in which they were
planned, so the next owner writes later.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from mlcc.engine.batch.batch import Cache, Capacity, PageList, StateSlot, int32
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.radix_tree import Hit, RadixTree, first_seen


class PagePool:
    """Page ids 0 .. num_pages - 1.

    on_evict: called with a page whose contents are lost, as it is allocated.
    """

    def __init__(self, num_pages: int, on_evict: Callable[[int], None] | None = None) -> None:
        self.num_pages = num_pages
        self._on_evict = on_evict
        self.reset()

    def reset(self) -> None:
        """Free every page, whatever the state was, and drop what the prefix cache indexes."""
        num_pages = self.num_pages
        self._free = int32(range(num_pages - 1, -1, -1))
        self._cached: set[int] = set()
        """Pages that the prefix cache indexes, referenced or not."""
        self._evictable: OrderedDict[int, None] = OrderedDict()
        """Cached pages without readers, least recently used first."""
        self._extra_refs: dict[int, int] = {}
        """References of a page beyond the first."""

    @property
    def free_count(self) -> int:
        """Pages without readers."""
        return len(self._free) + len(self._evictable)

    @property
    def cached_count(self) -> int:
        """Free pages that the prefix cache indexes."""
        return len(self._evictable)

    def allocate(self, count: int) -> array[int]:
        """Allocate `count` pages, at most `free_count`; the most recently freed first."""
        if count > self.free_count:
            raise AssertionError(f"{count} pages asked of {self.free_count} free ones")
        if count <= 0:
            return int32()
        taken = self._free[: -count - 1 : -1]
        del self._free[-count:]
        while len(taken) < count:
            page, _ = self._evictable.popitem(last=False)
            self._cached.remove(page)
            if self._on_evict:
                self._on_evict(page)
            taken.append(page)
        return taken

    def acquire(self, page: int) -> None:
        """Add a reader to a cached page."""
        if page in self._evictable:
            del self._evictable[page]
        else:
            self._extra_refs[page] = self._extra_refs.get(page, 0) + 1

    def free(self, pages: Iterable[int]) -> None:
        """Drop a reader of each page. Pages that should be evicted last come last."""
        if not self._cached:
            self._free.extend(pages)
            return
        for page in pages:
            if more := self._extra_refs.get(page):
                if more > 1:
                    self._extra_refs[page] = more - 1
                else:
                    del self._extra_refs[page]
            elif page in self._cached:
                self._evictable[page] = None
            else:
                self._free.append(page)

    def mark_cached(self, page: int) -> None:
        """The prefix cache indexes a referenced page."""
        self._cached.add(page)

    def idle_among(self, pages: Iterable[int]) -> int:
        """Number of these pages without readers, among cached ones."""
        return sum(page in self._evictable for page in pages)

    def cached_pages(self) -> list[int]:
        """Pages that the prefix cache indexes, in order."""
        return sorted(self._cached)

    def evict_idle(self) -> None:
        """Evict all cached pages without readers."""
        while self._evictable:
            page, _ = self._evictable.popitem()
            self._cached.remove(page)
            self._free.append(page)
            if self._on_evict:
                self._on_evict(page)

    def check_integrity(self, owned: Iterable[int]) -> None:
        """Raise AssertionError unless each page is free, or referenced as often as `owned` lists
        it."""
        refs: dict[int, int] = {}
        for page in owned:
            refs[page] = refs.get(page, 0) + 1
        everything = sorted([*self._free, *self._evictable, *refs])
        if everything != list(range(self.num_pages)):
            raise AssertionError(f"pages lost or owned twice: {everything} of {self.num_pages}")
        more = {page: count - 1 for page, count in refs.items() if count > 1}
        if more != self._extra_refs:
            raise AssertionError(
                f"pages lost or owned twice: {more} are held, not {self._extra_refs}"
            )
        if not self._cached.issuperset({*self._evictable, *more}):
            raise AssertionError("pages without an index entry are shared")


def pages_for(tokens: int, group: CacheGroup) -> int:
    """Pages or slots that a sequence of `tokens` computed tokens needs, one token at a time."""
    if group.kind == "state":
        return 1
    size = group.page_size
    pages = -(-tokens // size)
    if group.window is not None:
        pages = min(pages, (group.window + size - 2) // size + 1)
    return pages


def longest_sequence(pools: Sequence[int], groups: Sequence[CacheGroup], context: int) -> int:
    """The longest sequence that fits into pools of these pages or slots, at most `context`
    tokens."""
    return min(
        _tokens_within(pages, group, context) for pages, group in zip(pools, groups, strict=True)
    )


def _tokens_within(pages: int, group: CacheGroup, context: int) -> int:
    """The longest sequence that fits into the pages or slots of one group."""
    if pages_for(context, group) <= pages:
        return context
    return min(context, pages * group.page_size) if group.has_pages else 0


def most_sequences(tokens: int, capacity: Capacity) -> int:
    """Sequences of `tokens` tokens that the pools hold at once."""
    pools = zip(capacity.pools, capacity.groups, strict=True)
    longest = max(tokens, 1)
    return min(p // g.most_pages(longest, capacity.max_step_tokens) for p, g in pools)


class CacheManager:
    """The pools of all cache groups of a model, and the radix tree over them."""

    def __init__(self, capacity: Capacity) -> None:
        self.groups = capacity.groups
        self.tree = RadixTree(self.groups)
        forget = [partial(self.tree.forget_page, g) for g in range(len(self.groups))]
        self.pools = tuple(map(PagePool, capacity.pools, forget))
        self.copies: list[tuple[int, int, int]] = []
        """(group, source, destination) copies for the next step; the sources are referenced until
        then."""
        self._most_copies = capacity.layout.max_copies
        self._sliding = [g for g, group in enumerate(self.groups) if group.window is not None]

    def reset(self) -> None:
        """Free everything and drop all cached prefixes, also from an inconsistent state: no
        sequence holds anything then."""
        self.copies.clear()
        self.tree.reset()
        for pool in self.pools:
            pool.reset()

    def empty(self) -> list[Cache]:
        """The caches of a sequence before its first token."""
        return [PageList() if group.has_pages else StateSlot() for group in self.groups]

    def slide(self, caches: Sequence[Cache], computed: int) -> None:
        """Free the pages that no query from position `computed` on can see."""
        for g in self._sliding:
            group, cache = self.groups[g], caches[g]
            assert isinstance(cache, PageList)
            seen = first_seen(computed, group) // group.page_size
            if seen > cache.first:
                self.pools[g].free(cache.ids[: seen - cache.first])
                del cache.ids[: seen - cache.first]
                cache.first = seen

    def claim(self, caches: Sequence[Cache], computed: int, want: int) -> int:
        """Allocate pages for up to `want` more tokens. Returns how many fit."""
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
        """Tokens, up to `want`, that fit into held and free pages."""
        for group, pool, cache in zip(self.groups, self.pools, caches, strict=True):
            if isinstance(cache, PageList):
                pages = cache.first + len(cache.ids) + pool.free_count
                want = min(want, pages * group.page_size - computed)
            elif cache.write < 0 and not pool.free_count:
                return 0
        return want

    def grow(self, caches: Sequence[Cache], tokens: int) -> None:
        """Allocate what a sequence of `tokens` tokens needs; `room` has checked that it is free."""
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
        """A step with these caches is planned: the next step reads the states that it writes."""
        for pool, cache in zip(self.pools, caches, strict=True):
            if isinstance(cache, StateSlot):
                if cache.read not in (-1, cache.write):
                    pool.free((cache.read,))
                cache.read = cache.write

    def fork(self, caches: Sequence[Cache]) -> bool:
        """Make the next step revertible: states are written to another slot than they are read
        from. Returns whether slots are free; if not, nothing changes."""
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
        """Free the pages after `computed` tokens, and before the first the state: their contents
        were rejected."""
        for group, pool, cache in zip(self.groups, self.pools, caches, strict=True):
            if isinstance(cache, StateSlot):
                if not computed and cache.write >= 0:
                    pool.free((cache.write,))
                    cache.write = -1
            else:
                keep = -(-computed // group.page_size) - cache.first
                if keep < len(cache.ids):
                    pool.free(reversed(cache.ids[keep:]))
                    del cache.ids[keep:]
                    cache.room = (cache.first + keep) * group.page_size

    def release(self, caches: Sequence[Cache]) -> None:
        """Free everything."""
        for pool, cache in zip(self.pools, caches, strict=True):
            pool.free(reversed(held(cache)))

    def missing(self, caches: Sequence[Cache], tokens: int) -> list[int]:
        """Pages or slots of each group that a sequence of `tokens` tokens still needs."""
        return [
            max(
                0,
                pages_for(tokens, group)
                - (len(cache.ids) if isinstance(cache, PageList) else cache.write >= 0),
            )
            for group, cache in zip(self.groups, caches, strict=True)
        ]

    def find(self, scope: Hashable, tokens: array[int]) -> Hit | None:
        """The cached prefix of `tokens` that can be read now."""
        hit = self.tree.find(scope, tokens)
        if hit is None or self._can_copy(hit):
            return hit
        return self.tree.find(scope, tokens, parts=False)

    def _can_copy(self, hit: Hit) -> bool:
        """Whether the copies that the hit needs fit beside the pages that it reads."""
        copies = len(self.copies) + sum(found.partial for found in hit.found)
        return copies <= self._most_copies and all(
            not found.partial or pool.free_count > pool.idle_among(found.pages)
            for pool, found in zip(self.pools, hit.found, strict=True)
        )

    def free_beside(self, hit: Hit | None) -> list[int]:
        """Free pages of each group while a sequence reads those of the hit. Pages that it only
        copies are free again after its first step."""
        if hit is None:
            return [pool.free_count for pool in self.pools]
        return [
            pool.free_count - pool.idle_among(found.pages[: -1 if found.partial else None])
            for pool, found in zip(self.pools, hit.found, strict=True)
        ]

    def take(self, caches: Sequence[Cache], hit: Hit) -> None:
        """Attach a hit, found just now, to a sequence that holds nothing."""
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
        """Allocate `counts` pages of each group for a sequence that holds nothing. firsts: page
        number of the first. Returns False, and allocates nothing, if there are not enough."""
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
        """Insert computed tokens of a sequence into the radix tree. Unless they have `ended`, only
        whole blocks are inserted, and the state after them."""
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
        """Drop all cached prefixes that no sequence holds."""
        for pool in self.pools:
            pool.evict_idle()

    def check_integrity(self, sequences: Iterable[Sequence[Cache]]) -> None:
        """Raise AssertionError unless every page and slot is free or held by the sequences that
        read it."""
        owned = list(sequences)
        for g, pool in enumerate(self.pools):
            sources = [source for group, source, _ in self.copies if group == g]
            pool.check_integrity([*sources, *(p for caches in owned for p in held(caches[g]))])
        self.tree.check_integrity([pool.cached_pages() for pool in self.pools])


def held(cache: Cache) -> Sequence[int]:
    """Page or slot ids of a sequence in one group."""
    if isinstance(cache, PageList):
        return cache.ids
    return [slot for slot in dict.fromkeys((cache.read, cache.write)) if slot >= 0]
