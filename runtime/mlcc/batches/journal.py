"""The lines of batches and their answers in SQLite: a process that is killed loses no answer that
it has, and when the batch goes on no line is answered again.

Blocking; `mlcc.util.private_database.DatabaseThread` runs the methods in its thread.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcc.errors import InvalidRequestError

JOURNAL_TABLES = """
CREATE TABLE IF NOT EXISTS lines (
    batch TEXT NOT NULL, number INTEGER NOT NULL, custom_id TEXT NOT NULL, place TEXT NOT NULL,
    start INTEGER NOT NULL, size INTEGER NOT NULL,
    status INTEGER, request_id TEXT, body BLOB,
    PRIMARY KEY (batch, number));
CREATE UNIQUE INDEX IF NOT EXISTS by_custom_id ON lines (batch, custom_id);
CREATE INDEX IF NOT EXISTS pending ON lines (batch, place, number) WHERE status IS NULL;
"""
_PAGE = 64
"""Answers that are read at once."""


@dataclass(frozen=True, slots=True)
class NewLine:
    """A checked line of an input."""

    number: int
    """From 1 on."""
    custom_id: str
    place: str
    """Lines are answered in the order of these texts, then of their numbers."""
    start: int
    """Byte of the input at which the line begins."""
    size: int


@dataclass(frozen=True, slots=True)
class PendingLine:
    """A line without an answer."""

    number: int
    place: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """A line of an output."""

    number: int
    custom_id: str
    status: int | None
    """HTTP status of its answer; None = it has none."""
    request_id: str
    body: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Lines of a batch by their state."""

    total: int
    completed: int
    failed: int

    @property
    def pending(self) -> int:
        """Lines without an answer."""
        return self.total - self.completed - self.failed


class Journal:
    """The lines of all batches of one database."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, batch: str, lines: Sequence[NewLine]) -> None:
        """Add lines. Raises InvalidRequestError for a `custom_id` that another line has."""
        with self._db as db:
            for line in lines:
                row = (batch, line.number, line.custom_id, line.place, line.start, line.size)
                try:
                    db.execute(
                        "INSERT INTO lines (batch, number, custom_id, place, start, size) "
                        "VALUES (?, ?, ?, ?, ?, ?)",
                        row,
                    )
                except sqlite3.IntegrityError:
                    raise self._duplicate(batch, line) from None

    def pending(self, batch: str, after: tuple[str, int], most: int) -> list[PendingLine]:
        """The next lines without an answer behind a place and number, in their order."""
        rows = self._db.execute(
            "SELECT number, place, start, size FROM lines WHERE batch = ? AND status IS NULL "
            "AND (place, number) > (?, ?) ORDER BY place, number LIMIT ?",
            (batch, *after, most),
        )
        return [PendingLine(*row) for row in rows]

    def record(self, batch: str, number: int, status: int, request_id: str, body: str) -> None:
        """Keep the answer of a line; a second one changes nothing."""
        data = zlib.compress(body.encode("utf-8", "replace"), 1)
        with self._db as db:
            db.execute(
                "UPDATE lines SET status = ?, request_id = ?, body = ? "
                "WHERE batch = ? AND number = ? AND status IS NULL",
                (status, request_id, data, batch, number),
            )

    def counts(self, batch: str) -> LineCounts:
        """The lines of a batch by their state."""
        row = self._db.execute(
            "SELECT count(*), total(status = 200), total(status <> 200) FROM lines WHERE batch = ?",
            (batch,),
        ).fetchone()
        return LineCounts(*map(int, row))

    def lines(self, batch: str) -> Iterator[AnsweredLine]:
        """All lines in the order of the input, read a few at a time."""
        number = 0
        while rows := self._db.execute(
            "SELECT number, custom_id, status, request_id, body FROM lines "
            "WHERE batch = ? AND number > ? ORDER BY number LIMIT ?",
            (batch, number, _PAGE),
        ).fetchall():
            for number, custom_id, status, request_id, data in rows:
                body = zlib.decompress(data).decode() if data else ""
                yield AnsweredLine(number, custom_id, status, request_id or "", body)

    def remove(self, batch: str) -> None:
        """Forget the lines of a batch and their answers."""
        with self._db as db:
            db.execute("DELETE FROM lines WHERE batch = ?", (batch,))

    def _duplicate(self, batch: str, line: NewLine) -> InvalidRequestError:
        row = self._db.execute(
            "SELECT number FROM lines WHERE batch = ? AND custom_id = ?", (batch, line.custom_id)
        ).fetchone()
        other = row[0] if row else line.number
        return InvalidRequestError(
            f"lines {other} and {line.number} have the same custom_id "
            f"{line.custom_id[:80]!a}; give each line its own",
            param="custom_id",
            code="duplicate_custom_id",
        )
