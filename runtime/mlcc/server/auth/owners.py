"""The names under which what belongs to an API key is stored in a file.

Keys of `--api-key` are known to the server by number only, and numbers change between starts; a
file has a scrypt hash of the key instead.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Sequence

OWNER_TABLE = "CREATE TABLE IF NOT EXISTS about (salt BLOB NOT NULL);"
"""SQL of the table that `Owners` needs."""


class Owners:
    """Names of tenants in one database. Created in the thread that uses the database."""

    def __init__(self, db: sqlite3.Connection, api_keys: Sequence[str]) -> None:
        salt = _salt(db)
        self._owners = {f"key {n + 1}": owner_name(key, salt) for n, key in enumerate(api_keys)}
        self._tenants = {owner: tenant for tenant, owner in self._owners.items()}

    def of(self, tenant: str) -> str:
        """The name of a tenant in the file."""
        return self._owners.get(tenant, f"name {tenant}")

    def tenant(self, owner: str) -> str:
        """The tenant of a name in the file; a key that is gone keeps its name in the file."""
        return self._tenants.get(owner, owner.removeprefix("name "))


def owner_name(key: str, salt: bytes) -> str:
    """Return a hash of the key from which the key cannot be recovered."""
    made = hashlib.scrypt(key.encode("utf-8", "surrogateescape"), salt=salt, n=2**14, r=8, p=1)
    return f"key {made[:24].hex()}"


def _salt(db: sqlite3.Connection) -> bytes:
    with db:
        if (row := db.execute("SELECT salt FROM about").fetchone()) is None:
            row = (os.urandom(16),)
            db.execute("INSERT INTO about VALUES (?)", row)
    return bytes(row[0])
