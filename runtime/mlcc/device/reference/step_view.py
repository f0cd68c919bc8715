"""A step's tables as numpy arrays: views of its words, without copies. For executors and tests in
Python; compiled libraries read the words themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.engine.batch.batch import Batch
from mlcc.engine.batch.tables import FLOATS, Table
from mlcc.util.fast_dataclass import fast_dataclass

Array = npt.NDArray[Any]


@fast_dataclass(frozen=True)
class PageLists:
    """Which tokens and pages of one cache group belong to which of b sequences."""

    first_token: Array
    """i32[b + 1]; sequence s owns tokens first_token[s] : first_token[s + 1]."""
    length: Array
    """i32[b] tokens once the step is done."""
    first_page: Array
    """i32[b + 1]; sequence s owns ids[first_page[s] : first_page[s + 1]]."""
    page_number: Array
    """i32[b] which page of the sequence is the first of its list."""
    ids: Array
    """i32[p] page ids."""


class StepView:
    """The columns of a batch by name."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self.layout = batch, batch.layout
        self._words: Array = np.frombuffer(batch.words, np.int32)

    def tokens(self, column: str) -> Array:
        return self._column(self.layout.tokens, column, self._batch.num_tokens)

    def rows(self, column: str) -> Array:
        return self._column(self.layout.rows, column, self._batch.num_rows)

    def copies(self, column: str) -> Array:
        return self._column(self.layout.copies, column, self._batch.num_copies)

    def sequences(self, column: str) -> Array:
        """Of each sequence, and the entry after the last."""
        return self._column(self.layout.sequences, column, self._batch.num_sequences + 1)

    def lists(self, group: int) -> PageLists:
        """The page lists of a paged or window group."""
        first_page = self.sequences(f"first_page.{group}")
        begin = int(self._words[self.layout.header.at(f"pages.{group}")])
        slides = self.layout.groups[group].window is not None
        return PageLists(
            self.sequences("first_token"),
            self.sequences("length")[:-1],
            first_page,
            self.sequences(f"page_number.{group}")[:-1]
            if slides
            else np.zeros_like(first_page[1:]),
            self._words[begin : begin + int(first_page[-1])],
        )

    def _column(self, table: Table, name: str, count: int) -> Array:
        words = self._words.view(np.float32) if name in FLOATS else self._words
        at = table.at(name)
        return words[at : at + table.width * count : table.width]
