"""Caches of the toy executor: tokens in pages, or a state that is a hash of all tokens so far.

Each slot also holds its position and a digest of all tokens before it, which tell stale contents
from the sequence's own. A read of foreign contents raises BadBatchError.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct

from mlcc.device.check_batch import Span, require, slot_of
from mlcc.engine.batch.batch import PageList, StateSlot
from mlcc.engine.batch.random import mix64
from mlcc.engine.batch.tables import CacheGroup

_MASK = (1 << 64) - 1
_SLOT, _STATE = Struct("<iiQ"), Struct("<Qq")
"""As they move: token, position and chain; hash and tokens."""


class TokenPages:
    """A paged or a window group: tokens in pages."""

    def __init__(self, group: CacheGroup, pages: int) -> None:
        self._group = group
        slots = pages * group.page_size
        self._tokens = array("i", [0]) * slots
        self._positions = array("i", [-1]) * slots
        """Position of the token in each slot; -1 = never written."""
        self._chains = [0] * slots
        """Digest of the token in each slot and of all before it."""

    def copy(self, source: int, to: int) -> None:
        size = self._group.page_size
        for i in range(size):
            for contents in (self._tokens, self._positions, self._chains):
                contents[to * size + i] = contents[source * size + i]

    @property
    def page_bytes(self) -> int:
        return _SLOT.size * self._group.page_size

    def read(self, page: int) -> bytes:
        size = self._group.page_size
        slots = range(page * size, (page + 1) * size)
        contents = self._tokens, self._positions, self._chains
        return b"".join(_SLOT.pack(*(each[i] for each in contents)) for i in slots)

    def write(self, page: int, data: bytes) -> None:
        for i, slot in enumerate(_SLOT.iter_unpack(data), page * self._group.page_size):
            self._tokens[i], self._positions[i], self._chains[i] = slot

    def run(self, span: Span, g: int, tokens: Sequence[int], adapter: int) -> list[list[int]]:
        """Store the new tokens; returns what the query at each of them sees. Tokens stored with
        another adapter count as another sequence's."""
        cache = span.caches[g]
        assert isinstance(cache, PageList)
        self._append(span, cache, tokens, adapter)
        low, visible = self._read(span, cache, adapter)
        window = self._group.window
        views = []
        for position in range(span.start, span.end):
            first = 0 if window is None else max(0, position - window + 1)
            views.append(visible[first - low : position + 1 - low])
        return views

    def _append(self, span: Span, cache: PageList, tokens: Sequence[int], adapter: int) -> None:
        chain = adapter
        if span.start and self._group.window != 1:
            chain = self._chains[self._slot(cache, span.start - 1)]
        for position, token in enumerate(tokens, span.start):
            slot = self._slot(cache, position)
            chain = chain_of(0 if self._group.window == 1 else chain, position, token)
            self._tokens[slot], self._positions[slot] = token, position
            self._chains[slot] = chain

    def _read(self, span: Span, cache: PageList, adapter: int) -> tuple[int, list[int]]:
        """(first position, the tokens from there) that any query of the step sees."""
        window = self._group.window
        low = 0 if window is None else max(0, span.start - window + 1)
        visible: list[int] = []
        chain = adapter
        for position in range(low, span.end):
            slot = self._slot(cache, position)
            token = self._tokens[slot]
            held = self._positions[slot]
            require(held >= 0, f"position {position} reads slot {slot}, which was never written")
            require(held == position, f"position {position} reads slot {slot}: position {held}")
            expected = chain_of(0 if window == 1 else chain, position, token)
            chain = self._chains[slot]
            linked = chain == expected or (position == low and low > 0)
            require(linked, f"position {position} reads slot {slot}: another sequence's")
            visible.append(token)
        return low, visible

    def _slot(self, cache: PageList, position: int) -> int:
        return slot_of(cache, position, self._group.page_size)


class HashStates:
    """A state group: in each slot a hash of all tokens so far, and their number."""

    def __init__(self, slots: int) -> None:
        self._states = [(0, -1)] * slots
        """(hash, tokens); -1 = never written."""

    def copy(self, source: int, to: int) -> None:
        self._states[to] = self._states[source]

    page_bytes = _STATE.size

    def read(self, slot: int) -> bytes:
        return _STATE.pack(*self._states[slot])

    def write(self, slot: int, data: bytes) -> None:
        state, count = _STATE.unpack(data)
        self._states[slot] = (state, count)

    def run(self, span: Span, g: int, tokens: Sequence[int], adapter: int) -> list[list[int]]:
        """Advance the state; returns what the query at each token sees."""
        cache = span.caches[g]
        assert isinstance(cache, StateSlot)
        state, count = (0, 0) if cache.read < 0 else self._states[cache.read]
        require(count == span.start, f"slot {cache.read} is at {count}, not {span.start}")
        views = []
        for position, token in enumerate(tokens, span.start):
            state = chain_of(state, position, token)
            views.append(words(state))
        self._states[cache.write] = (state, span.end)
        return views


def words(state: int) -> list[int]:
    """A hash in four words of 16 bits."""
    return [state >> shift & 0xFFFF for shift in (48, 32, 16, 0)]


def chain_of(previous: int, position: int, token: int) -> int:
    """Digest of a token at its position and, through the previous digest, of all tokens before."""
    return mix64((previous * 3 + (position << 32) + token + 1) & _MASK)
