"""Stores responses of /v1/responses, each as one text, and evicts the oldest when a quota is full.

Each tenant (API key) has a quota of its own, and sees and evicts its own responses only. This is
the store in memory; a server can store them in a file (`mlcc.server.response_store`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from mlcc.util.fast_dataclass import fast_dataclass

MOST_BYTES = 16 << 20
MOST_ANSWERS = 1000
"""Quotas of each tenant: bytes of UTF-8, and number of responses."""


class ResponseStore(Protocol):
    """Texts by tenant and id. A text larger than a tenant's quota is not stored."""

    async def put(self, tenant: str, name: str, text: str) -> None:
        """Store a text; the tenant's oldest ones are evicted."""
        ...

    async def get(self, tenant: str, name: str) -> str | None:
        """The text, if it is stored for this tenant."""
        ...

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a text; returns whether it existed."""
        ...


@fast_dataclass(frozen=True)
class Share:
    """The quota of a tenant."""

    bytes: int = MOST_BYTES
    answers: int = MOST_ANSWERS


class MemoryResponseStore:
    """Stores responses in memory, until the process ends."""

    def __init__(self, share: Share | None = None) -> None:
        self._share = share or Share()
        self._tenants: dict[str, OrderedDict[str, bytes]] = {}
        self._sizes: dict[str, int] = {}

    async def put(self, tenant: str, name: str, text: str) -> None:
        """Store a text; the tenant's oldest ones are evicted."""
        await self.delete(tenant, name)
        if len(data := text.encode()) > self._share.bytes:
            return
        mine = self._tenants.setdefault(tenant, OrderedDict())
        mine[name] = data
        self._sizes[tenant] = self._sizes.get(tenant, 0) + len(data)
        while self._sizes[tenant] > self._share.bytes or len(mine) > self._share.answers:
            await self.delete(tenant, next(iter(mine)))

    async def get(self, tenant: str, name: str) -> str | None:
        """The text, if it is stored for this tenant."""
        mine = self._tenants.get(tenant)
        data = mine.get(name) if mine else None
        return None if data is None else data.decode()

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a text; returns whether it existed."""
        mine = self._tenants.get(tenant)
        if not mine or (data := mine.pop(name, None)) is None:
            return False
        self._sizes[tenant] -= len(data)
        return True
