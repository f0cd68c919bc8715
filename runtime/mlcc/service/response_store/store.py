"""Stores responses of /v1/responses, each with the turn that it ends, and evicts the least recently
used when a quota is full.

A turn names the one before it, so a conversation is stored once. Continuing a conversation makes
all of its turns recently used. A deleted turn that a later one continues is hidden, and removed
with the last of those. Each tenant (API key) has a quota of its own, and sees and evicts its own
responses only.

This is the store in memory; a server can store them in a file (`mlcc.server.response_store`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mlcc.util.fast_dataclass import fast_dataclass

MOST_BYTES = 16 << 20
MOST_ANSWERS = 1000
"""Quotas of each tenant: bytes of UTF-8, and number of responses."""
MOST_TURN_BYTES = 8 << 20
"""Bytes of one response with its turn. A larger one is not stored."""


class Turn(NamedTuple):
    """A response without the turns before it, as JSON texts."""

    response: str
    """The response without its output."""
    items: str
    """An object with the items of `input` and of `output`."""
    previous: str | None = None
    """Id of the response before it."""

    @property
    def size(self) -> int:
        """Bytes of UTF-8."""
        return len(self.response.encode()) + len(self.items.encode())


class Chain(NamedTuple):
    """The turns of a conversation, the oldest first."""

    names: list[str]
    bytes: int
    """Bytes of their items."""
    complete: bool
    """Whether the first turn has none before it; else that was evicted or never stored."""


class ResponseStore(Protocol):
    """Turns by tenant and id. A turn that is too large is not stored."""

    async def put(self, tenant: str, name: str, turn: Turn) -> None:
        """Store a turn; the tenant's least recently used ones are evicted."""
        ...

    async def get(self, tenant: str, name: str) -> Turn | None:
        """The turn, if it is stored for this tenant and not deleted."""
        ...

    async def chain(self, tenant: str, name: str) -> Chain:
        """The conversation that ends with this turn, now recently used; no names if it is not
        stored."""
        ...

    async def items(self, tenant: str, name: str) -> str | None:
        """The items of a turn of a chain."""
        ...

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a turn; returns whether it existed."""
        ...


@fast_dataclass(frozen=True)
class Share:
    """The quota of a tenant."""

    bytes: int = MOST_BYTES
    answers: int = MOST_ANSWERS


@dataclass(slots=True)
class _Entry:
    turn: Turn
    size: int
    next: int = 0
    """Stored turns that continue this one."""
    hidden: bool = False
    """Whether it was deleted."""


class _Tenant:
    """The turns of one tenant, the least recently used first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.bytes = 0

    def add(self, name: str, turn: Turn) -> None:
        self.entries[name] = entry = _Entry(turn, turn.size)
        self.bytes += entry.size
        if before := self.entries.get(turn.previous or ""):
            before.next += 1

    def remove(self, name: str) -> None:
        """Remove a turn, and hidden ones before it that nothing continues any more."""
        entry = self.entries.pop(name, None)
        while entry is not None:
            self.bytes -= entry.size
            previous = entry.turn.previous or ""
            entry = self.entries.get(previous)
            if entry is not None:
                entry.next -= 1
                entry = None if entry.next or not entry.hidden else self.entries.pop(previous)


class MemoryResponseStore:
    """Stores responses in memory, until the process ends."""

    def __init__(self, share: Share | None = None) -> None:
        self._share = share or Share()
        self._tenants: dict[str, _Tenant] = {}

    async def put(self, tenant: str, name: str, turn: Turn) -> None:
        """Store a turn; the tenant's least recently used ones are evicted."""
        mine = self._tenants.setdefault(tenant, _Tenant())
        mine.remove(name)
        if turn.size > min(self._share.bytes, MOST_TURN_BYTES):
            return
        mine.add(name, turn)
        while mine.bytes > self._share.bytes or len(mine.entries) > self._share.answers:
            mine.remove(next(iter(mine.entries)))

    async def get(self, tenant: str, name: str) -> Turn | None:
        """The turn, if it is stored for this tenant and not deleted."""
        entry = self._entries(tenant).get(name)
        return None if entry is None or entry.hidden else entry.turn

    async def chain(self, tenant: str, name: str) -> Chain:
        """The conversation that ends with this turn, now recently used."""
        entries, names, size = self._entries(tenant), list[str](), 0
        if (entry := entries.get(name)) is None or entry.hidden:
            return Chain([], 0, False)
        at: str | None = name
        while at is not None and at in entries:
            names.append(at)
            turn = entries[at].turn
            size, at = size + len(turn.items.encode()), turn.previous
        names.reverse()
        for each in names:
            entries.move_to_end(each)
        return Chain(names, size, at is None)

    async def items(self, tenant: str, name: str) -> str | None:
        """The items of a turn of a chain."""
        entry = self._entries(tenant).get(name)
        return None if entry is None else entry.turn.items

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a turn; returns whether it existed."""
        entry = self._entries(tenant).get(name)
        if entry is None or entry.hidden:
            return False
        if entry.next:
            entry.hidden = True
        else:
            self._tenants[tenant].remove(name)
        return True

    def _entries(self, tenant: str) -> OrderedDict[str, _Entry]:
        mine = self._tenants.get(tenant)
        return OrderedDict() if mine is None else mine.entries
