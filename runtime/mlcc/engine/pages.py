"""The page pool: which pages of the paged KV cache are free (Kwon et al., 2023, vLLM).

It knows page ids only, not their contents or their owners. A page given back while a step in flight
may still write it is *retired*: it becomes free when that step is committed. Prefix sharing will
put reference counts here; callers already take and give back pages nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """Page ids 0 .. num_pages - 1, each free, retired or owned by one sequence."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.retired_count = 0
        """Pages that become free at a commit to come."""
        self._free = list(range(num_pages - 1, -1, -1))
        self._retired: dict[int, list[int]] = {}
        self._committed = -1

    @property
    def free_count(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages, at most `free_count`, the most recently freed first."""
        if count <= 0:
            return []
        if count > len(self._free):
            raise AssertionError(f"{count} pages asked of {len(self._free)} free ones")
        taken = self._free[: -count - 1 : -1]
        del self._free[-count:]
        return taken

    def retire(self, pages: Iterable[int], last_step: int) -> None:
        """Give pages back; `last_step` is the last planned step that may write them."""
        if last_step <= self._committed:
            self._free.extend(pages)
            return
        waiting = self._retired.setdefault(last_step, [])
        before = len(waiting)
        waiting.extend(pages)
        self.retired_count += len(waiting) - before

    def commit(self, step: int) -> None:
        """The device is done with `step`, and so with all before it."""
        self._committed = step
        pages = self._retired.pop(step, ())
        self.retired_count -= len(pages)
        self._free.extend(pages)

    def check_integrity(self, owned: Iterable[int]) -> None:
        """Raise AssertionError unless free, retired and `owned` pages are all pages, once each."""
        retired = [page for pages in self._retired.values() for page in pages]
        everything = sorted([*self._free, *retired, *owned])
        if everything != list(range(self.num_pages)):
            raise AssertionError(f"pages lost or owned twice: {everything} of {self.num_pages}")
        if len(retired) != self.retired_count:
            raise AssertionError(f"{len(retired)} retired pages, counted {self.retired_count}")
