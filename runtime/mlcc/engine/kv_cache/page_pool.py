"""Page pool: free and referenced pages, or slots, of a cache group (Kwon et al., 2023, vLLM).

Pages are reference-counted. A page with no readers is free; if the prefix cache still indexes it,
it is evicted last, LRU first. The pool knows ids only, not contents. A freed page may be reused at
once although a step in flight still writes it: a device runs steps in the order in which they were
planned, so the next owner writes later.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable

from mlcc.engine.batch.batch import int32


class PagePool:
    """Page ids 0 .. num_pages - 1.

    on_evict: called with a page whose contents are lost, as it is allocated.
    """

    def __init__(self, num_pages: int, on_evict: Callable[[int], None] | None = None) -> None:
        self.num_pages = num_pages
        self._on_evict = on_evict
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
