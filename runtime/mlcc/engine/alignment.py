"""Answers whose tokens are found in their sound, once they are whole.

The pages of an answer that has ended hold its keys and values until the next step is planned, and
its window stays on the device. Before that step the driver runs its tokens once more, all of them
known, through the function of the library that says which rows of the window they listen to.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcc.engine.batch.batch import Batch, BatchWriter, Cache, Capacity, PageList, int32
from mlcc.engine.events import Event, Finished
from mlcc.engine.sequence import TokenSequence
from mlcc.errors import MlccError


@dataclass(frozen=True, slots=True)
class Alignment:
    """One answer to align."""

    finished: Finished
    """Its last event, which is held back."""
    tokens: array[int]
    """Those whose attention is wanted: the sampled ones but for the last, which was not computed or
    ended the answer."""
    first: int
    """Position of the first of them."""
    caches: tuple[PageList, ...]
    source_row: int
    """Where its window is on the device."""
    rows: int
    """Rows of the window that hold sound."""

    def batches(self, capacity: Capacity) -> Iterator[Batch]:
        """Steps of as many tokens as have rows, with a row after each."""
        size = min(capacity.max_rows, capacity.max_step_tokens)
        for start in range(0, len(self.tokens), size):
            tokens, position = self.tokens[start : start + size], self.first + start
            writer = BatchWriter(capacity.layout)
            caches = [
                PageList(cache.ids[: -(-(position + len(tokens)) // group.page_size)])
                for cache, group in zip(self.caches, capacity.groups, strict=True)
            ]
            columns = {"source_row": int32([self.source_row]) * len(tokens)}
            writer.sequence(tokens, position, caches, columns=columns)
            for token in range(len(tokens)):
                writer.row(token)
            yield writer.finish()

    def done(self, token_rows: Sequence[int]) -> Finished:
        """The last event with the rows."""
        return self.finished._replace(token_rows=tuple(token_rows))

    def failed(self, error: MlccError) -> Finished:
        """The last event of an answer that could not be aligned."""
        return self.finished._replace(reason="error", error=error)


class Alignments(deque[Alignment]):
    """The answers of one engine that wait for it, oldest first."""

    def fail(self) -> list[Event]:
        """Drop all of them. Returns their last events."""
        failed: list[Event] = [each.finished._replace(reason="error") for each in self]
        self.clear()
        return failed

    def cancel(self, request_id: str) -> list[Event]:
        """Drop an answer. Returns its last event; none if it is not here."""
        for each in self:
            if each.finished.request_id == request_id:
                self.remove(each)
                return [each.finished._replace(reason="cancelled")]
        return []

    @staticmethod
    def of(seq: TokenSequence) -> tuple[tuple[PageList, ...], int] | None:
        """Where a sequence's keys and values and its window are, while it has them; None = it has
        nothing to align."""
        sampled = len(seq.tokens) - seq.prompt_tokens
        slots = seq.media[0].media.slots if seq.media else None
        if sampled < 2 or slots is None:
            return None
        return tuple(map(_copied, seq.caches)), slots[0]

    def hold(
        self, seq: TokenSequence, place: tuple[tuple[PageList, ...], int], finished: Finished
    ) -> None:
        """Keep the last event of a sequence until it is aligned."""
        caches, source_row = place
        tokens = seq.tokens[seq.prompt_tokens : -1]
        rows = seq.request.aligned_rows
        self.append(Alignment(finished, tokens, seq.prompt_tokens, caches, source_row, rows))


def _copied(cache: Cache) -> PageList:
    assert isinstance(cache, PageList)
    return PageList(cache.ids[:], cache.first)
