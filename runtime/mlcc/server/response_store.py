"""Response store in a SQLite file: stored responses of /v1/responses survive a restart.

All database access runs in one thread beside the event loop. Each tenant has a quota, and responses
expire after the time that OpenAI keeps them. Keys of `--api-key` are known to the server by number
only, and numbers change between starts; the file stores a scrypt hash of the key instead.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from mlcc.errors import MlccError
from mlcc.service.response_store.store import Share

log = logging.getLogger("mlcc.server")
SHARE = Share(256 << 20, 10_000)
"""Quota of each tenant."""
MAX_AGE_S = 30 * 24 * 3600.0
_APPLICATION, _VERSION = 0x6D6C6363, 1
"""SQLite application id ("mlcc") and schema version of these files."""
_TABLES = """
CREATE TABLE IF NOT EXISTS about (salt BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    tenant TEXT NOT NULL, name TEXT NOT NULL, at REAL NOT NULL, text BLOB NOT NULL,
    PRIMARY KEY (tenant, name));
CREATE INDEX IF NOT EXISTS by_age ON answers (tenant, at);
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
        self._thread = ThreadPoolExecutor(1, "mlcc-response-store")
        try:
            self._db = self._thread.submit(_open_database, path).result()
            salt = self._thread.submit(_salt, self._db).result()
        except (sqlite3.Error, OSError) as error:
            self._thread.shutdown()
            raise MlccError(
                f"answers cannot be kept in {path} ({error}); give --store another file"
            ) from None
        self._owners = {f"key {n + 1}": _owner(key, salt) for n, key in enumerate(api_keys)}

    async def put(self, tenant: str, name: str, text: str) -> None:
        """Store a response; evicts the tenant's oldest ones if needed."""
        data = zlib.compress(text.encode(), 1)
        if len(data) > self._share.bytes:
            return
        try:
            await self._run(self._put, self._owner(tenant), name, data)
        except sqlite3.Error as error:
            log.warning("an answer is not kept in %s: %s", self._path, error)

    async def get(self, tenant: str, name: str) -> str | None:
        """Return a tenant's stored response; None = there is none. Raises MlccError if the file
        cannot be read."""
        try:
            found = await self._run(self._get, self._owner(tenant), name)
        except sqlite3.Error as error:
            raise self._failed(error) from None
        return None if found is None else zlib.decompress(found).decode()

    async def delete(self, tenant: str, name: str) -> bool:
        """Return whether it existed. Raises MlccError if the file cannot be read."""
        try:
            return await self._run(self._delete, self._owner(tenant), name)
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Flush and close the file. Idempotent."""
        self._thread.submit(self._db.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _owner(self, tenant: str) -> str:
        return self._owners.get(tenant, f"name {tenant}")

    def _put(self, owner: str, name: str, data: bytes) -> None:
        now = self._now()
        with self._db as db:
            db.execute("DELETE FROM answers WHERE at < ?", (now - MAX_AGE_S,))
            db.execute("REPLACE INTO answers VALUES (?, ?, ?, ?)", (owner, name, now, data))
            sizes = db.execute(
                "SELECT name, length(text) FROM answers WHERE tenant = ? ORDER BY at DESC, name",
                (owner,),
            )
            total, old = 0, []
            for number, (other, size) in enumerate(sizes):
                total += size
                if total > self._share.bytes or number >= self._share.answers:
                    old.append((owner, other))
            db.executemany("DELETE FROM answers WHERE tenant = ? AND name = ?", old)

    def _get(self, owner: str, name: str) -> bytes | None:
        row = self._db.execute(
            "SELECT text FROM answers WHERE tenant = ? AND name = ? AND at >= ?",
            (owner, name, self._now() - MAX_AGE_S),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def _delete(self, owner: str, name: str) -> bool:
        with self._db as db:
            found = db.execute("DELETE FROM answers WHERE tenant = ? AND name = ?", (owner, name))
            return found.rowcount > 0

    def _failed(self, error: sqlite3.Error) -> MlccError:
        return MlccError(
            f"the answers in {self._path} cannot be read: {error}", code="store_failed"
        )


def _open_database(path: Path) -> sqlite3.Connection:
    """Open or create the file, readable by its owner only: it contains conversations."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(path, timeout=10)
    application = db.execute("PRAGMA application_id").fetchone()[0]
    empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if not empty and (application, version) != (_APPLICATION, _VERSION):
        db.close()
        raise sqlite3.DatabaseError("it is another program's, or another version's")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.executescript(_TABLES)
    return db


def _salt(db: sqlite3.Connection) -> bytes:
    with db:
        if (row := db.execute("SELECT salt FROM about").fetchone()) is None:
            row = (os.urandom(16),)
            db.execute("INSERT INTO about VALUES (?)", row)
    return bytes(row[0])


def _owner(key: str, salt: bytes) -> str:
    """Return a hash of the key from which the key cannot be recovered."""
    made = hashlib.scrypt(key.encode("utf-8", "surrogateescape"), salt=salt, n=2**14, r=8, p=1)
    return f"key {made[:24].hex()}"
