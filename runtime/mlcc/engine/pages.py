"""A pool of pages or slots: which of a cache group are free (Kwon et al., 2023, vLLM).

It knows ids only, not their contents or their owners. What is given back may be given out at once,
although a step in flight may still write it: a device runs steps in the order in which they were
planned, so whoever gets it next writes later. Prefix sharing will put reference counts here;
callers already take and give back pages nowhere else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from mlcc.engine.batch import int32


class PagePool:
    """Page ids 0 .. num_pages - 1, each free or owned by one sequence."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = int32(range(num_pages - 1, -1, -1))

    @property
    def free_count(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> array[int]:
        """Take `count` pages, at most `free_count`, the most recently freed first."""
        if count > len(self._free):
            raise AssertionError(f"{count} pages asked of {len(self._free)} free ones")
        if count <= 0:
            return int32()
        taken = self._free[: -count - 1 : -1]
        del self._free[-count:]
        return taken

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back."""
        self._free.extend(pages)

    def check_integrity(self, owned: Iterable[int]) -> None:
        """Raise AssertionError unless free and `owned` pages are all pages, once each."""
        everything = sorted([*self._free, *owned])
        if everything != list(range(self.num_pages)):
            raise AssertionError(f"pages lost or owned twice: {everything} of {self.num_pages}")
