"""A batch without a server: a file in, a file out, and beside it a journal from which the same
command goes on after an interruption."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlcc.batches.journal import JOURNAL_TABLES, Journal, LineCounts
from mlcc.batches.lines import InputBounds, InputCheck
from mlcc.batches.output import OutputWriter
from mlcc.batches.runner import Answer, BatchInput, BatchRunner
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.util.private_database import DatabaseThread, open_private

VERSION = 2001
"""Schema version of the journals."""
_TABLES = f"""
CREATE TABLE IF NOT EXISTS input (digest TEXT NOT NULL, model TEXT NOT NULL);
{JOURNAL_TABLES}
"""
_BOUNDS = InputBounds(lines=1 << 40, line_bytes=1 << 26)
_BATCH = "batch"
Report = Callable[[str, int, int, str], object]
"""Takes a step's name, what is done, of how much, and the unit."""


@dataclass(frozen=True)
class LocalBatch:
    """The lines of `source` are answered by `model`; `output` is written when all are."""

    source: Path
    output: Path
    model: str

    @property
    def journal(self) -> Path:
        """The file of the answers so far."""
        return self.output.with_name(f"{self.output.name}.partial")

    def open(self, report: Report) -> OpenLocalBatch:
        """Check the input, or find what an earlier run has answered. Raises MlccError."""
        try:
            thread = DatabaseThread(
                "mlcc-batch", lambda: open_private(self.journal, VERSION, _TABLES)
            )
        except (sqlite3.Error, OSError) as error:
            raise MlccError(
                f"answers cannot be kept in {self.journal} ({error}); give another -o"
            ) from None
        opened = OpenLocalBatch(self, thread)
        try:
            opened.prepare(report)
        except BaseException:
            opened.close()
            raise
        return opened


class OpenLocalBatch:
    """A local batch with its journal open."""

    def __init__(self, batch: LocalBatch, thread: DatabaseThread) -> None:
        self._batch, self._thread = batch, thread
        self._journal = thread.now(Journal, thread.db)

    @property
    def counts(self) -> LineCounts:
        """Lines by their state."""
        return self._thread.now(self._journal.counts, _BATCH)

    def prepare(self, report: Report) -> None:
        """Write the lines into the journal, unless they are there. Raises InvalidRequestError for
        an input with errors, or one that is not the journal's."""
        given = _digest(self._batch.source), self._batch.model
        known = self._thread.now(self._known)
        if known is None:
            self._check(report)
            self._thread.now(self._begin, given)
        elif known != given:
            what = "another input" if known[0] != given[0] else f"the model {known[1]}"
            raise InvalidRequestError(
                f"{self._batch.journal} has answers of {what}; go on with that, delete it, or give "
                "another -o",
                code="other_batch",
            )

    async def run(self, answer: Answer, slots: int, report: Report) -> None:
        """Answer the lines that have no answer, `slots` at once."""
        counts = await self._thread.run(self._journal.counts, _BATCH)
        done, total = counts.total - counts.pending, counts.total
        report("answering", done, total, "lines")

        def count() -> None:
            nonlocal done
            done += 1
            report("answering", done, total, "lines")

        runner = BatchRunner(
            answer,
            self._thread,
            self._journal,
            asyncio.Semaphore(slots),
            report=count,
            names_model=False,
        )
        await runner.run(BatchInput(_BATCH, self._batch.source))

    def write(self) -> None:
        """Write the output, which is whole or not there, and delete the journal."""
        part = self._batch.output.with_name(f"{self._batch.output.name}.writing")
        writer = OutputWriter(self._journal, _BATCH, part, part)
        try:
            while self._thread.now(writer.advance):
                pass
            writer.close()
            part.replace(self._batch.output)
        finally:
            part.unlink(missing_ok=True)
        self.close()
        self._batch.journal.unlink()

    def close(self) -> None:
        """Keep the journal for another run. Idempotent."""
        self._thread.close()

    def _known(self) -> tuple[str, str] | None:
        row = self._thread.db.execute("SELECT digest, model FROM input").fetchone()
        return None if row is None else (row[0], row[1])

    def _begin(self, given: tuple[str, str]) -> None:
        with self._thread.db as db:
            db.execute("INSERT INTO input VALUES (?, ?)", given)

    def _check(self, report: Report) -> None:
        source = self._batch.source
        self._thread.now(self._journal.remove, _BATCH)  # of a run that was killed while it checked
        check = InputCheck(source, "", _BOUNDS, self._journal, _BATCH)
        size = source.stat().st_size
        while self._thread.now(check.advance):
            report("checking the lines", check.bytes, size, "bytes")
        if not check.errors:
            return
        self.close()
        self._batch.journal.unlink()
        first, more = check.errors[0], len(check.errors) - 1
        place = f"{source}, line {first.line}" if first.line else f"{source}"
        rest = f" ({more} more lines are wrong)" if more else ""
        raise InvalidRequestError(f"{place}: {first.error.message}{rest}", code=first.error.code)


def _digest(path: Path) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            made.update(piece)
    return made.hexdigest()
