"""Writes a step into its buffer, sequence after sequence: the only place that does.

The engine uses it, and so do evaluation, profiles, benchmarks and tests (`manual_steps.py`). The
columns are defined in `tables.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlcc.engine.batch.batch import Batch, Cache, PageList, int32
from mlcc.engine.batch.filters import NO_FILTERS, Filters
from mlcc.engine.batch.tables import WORD, StepLayout
from mlcc.engine.lora import NO_ADAPTER, AdapterUse


class Sampling(Protocol):
    """Sampling parameters of a logit row: `SamplingParams` of a request, or `GREEDY`."""

    @property
    def temperature(self) -> float:
        """0 = greedy."""
        ...

    @property
    def top_k(self) -> int:
        """Keep the k most likely; 0 = all."""
        ...

    @property
    def top_p(self) -> float:
        """Keep the smallest most likely set of at least this mass; 1 = all."""
        ...

    @property
    def min_p(self) -> float:
        """Drop tokens less likely than min_p times the most likely; 0 = none."""
        ...


@dataclass(frozen=True, slots=True)
class RowSampling:
    """Sampling parameters by themselves; the defaults are greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


GREEDY = RowSampling()


def new_words(layout: StepLayout) -> memoryview:
    """int32[layout.words] of this process, zeros."""
    return memoryview(bytearray(WORD * layout.words)).cast("i")


class BatchWriter:
    """Fills a buffer with a step: all sequences in turn, each followed by its rows."""

    def __init__(self, layout: StepLayout, into: memoryview | None = None) -> None:
        """into: int32[layout.words] of the device; without it the batch has its own buffer."""
        self._layout, self._words = layout, new_words(layout) if into is None else into
        self._tokens = self._sequences = self._rows = self._copies = self._top_logprobs = 0
        self._adapted = 0
        self._lists = [int32() for _ in layout.groups]
        """Each group's page list; they follow one another at the end."""

    def sequence(
        self,
        tokens: Sequence[int],
        position: int,
        caches: Sequence[Cache],
        adapter: AdapterUse = NO_ADAPTER,
    ) -> int:
        """Add tokens of a sequence, the first of which is at `position`; a cache for each group.

        adapter: if the layout has LoRA slots. Returns the index of the first token.
        """
        layout, first, count = self._layout, self._tokens, len(tokens)
        index = self._sequences
        record, slots = [first, position + count], []
        for cache, group, pages in zip(caches, layout.groups, self._lists):  # noqa: B905
            if isinstance(cache, PageList):
                ids, size = cache.ids, group.page_size
                record.append(len(pages))
                if group.window is not None:
                    record.append(cache.first)
                if count == 1:
                    slots.append(ids[position // size - cache.first] * size + position % size)
                pages.extend(ids)
            else:
                record += (cache.read, cache.write)
        if layout.adapter_slots:
            record += adapter
            self._adapted += adapter.slot >= 0
        table = layout.sequences
        at = table.first_byte + table.entry_bytes * index
        table.pack_into(self._words, at, *record)
        if count == 1:
            table = layout.tokens
            at = table.first_byte + table.entry_bytes * first
            table.pack_into(self._words, at, tokens[0], position, index, *slots)
        else:
            self._chunk(tokens, position, caches)
        self._tokens = first + count
        self._sequences = index + 1
        return first

    def row(
        self,
        token: int,
        sampling: Sampling = GREEDY,
        uniform: float = 0.5,
        top_logprobs: int = 0,
        given: int = -1,
        filters: Filters = NO_FILTERS,
    ) -> int:
        """Add a logit row after a token of the step; returns the row's index.

        uniform: one draw from [0, 1), from the engine's counter-based generator. top_logprobs:
        number of likeliest tokens to report, at most MOST_TOP_LOGPROBS. given: a token that is
        known, not drawn; -1 = none. filters: those beyond the usual ones.
        """
        row, table = self._rows, self._layout.rows
        at = table.first_byte + table.entry_bytes * row
        table.pack_into(
            self._words, at, token, sampling.temperature, sampling.top_k, sampling.top_p,
            sampling.min_p, uniform, top_logprobs, given, *filters,
        )  # fmt: skip
        if top_logprobs > self._top_logprobs:
            self._top_logprobs = top_logprobs
        self._rows = row + 1
        return row

    def copy(self, group: int, source: int, destination: int) -> None:
        """Copy a page or slot before anything else is done. No chains: copies have no order."""
        table = self._layout.copies
        at = table.first_byte + table.entry_bytes * self._copies
        table.pack_into(self._words, at, group, source, destination)
        self._copies += 1

    def finish(self) -> Batch:
        """The step. Its last entry closes the lists of the last sequence."""
        layout, words = self._layout, self._words
        record, begins = [self._tokens, 0], []
        at = layout.pages.offset
        for group, pages in zip(layout.groups, self._lists, strict=True):
            if not group.has_pages:
                record += (-1, -1)
                continue
            record.append(len(pages))
            if group.window is not None:
                record.append(0)
            begins.append(at)
            words[at : at + len(pages)] = pages
            at += len(pages)
        adapted: tuple[int, ...] = ()
        if layout.adapter_slots:
            record += NO_ADAPTER
            adapted = (self._adapted,)
        table = layout.sequences
        table.pack_into(words, table.first_byte + table.entry_bytes * self._sequences, *record)
        counts = (self._tokens, self._sequences, self._rows, self._copies, self._top_logprobs)
        layout.header.pack_into(words, 0, *counts, *begins, *adapted)
        return Batch(layout, words)

    def _chunk(self, tokens: Sequence[int], position: int, caches: Sequence[Cache]) -> None:
        """Write the columns of several tokens at once."""
        table, count = self._layout.tokens, len(tokens)
        ids = tokens if isinstance(tokens, array) else int32(tokens)
        columns = [ids, int32(range(position, position + count))]
        columns.append(int32([self._sequences]) * count)
        for cache, group in zip(caches, self._layout.groups, strict=True):
            if isinstance(cache, PageList):
                columns.append(_slots(cache, group.page_size, position, count))
        start = table.offset + table.width * self._tokens
        stop = start + table.width * count
        for c, column in enumerate(columns):
            self._words[start + c : stop : table.width] = memoryview(column)


def _slots(cache: PageList, size: int, position: int, count: int) -> array[int]:
    """Slots of the tokens from `position` on, page by page."""
    slots, end = int32(), position + count
    while position < end:
        number, offset = divmod(position, size)
        run = min(end - position, size - offset)
        slot = cache.ids[number - cache.first] * size + offset
        slots.extend(range(slot, slot + run))
        position += run
    return slots
