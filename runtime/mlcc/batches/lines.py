"""Reads the lines of a batch's input, a few at a time, whatever the size of the file."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mlcc.api.openai.batches import BatchLine, parse_line
from mlcc.batches.journal import Journal, NewLine
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.service.http.json_body import parse_json

MOST_ERRORS = 100
"""Errors of an input that are named."""
_AT_ONCE = 256
"""Lines that are checked in one transaction."""
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class LineError:
    """Why a line was refused; the line counts from 1, None = the file as a whole."""

    line: int | None
    error: MlccError


@dataclass(frozen=True)
class InputBounds:
    """What an input may have."""

    lines: int
    line_bytes: int


class InputCheck:
    """Checks an input in parts, between which the caller's thread does other work."""

    def __init__(
        self, path: Path, endpoint: str, bounds: InputBounds, journal: Journal, batch: str
    ) -> None:
        self._lines = _read_lines(path, bounds.line_bytes)
        self._endpoint, self._bounds = endpoint, bounds
        self._journal, self._batch = journal, batch
        self._number = self._good = 0
        self.errors: list[LineError] = []
        self.bytes = 0
        """Bytes that were read."""

    def advance(self) -> bool:
        """Check the next lines and add them to the journal. Returns whether there may be more."""
        good: list[NewLine] = []
        end, count = self.bytes + _BYTES_AT_ONCE, 0
        for start, raw in islice(self._lines, _AT_ONCE):
            count += 1
            self._number += 1
            self.bytes = start + len(raw)
            if not raw.strip():
                continue
            try:
                good.append(self._checked(start, raw))
            except MlccError as error:
                self.errors.append(LineError(self._number, error))
            if self.bytes > end:
                break
        try:
            self._journal.add(self._batch, good)
        except InvalidRequestError as error:
            self.errors.append(LineError(None, error))
        self._good += len(good)
        if self._good > self._bounds.lines:
            self.errors.append(LineError(None, _too_many(self._bounds.lines)))
        if not count and not self._good and not self.errors:
            empty = InvalidRequestError("the file has no lines; write at least one", code="empty")
            self.errors.append(LineError(None, empty))
        return count > 0 and len(self.errors) < MOST_ERRORS and self._good <= self._bounds.lines

    def _checked(self, start: int, raw: bytes) -> NewLine:
        if len(raw) > self._bounds.line_bytes:
            raise InvalidRequestError(
                f"the line is larger than {self._bounds.line_bytes} bytes; shorten it or allow "
                "more (--max-body of `mlcc serve`)",
                code="body_too_large",
            )
        line = parse_line(parse_json(raw.removeprefix(BOM_UTF8)), self._endpoint)
        return NewLine(self._number, line.custom_id, line.order, start, len(raw))


def read_line(file: BinaryIO, start: int, size: int) -> BatchLine:
    """A line that was checked before. Raises InvalidRequestError if the file has changed."""
    raw = os.pread(file.fileno(), size, start) if hasattr(os, "pread") else _seek(file, start, size)
    return parse_line(parse_json(raw.removeprefix(BOM_UTF8)))


def _seek(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _read_lines(path: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """Each line and the byte at which it begins; of one that is too long a part that shows it."""
    start = 0
    with path.open("rb") as file:
        while line := file.readline(most + 2):
            yield start, line
            start += len(line)
            while not line.endswith(b"\n") and (line := file.readline(1 << 16)):
                start += len(line)


def _too_many(most: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the file has more than {most:,} lines; send it in several", code="too_many_lines"
    )
