"""The files and batches of all API keys: records in SQLite, and each file's text in a folder beside
it. Blocking, like the journal, which shares the database."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mlcc.api.errors import NotFoundError
from mlcc.api.openai.batch_shapes import Batch, FilePurpose, StoredFile
from mlcc.batches.journal import JOURNAL_TABLES, Journal
from mlcc.errors import CapacityError, InvalidRequestError
from mlcc.service.batches import Page
from mlcc.util.private_database import open_private

MAX_AGE_S = 30 * 24 * 3600
"""How long files and batches are kept, as OpenAI keeps them."""
VERSION = 1001
"""Schema version of these databases."""
DATABASE = "batches.sqlite"
_TABLES = f"""
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, purpose TEXT NOT NULL,
    size INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created INTEGER NOT NULL, open INTEGER NOT NULL,
    kept_s INTEGER NOT NULL, record TEXT NOT NULL);
{JOURNAL_TABLES}
"""


@dataclass(frozen=True)
class StoreBounds:
    """What one API key may have."""

    file_bytes: int = 200 << 20
    """Bytes of a file."""
    bytes: int = 1 << 30
    """Bytes of all files together."""
    files: int = 1000
    batches: int = 8
    """Batches that have not ended."""


@dataclass(frozen=True)
class OpenBatch:
    """A batch that has not ended."""

    owner: str
    record: Batch
    kept_s: int
    """Seconds that its output files are kept."""


def open_database(folder: Path, more: str = "") -> sqlite3.Connection:
    """The database of a folder, which is created. Raises OSError or sqlite3.Error."""
    (folder / "files").mkdir(0o700, parents=True, exist_ok=True)
    return open_private(folder / DATABASE, VERSION, _TABLES + more)


class BatchStore:
    """Files and batches. `owner` is the name of an API key in the database."""

    def __init__(
        self,
        db: sqlite3.Connection,
        folder: Path,
        bounds: StoreBounds,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._db, self._folder, self._bounds, self._now = db, folder, bounds, now
        self.journal = Journal(db)
        for left in (folder / "files").glob("*.part"):  # of a process that was killed
            left.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Where a file's text is."""
        return self._folder / "files" / name

    def check_room(self, owner: str) -> int:
        """The bytes that one more file may have. Raises CapacityError if there are too many
        files."""
        self.expire()
        count, size = self._db.execute(
            "SELECT count(*), total(size) FROM files WHERE owner = ?", (owner,)
        ).fetchone()
        if count >= self._bounds.files:
            raise CapacityError(
                f"there are {count} files already, and {self._bounds.files} are the most of an "
                "API key; delete some (DELETE /v1/files/ID)",
                code="too_many_files",
            )
        return min(self._bounds.file_bytes, max(self._bounds.bytes - int(size), 0))

    def add_file(
        self, owner: str, name: str, filename: str, purpose: FilePurpose, kept_s: int = MAX_AGE_S
    ) -> StoredFile:
        """Keep the text that was written to `path(name)` with the suffix .part."""
        now = int(self._now())
        part = self.path(f"{name}.part")
        size = part.stat().st_size
        part.replace(self.path(name))
        with self._db as db:
            db.execute(
                "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, owner, filename, purpose, size, now, now + kept_s),
            )
        return self.file(owner, name)

    def file(self, owner: str, name: str) -> StoredFile:
        """A file's record. Raises NotFoundError."""
        row = self._db.execute(
            f"SELECT {_FILE} FROM files WHERE id = ? AND owner = ?", (name, owner)
        ).fetchone()
        if row is None or row[4] <= self._now():
            raise _missing("file", name)
        return _file(row)

    def files(self, owner: str, page: Page) -> tuple[list[StoredFile], bool]:
        """A page of files, and whether there are more."""
        self.expire()
        where, values = "owner = ?", [owner]
        if page.purpose is not None:
            where, values = f"{where} AND purpose = ?", [owner, page.purpose]
        rows = self._page("files", _FILE, where, values, page)
        return [_file(row) for row in rows[: page.limit]], len(rows) > page.limit

    def delete_file(self, owner: str, name: str) -> None:
        """Delete a file. Raises NotFoundError, or InvalidRequestError while a batch reads it."""
        self.file(owner, name)
        for each in self.open_batches():
            if each.record["input_file_id"] == name:
                raise InvalidRequestError(
                    f"the batch {each.record['id']} reads this file; cancel it first",
                    code="file_in_use",
                )
        self._remove_files([name])

    def add_batch(self, owner: str, record: Batch, kept_s: int) -> None:
        """Add a batch. Raises CapacityError if the owner has too many that have not ended."""
        mine = sum(1 for each in self.open_batches() if each.owner == owner)
        if mine >= self._bounds.batches:
            raise CapacityError(
                f"{mine} batches have not ended, and {self._bounds.batches} are the most of an API "
                "key; wait for one, or cancel one",
                code="too_many_batches",
            )
        with self._db as db:
            db.execute(
                "INSERT INTO batches VALUES (?, ?, ?, 1, ?, ?)",
                (record["id"], owner, record["created_at"], kept_s, json.dumps(record)),
            )

    def update_batch(self, name: str, changes: Mapping[str, Any], is_open: bool = True) -> Batch:
        """Change fields of a batch's record. is_open: whether it has not ended."""
        row = self._db.execute("SELECT record FROM batches WHERE id = ?", (name,)).fetchone()
        record = cast("Batch", {**json.loads(row[0]), **changes})
        with self._db as db:
            db.execute(
                "UPDATE batches SET record = ?, open = ? WHERE id = ?",
                (json.dumps(record), int(is_open), name),
            )
        return record

    def batch(self, owner: str, name: str) -> Batch:
        """A batch's record, with its lines counted. Raises NotFoundError."""
        row = self._db.execute(
            "SELECT record, open FROM batches WHERE id = ? AND owner = ?", (name, owner)
        ).fetchone()
        if row is None:
            raise _missing("batch", name)
        return self._counted(*row)

    def batches(self, owner: str, page: Page) -> tuple[list[Batch], bool]:
        """A page of batches, and whether there are more."""
        self.expire()
        rows = self._page("batches", "record, open", "owner = ?", [owner], page)
        return [self._counted(*row) for row in rows[: page.limit]], len(rows) > page.limit

    def open_batches(self) -> list[OpenBatch]:
        """The batches that have not ended, of all owners, the oldest first."""
        rows = self._db.execute(
            "SELECT owner, record, kept_s FROM batches WHERE open ORDER BY rowid"
        )
        return [OpenBatch(owner, json.loads(record), kept) for owner, record, kept in rows]

    def expire(self) -> None:
        """Delete files and records whose time is over. A file that a batch reads stays."""
        now = int(self._now())
        used = {each.record["input_file_id"] for each in self.open_batches()}
        rows = self._db.execute("SELECT id FROM files WHERE expires <= ?", (now,)).fetchall()
        self._remove_files([name for (name,) in rows if name not in used])
        with self._db as db:
            db.execute(
                "DELETE FROM batches WHERE NOT open AND created <= ?", (now - 2 * MAX_AGE_S,)
            )

    def _remove_files(self, names: Sequence[str]) -> None:
        with self._db as db:
            db.executemany("DELETE FROM files WHERE id = ?", [(name,) for name in names])
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def _counted(self, record: str, is_open: bool) -> Batch:
        batch: Batch = json.loads(record)
        if is_open and batch["status"] != "validating":
            counts = self.journal.counts(batch["id"])
            batch["request_counts"] = {
                "total": counts.total,
                "completed": counts.completed,
                "failed": counts.failed,
            }
        return batch

    def _page(
        self, table: str, columns: str, where: str, values: Sequence[str], page: Page
    ) -> list[Any]:
        """One row more than the page has, if there are more."""
        sign, order = ("<", "DESC") if page.newest_first else (">", "ASC")
        if page.after is not None:
            where += f" AND rowid {sign} (SELECT rowid FROM {table} WHERE id = ? AND owner = ?)"
            values = [*values, page.after, values[0]]
        return self._db.execute(
            f"SELECT {columns} FROM {table} WHERE {where} ORDER BY rowid {order} LIMIT ?",
            (*values, page.limit + 1),
        ).fetchall()


_FILE = "id, name, purpose, created, expires, size"


def _file(row: Any) -> StoredFile:
    name, filename, purpose, created, expires, size = row
    return {
        "id": name,
        "object": "file",
        "bytes": size,
        "created_at": created,
        "expires_at": expires,
        "filename": filename,
        "purpose": purpose,
        "status": "processed",
    }


def _missing(what: str, name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no {what} {name[:80]!a} of this API key; it may have been deleted, or its time "
        f"was over (GET /v1/{'files' if what == 'file' else 'batches'} lists what there is)",
        code=f"{what}_not_found",
    )
