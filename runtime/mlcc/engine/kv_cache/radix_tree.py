"""Radix tree: the prefix cache (SGLang's RadixAttention, Zheng et al., 2024).

Edges are blocks: as many tokens as fill whole pages in every cache group. A block names the pages
that hold it. The tree holds no references: a page without readers is free, and is allocated least
recently used first (`PagePool`), which evicts it from the tree. A sequence frees its pages from
the last to the first, so branches are evicted from their leaves.

A hit must be readable in all groups: pages for all its tokens, in a window group for what its next
query sees, in a state group the state after exactly that many tokens. It may end within a block;
then the last page, which the sequence will write, is copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import lcm

from mlcc.engine.batch.tables import CacheGroup

NO_PAGE = -1
_STATE_BLOCK = 64
"""Tokens of a block if no group has pages."""
_LOOKED_AT = 16
"""Child blocks that are compared token by token, the newest first."""


@dataclass(eq=False, slots=True)
class Block:
    """A block of tokens after its parent's, and the pages that hold them."""

    parent: Block | None
    key: Hashable
    """Its tokens, as bytes of int32; in the first level of the tree, the scope."""
    pages: list[list[int]]
    """Of each group, by position; of a state group, the slot of the state after the block."""
    children: dict[Hashable, Block] = field(default_factory=dict)

    @property
    def dead(self) -> bool:
        """Whether nothing can be found here any more."""
        return not self.children and all(p == NO_PAGE for pages in self.pages for p in pages)


@dataclass(frozen=True, slots=True)
class Found:
    """A group's part of a hit."""

    pages: array[int]
    """Pages to read, in a window group from the first visible one on; in a state group the slot."""
    first: int = 0
    """Page number of the first."""
    is_pages: bool = True
    partial: bool = False
    """The hit ends within the last page. The sequence will write that page, and needs a copy."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A cached prefix."""

    tokens: int
    found: tuple[Found, ...]
    """One entry per cache group."""

    @property
    def reused_pages(self) -> list[int]:
        """Pages of each group that the sequence need not allocate: none of states, which it writes
        to another slot; the copy of a partial page counts as allocated."""
        return [len(found.pages) - found.partial if found.is_pages else 0 for found in self.found]


class RadixTree:
    """Which pages hold which tokens. Scopes share nothing."""

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self.groups = groups
        sizes = {group.page_size for group in groups if group.has_pages}
        self.block = lcm(*sizes) if sizes else _STATE_BLOCK
        """Tokens of a block."""
        self.has_states = any(not group.has_pages for group in groups)
        # A page has one name: where a block has several of a group, a part of it has none.
        self._has_parts = len(sizes) == 1 and not self.has_states
        self._top = Block(None, None, [])
        self._of_page: list[dict[int, Block]] = [{} for _ in groups]

    def reset(self) -> None:
        """Drop everything. Blocks that others still reference become dead."""
        for block in [block for blocks in self._of_page for block in blocks.values()]:
            block.children.clear()
            block.pages = [[NO_PAGE] * len(pages) for pages in block.pages]
        self._top = Block(None, None, [])
        self._of_page = [{} for _ in self.groups]

    def find(self, scope: Hashable, tokens: array[int], parts: bool = True) -> Hit | None:
        """The longest readable prefix of `tokens`, but never all: one is left to compute.

        parts: it may end within a page, which must then be copied.
        """
        block = self._top.children.get(scope)
        if block is None:
            return None
        most, size, best = len(tokens) - 1, self.block, 0
        path: list[Block] = []
        reader = _Reader(self.groups)
        for start in range(0, most - size + 1, size):
            child = block.children.get(tokens[start : start + size].tobytes())
            if child is None:
                break
            block = child
            path.append(block)
            reader.read(block, size)
            if reader.readable(start + size):
                best = start + size
        if parts and self._has_parts:
            start = size * len(path)
            part, count = _most_alike(block, tokens[start : min(start + size, most)])
            if part is not None:
                reader.read(part, count)
                if reader.readable(start + count):
                    return self._hit([*path, part], start + count)
        return self._hit(path, best) if best else None

    def insert(
        self,
        scope: Hashable,
        tokens: array[int],
        pages: Sequence[tuple[int, Sequence[int]]],
        ended: bool,
    ) -> list[tuple[int, int]]:
        """Insert whole blocks of `tokens`, and the rest of the last one if they have `ended`.

        pages: of each group the number of the first page that is still there, and the pages from it
        on; of a state group its slot, if that holds the state after `tokens`, which are whole
        blocks then. Returns (group, page) of newly indexed pages.
        """
        block = self._child(self._top, scope, 0)
        named: list[tuple[int, int]] = []
        for start in range(0, len(tokens), self.block):
            part = tokens[start : start + self.block]
            if len(part) < self.block and not ended:
                break
            block = self._child(block, part.tobytes(), len(part))
            for g, (group, (first, ids)) in enumerate(zip(self.groups, pages, strict=True)):
                if group.has_pages:
                    at = start // group.page_size - first
                    named += self._assign(block, g, at, ids)
                elif ids and start + self.block == len(tokens):
                    named += self._assign(block, g, 0, ids)
        self._prune(block)
        return named

    def root(self, scope: Hashable) -> Block | None:
        """Root block of a scope, if there is one."""
        return self._top.children.get(scope)

    def scopes(self) -> Iterable[tuple[Hashable, Block]]:
        """All scopes and their root blocks."""
        return self._top.children.items()

    def forget_page(self, g: int, page: int) -> None:
        """Remove a page from the index: the pool allocated it anew."""
        block = self._of_page[g].pop(page)
        pages = block.pages[g]
        pages[pages.index(page)] = NO_PAGE
        self._prune(block)

    def check_integrity(self, cached: Sequence[Sequence[int]]) -> None:
        """Raise AssertionError unless it indexes exactly the pages that the pool of each group
        marks as cached, once each. cached: those pages, in order."""
        found: list[list[int]] = [[] for _ in self.groups]
        todo = [*self._top.children.values()]
        while todo:
            block = todo.pop()
            if block.dead:
                raise AssertionError(f"a dead block is in the tree: {block.key!r}")
            todo += block.children.values()
            for g, pages in enumerate(block.pages):
                named = [page for page in pages if page != NO_PAGE]
                found[g] += named
                if any(self._of_page[g].get(page) is not block for page in named):
                    raise AssertionError(f"pages {named} are another block's")
        for names, marked, blocks in zip(found, cached, self._of_page, strict=True):
            if not sorted(names) == sorted(blocks) == marked:
                raise AssertionError(f"named {sorted(names)}, cached {marked}")

    def _child(self, block: Block, key: Hashable, tokens: int) -> Block:
        child = block.children.get(key)
        if child is None:
            counts = [_entries(tokens, group) for group in self.groups]
            pages = [[NO_PAGE] * count for count in counts]
            child = block.children[key] = Block(block, key, pages)
        return child

    def _assign(self, block: Block, g: int, at: int, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Assign pages to a block, ids[at], ids[at + 1] ..., where it lacks them."""
        pages, blocks, named = block.pages[g], self._of_page[g], []
        for i in range(max(0, -at), len(pages)):
            page = ids[at + i]
            if pages[i] != NO_PAGE:
                continue
            if (other := blocks.get(page)) is None:
                named.append((g, page))
            elif _begins(other, block):  # that it has since been written on in
                other.pages[g][i] = NO_PAGE
                self._prune(other)
            else:
                continue
            pages[i] = page
            blocks[page] = block
        return named

    def _hit(self, path: Sequence[Block], length: int) -> Hit:
        found = []
        for g, group in enumerate(self.groups):
            if not group.has_pages:
                slot = path[length // self.block - 1].pages[g]
                found.append(Found(array("i", slot), is_pages=False))
                continue
            size, per_block = group.page_size, self.block // group.page_size
            first = first_seen(length, group) // size
            hashes_of = range(first, -(-length // size))
            pages = array("i", [path[n // per_block].pages[g][n % per_block] for n in hashes_of])
            found.append(Found(pages, first, partial=length % size > 0))
        return Hit(length, tuple(found))

    def _prune(self, block: Block) -> None:
        """Remove dead blocks, from a leaf up."""
        while block.parent is not None and block.dead:
            block.parent.children.pop(block.key, None)
            block = block.parent


class _Reader:
    """Tracks evicted pages on a walk down the tree."""

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self._groups = groups
        self._read = [0] * len(groups)
        """Pages so far."""
        self._lost = [-1] * len(groups)
        """Number of the last evicted page; of a state group, 0 = the state here is evicted."""

    def read(self, block: Block, tokens: int) -> None:
        """Walk `tokens` tokens into a block."""
        for g, group in enumerate(self._groups):
            if not group.has_pages:
                self._lost[g] = 0 if block.pages[g][0] == NO_PAGE else -1
                continue
            count = _entries(tokens, group)
            for number, page in enumerate(block.pages[g][:count], self._read[g]):
                if page == NO_PAGE:
                    self._lost[g] = number
            self._read[g] += count

    def readable(self, length: int) -> bool:
        """Whether everything is there that a query at position `length` sees."""
        return all(
            lost < (first_seen(length, group) // group.page_size if group.has_pages else 0)
            for lost, group in zip(self._lost, self._groups, strict=True)
        )


def first_seen(length: int, group: CacheGroup) -> int:
    """The first position that the query at position `length` sees."""
    return 0 if group.window is None else max(0, length - group.window + 1)


def _begins(shorter: Block, block: Block) -> bool:
    """Whether a block begins with the tokens of another, under the same parent."""
    keys = shorter.key, block.key
    assert isinstance(keys[0], bytes)
    assert isinstance(keys[1], bytes)
    return shorter.parent is block.parent and keys[1].startswith(keys[0])


def _entries(tokens: int, group: CacheGroup) -> int:
    """Pages of `tokens` tokens, or the one slot."""
    return -(-tokens // group.page_size) if group.has_pages else min(tokens, 1)


def _most_alike(block: Block, tokens: array[int]) -> tuple[Block | None, int]:
    """The child with the longest common prefix with `tokens`, and its length."""
    best, most = None, 0
    for child in islice(reversed(block.children.values()), _LOOKED_AT):
        assert isinstance(child.key, bytes)
        count = 0
        for mine, other in zip(memoryview(child.key).cast("i"), tokens):  # noqa: B905
            if mine != other:
                break
            count += 1
        if count > most:
            best, most = child, count
    return best, most
