"""Writes the lines of a batch's answers, a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TextIO

from mlcc.api.openai.batches import answer_line, unanswered_line
from mlcc.batches.journal import AnsweredLine, Journal

UNANSWERED = {
    "expired": ("batch_expired", "the batch expired before this line was answered"),
    "cancelled": ("batch_cancelled", "the batch was cancelled before this line was answered"),
}
"""Code and message of lines without an answer, by the end of their batch."""
_AT_ONCE = 256


class OutputWriter:
    """Writes answers to one file and errors to another, or to the same one, in the order of the
    input. ending: how the batch ended, a key of UNANSWERED or another word."""

    def __init__(
        self, journal: Journal, batch: str, answers: Path, errors: Path, ending: str = ""
    ) -> None:
        self._lines = journal.lines(batch)
        self._ending = ending
        self._answers = _Lazy(answers)
        self._errors = self._answers if errors == answers else _Lazy(errors)

    def advance(self) -> bool:
        """Write the next lines. Returns whether there may be more."""
        count = 0
        for line in islice(self._lines, _AT_ONCE):
            count += 1
            file = self._answers if line.status == 200 else self._errors
            file.write(self._text(line))
        return count > 0

    def close(self) -> tuple[bool, bool]:
        """Close the files. Returns whether there are answers, and whether there are errors."""
        return self._answers.close(), self._errors.close()

    def _text(self, line: AnsweredLine) -> str:
        if line.status is None:
            return unanswered_line(line.number, line.custom_id, *UNANSWERED[self._ending])
        return answer_line(line.number, line.custom_id, line.status, line.request_id, line.body)


class _Lazy:
    """A file that is created by its first line."""

    def __init__(self, path: Path) -> None:
        self._open: Callable[[], TextIO] = lambda: path.open(
            "w", encoding="utf-8", errors="replace", newline="\n"
        )
        self._file: TextIO | None = None

    def write(self, text: str) -> None:
        if self._file is None:
            self._file = self._open()
        self._file.write(text)

    def close(self) -> bool:
        if self._file is not None:
            self._file.close()
        return self._file is not None
