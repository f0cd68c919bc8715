"""The page pool: which pages of the paged KV cache are free (Kwon et al., 2023, vLLM).

It knows page ids only, not their contents or their owners. A page given back may go to another
sequence at once, even while a step in flight still writes it for the old one: a device runs steps
in the order of their submission, so whoever is given the page writes and reads it later. Prefix
sharing will put reference counts here; callers already take and give back pages nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """Page ids 0 .. num_pages - 1, each free or owned by one sequence."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))

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

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back."""
        self._free.extend(pages)

    def check_integrity(self, owned: Iterable[int]) -> None:
        """Raise AssertionError unless free and `owned` pages are all pages, once each."""
        everything = sorted([*self._free, *owned])
        if everything != list(range(self.num_pages)):
            raise AssertionError(f"pages lost or owned twice: {everything} of {self.num_pages}")
