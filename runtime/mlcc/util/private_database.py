"""SQLite files that contain conversations: readable by their owner only, and of one format.

A file that others may read, or that is a link, is refused. All work with one database is done in a
thread of its own (`DatabaseThread`), so that an event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

APPLICATION = 0x6D6C6363
"""SQLite application id ("mlcc") of all these files."""
T = TypeVar("T")


def open_private(path: Path, version: int, tables: str) -> sqlite3.Connection:
    """Open or create a database. version: of its schema; each kind of file has versions of its
    own. tables: SQL that creates them where they are missing. Raises OSError or sqlite3.Error."""
    for file in (path, *(Path(f"{path}-{kind}") for kind in ("journal", "wal", "shm"))):
        if file == path or file.is_symlink() or file.exists():
            _check_private(file)
    db = sqlite3.connect(path, timeout=10)
    application = db.execute("PRAGMA application_id").fetchone()[0]
    empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if not empty and (application, found) != (APPLICATION, version):
        db.close()
        if application == APPLICATION:
            raise sqlite3.DatabaseError(
                f"its format is {found}, of another version of mlcc or another kind of file, and "
                f"this one reads {version}; keep it for that version with "
                f"`mv {path} {path}.{found}`"
            )
        raise sqlite3.DatabaseError("it is another program's")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {version}")
    db.executescript(tables)
    return db


class DatabaseThread:
    """A database and the only thread that uses it. Raises what `connect` raises."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        try:
            self.db = self._thread.submit(connect).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def now(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of `work`, for which the caller waits."""
        return self._thread.submit(work, *arguments).result()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of `work`, for which the caller's task waits."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def close(self) -> None:
        """Finish the work and close the database. Idempotent."""
        try:
            self._thread.submit(self.db.close)
        except RuntimeError:  # closed before
            return
        self._thread.shutdown()


def _check_private(path: Path) -> None:
    """Check that a file, created if it is missing, is the user's own and no one else may read it.
    Raises OSError. On Windows the folders of a user are private already."""
    if os.name == "nt":
        return
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        if path.is_symlink():
            raise OSError(f"{path} is a link, which another user may point elsewhere") from None
        raise
    try:
        found = os.fstat(file)
    finally:
        os.close(file)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is no regular file")
    if found.st_uid != os.geteuid():
        raise OSError(f"{path} belongs to another user")
    if found.st_mode & 0o077:
        raise OSError(
            f"{path} contains conversations and other users may open it; type `chmod 600 {path}`"
        )
