"""Response store in a SQLite file: stored responses of /v1/responses survive a restart.

All database access runs in one thread beside the event loop. Each tenant has a quota, counted in
bytes before compression, and responses expire after the time that OpenAI keeps them, since they
were last used. Keys of `--api-key` are known to the server by number only, and numbers change
between starts; the file stores a scrypt hash of the key instead.

The file and those that SQLite has beside it contain conversations: they are created readable by
their owner only, and a file that others may read or that is a link is refused.
"""

from __future__ import annotations

import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mlcc.errors import MlccError
from mlcc.server.auth.owners import OWNER_TABLE, Owners
from mlcc.service.response_store.store import MOST_TURN_BYTES, Chain, Share, Turn
from mlcc.util.private_database import DatabaseThread, open_private

log = logging.getLogger("mlcc.server")
SHARE = Share(256 << 20, 10_000)
"""Quota of each tenant."""
MAX_AGE_S = 30 * 24 * 3600.0
_VERSION = 2
"""Schema version of these files."""
_TABLES = f"""
{OWNER_TABLE}
CREATE TABLE IF NOT EXISTS turns (
    tenant TEXT NOT NULL, name TEXT NOT NULL, used REAL NOT NULL, previous TEXT,
    hidden INTEGER NOT NULL, size INTEGER NOT NULL, items_size INTEGER NOT NULL,
    response BLOB NOT NULL, items BLOB NOT NULL,
    PRIMARY KEY (tenant, name));
CREATE INDEX IF NOT EXISTS by_use ON turns (tenant, used);
CREATE INDEX IF NOT EXISTS by_previous ON turns (tenant, previous);
"""
T = TypeVar("T")


class SqliteResponseStore:
    """Implements `mlcc.service.response_store.store`'s port. Raises MlccError for a file that is no
    response store. A failed write is logged, and the response is sent all the same."""

    def __init__(
        self,
        path: Path,
        api_keys: Sequence[str] = (),
        share: Share = SHARE,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._share, self._now = path, share, now
        try:
            self._thread = DatabaseThread(
                "mlcc-response-store", lambda: open_private(path, _VERSION, _TABLES)
            )
            self._db = self._thread.db
            self._owners = self._thread.now(Owners, self._db, api_keys)
        except (sqlite3.Error, OSError) as error:
            raise MlccError(
                f"answers cannot be kept in {path} ({error}); give --store another file"
            ) from None

    async def put(self, tenant: str, name: str, turn: Turn) -> None:
        """Store a turn; evicts the tenant's least recently used ones if needed."""
        if turn.size > min(self._share.bytes, MOST_TURN_BYTES):
            return
        try:
            await self._thread.run(self._put, self._owners.of(tenant), name, turn)
        except sqlite3.Error as error:
            log.warning("an answer is not kept in %s: %s", self._path, error)

    async def get(self, tenant: str, name: str) -> Turn | None:
        """Return a tenant's stored turn; None = there is none. Raises MlccError if the file cannot
        be read."""
        return await self._read(self._get, tenant, name)

    async def chain(self, tenant: str, name: str) -> Chain:
        """The conversation that ends with this turn, now recently used. Raises as `get`."""
        return await self._read(self._chain, tenant, name)

    async def items(self, tenant: str, name: str) -> str | None:
        """The items of a turn of a chain. Raises as `get`."""
        return await self._read(self._items, tenant, name)

    async def delete(self, tenant: str, name: str) -> bool:
        """Return whether it existed. Raises as `get`."""
        return await self._read(self._delete, tenant, name)

    def close(self) -> None:
        """Flush and close the file. Idempotent."""
        self._thread.close()

    async def _read(self, work: Callable[[str, str], T], tenant: str, name: str) -> T:
        try:
            return await self._thread.run(work, self._owners.of(tenant), name)
        except (sqlite3.Error, zlib.error, ValueError) as error:
            raise self._failed(error) from None

    def _put(self, owner: str, name: str, turn: Turn) -> None:
        response, items = turn.response.encode(), turn.items.encode()
        size = len(response) + len(items)
        row = (owner, name, self._now(), turn.previous, 0, size, len(items))
        with self._db as db:
            db.execute("DELETE FROM turns WHERE used < ?", (self._now() - MAX_AGE_S,))
            db.execute(
                "REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, zlib.compress(response, 1), zlib.compress(items, 1)),
            )
            self._evict(owner)

    def _evict(self, owner: str) -> None:
        """Delete the tenant's least recently used turns beyond its quota."""
        sizes = self._db.execute(
            "SELECT name, size FROM turns WHERE tenant = ? ORDER BY used DESC, rowid DESC", (owner,)
        )
        total, old = 0, []
        for number, (name, size) in enumerate(sizes):
            total += size
            if total > self._share.bytes or number >= self._share.answers:
                old.append(name)
        for name in old:
            self._remove(owner, name)

    def _remove(self, owner: str, name: str) -> None:
        """Delete a turn, and hidden ones before it that nothing continues any more."""
        at: str | None = name
        while at is not None:
            row = self._row("previous", owner, at)
            self._db.execute("DELETE FROM turns WHERE tenant = ? AND name = ?", (owner, at))
            at = row[0] if row else None
            before = self._row("hidden", owner, at) if at is not None else None
            if before is None or not before[0] or self._continued(owner, at):
                at = None

    def _row(self, columns: str, owner: str, name: str | None) -> Any:
        """Columns of a turn that has not expired; None = there is none."""
        return self._db.execute(
            f"SELECT {columns} FROM turns WHERE tenant = ? AND name = ? AND used >= ?",
            (owner, name, self._now() - MAX_AGE_S),
        ).fetchone()

    def _continued(self, owner: str, name: str | None) -> bool:
        """Whether a stored turn continues this one."""
        query = "SELECT 1 FROM turns WHERE tenant = ? AND previous = ? LIMIT 1"
        return self._db.execute(query, (owner, name)).fetchone() is not None

    def _get(self, owner: str, name: str) -> Turn | None:
        row = self._row("response, items, previous, hidden", owner, name)
        if row is None or row[3]:
            return None
        return Turn(_text(row[0]), _text(row[1]), row[2])

    def _items(self, owner: str, name: str) -> str | None:
        row = self._row("items", owner, name)
        return None if row is None else _text(row[0])

    def _chain(self, owner: str, name: str) -> Chain:
        names, size, at = list[str](), 0, name
        row = self._row("previous, items_size, hidden", owner, name)
        if row is None or row[2]:
            return Chain([], 0, False)
        while row is not None and len(names) < self._share.answers:
            names.append(at)
            size += row[1]
            at = row[0]
            row = None if at is None else self._row("previous, items_size", owner, at)
        names.reverse()
        with self._db as db:
            now = self._now()
            db.executemany(
                "UPDATE turns SET used = ? WHERE tenant = ? AND name = ?",
                [(now, owner, each) for each in names],
            )
        return Chain(names, size, at is None)

    def _delete(self, owner: str, name: str) -> bool:
        with self._db as db:
            row = self._row("hidden", owner, name)
            if row is None or row[0]:
                return False
            if self._continued(owner, name):
                db.execute(
                    "UPDATE turns SET hidden = 1 WHERE tenant = ? AND name = ?", (owner, name)
                )
            else:
                self._remove(owner, name)
            return True

    def _failed(self, error: Exception) -> MlccError:
        return MlccError(
            f"the answers in {self._path} cannot be read: {error}", code="store_failed"
        )


def _text(data: bytes) -> str:
    """A decompressed text. Raises ValueError for one that is larger than any that is stored."""
    work = zlib.decompressobj()
    text = work.decompress(data, MOST_TURN_BYTES + 1)
    if len(text) > MOST_TURN_BYTES:
        raise ValueError(f"an answer has more than {MOST_TURN_BYTES} bytes")
    return text.decode()
