"""A pool of pages or slots: which of a cache group are free, and which hold something that may be
wanted again (Kwon et al., 2023, vLLM).

It knows ids only, not their contents. A page has as many holders as there are sequences that read
it; without one it is free, also if the prefix cache keeps what it holds: then it is given out last,
the one that was not held for the longest time first. What is given back may be given out at once,
although a step in flight may still write it: a device runs steps in the order in which they were
planned, so whoever gets it next writes later.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable

from mlcc.engine.batch.batch import int32


class PagePool:
    """Page ids 0 .. num_pages - 1, each free or held by sequences.

    forget: called with a page whose contents are lost, as it is given out.
    """

    def __init__(self, num_pages: int, on_evict: Callable[[int], None] | None = None) -> None:
        self.num_pages = num_pages
        self._on_evict = on_evict
        self._free = int32(range(num_pages - 1, -1, -1))
        self._cached: set[int] = set()
        """Pages whose contents may be wanted again, held or not."""
        self._evictable: OrderedDict[int, None] = OrderedDict()
        """Those of them that nobody holds, the longest unused first."""
        self._extra_refs: dict[int, int] = {}
        """Holders of a page beyond the first."""

    @property
    def free_count(self) -> int:
        """Pages that nobody holds."""
        return len(self._free) + len(self._evictable)

    @property
    def cached_count(self) -> int:
        """Free pages whose contents may be wanted again."""
        return len(self._evictable)

    def allocate(self, count: int) -> array[int]:
        """Take `count` pages, at most `free_count`, the most recently freed first."""
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
        """One sequence more reads a page that is kept."""
        if page in self._evictable:
            del self._evictable[page]
        else:
            self._extra_refs[page] = self._extra_refs.get(page, 0) + 1

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back; those that may be wanted again the longest come last."""
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
        """What a held page contains may be wanted again."""
        self._cached.add(page)

    def idle_among(self, pages: Iterable[int]) -> int:
        """How many of them nobody holds."""
        return sum(page in self._evictable for page in pages)

    def cached_pages(self) -> list[int]:
        """Those of which `mark_cached` was said and that were not given out since, in order."""
        return sorted(self._cached)

    def evict_idle(self) -> None:
        """What is kept of pages that nobody holds is not wanted any more."""
        while self._evictable:
            page, _ = self._evictable.popitem()
            self._cached.remove(page)
            self._free.append(page)
            if self._on_evict:
                self._on_evict(page)

    def check_integrity(self, owned: Iterable[int]) -> None:
        """Raise AssertionError unless each page is free, or held as often as `owned` has it."""
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
            raise AssertionError("pages are shared whose contents nobody keeps")
