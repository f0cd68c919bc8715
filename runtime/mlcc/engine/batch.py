"""What crosses the device boundary: one step of mixed prefill and decode rows, and its result.

A step is one buffer of 32-bit words, laid out by `tables.py`, in the CSR style of FlashInfer (Ye et
al., 2025); `BatchWriter` fills it in place. Nothing here knows about requests (see `request.py`) or
tensors (see `mlcc.device`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

from mlcc.engine.tables import COPIES, FLOATS, ROWS, CacheGroup, StepLayout, Table

_WORD = 4
_FLOATS_OF_ROWS = Struct("<" + "".join("f" if name in FLOATS else "i" for name in ROWS))


def int32(values: Sequence[int] = ()) -> array[int]:
    """An int32 array, which numpy, ctypes and JavaScript read without a copy."""
    return array("i", values)


@dataclass(slots=True)
class PageList:
    """The pages of one sequence in one group, in order of position."""

    ids: array[int] = field(default_factory=int32)
    first: int = 0
    """Which page of the sequence ids[0] is: those before have slid out of the window."""


@dataclass(slots=True)
class StateSlot:
    """Where the state of one sequence is read and written, in one group."""

    read: int = -1
    """-1 = the state begins with zeros."""
    write: int = -1


Cache = PageList | StateSlot


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How the token of one logit row is drawn; the defaults are greedy."""

    temperature: float = 0.0
    """0 = greedy."""
    top_k: int = 0
    """Keep the k most likely; 0 = all."""
    top_p: float = 1.0
    """Keep the smallest most likely set of at least this mass; 1 = all."""
    min_p: float = 0.0
    """Drop tokens less likely than min_p times the most likely; 0 = none."""
    uniform: float = 0.5
    """One draw from [0, 1), from the engine's counter-based generator."""


GREEDY = RowSampling()


class Batch:
    """One step: n tokens of b sequences, r of which need logits and a sample.

    Reading only, see `BatchWriter`. A negative token id `-1 - i` stands for "the token sampled for
    row i of the previous step", so that a step may be planned before the previous one is known.
    """

    __slots__ = ("layout", "words")

    def __init__(self, layout: StepLayout, words: memoryview) -> None:
        self.layout = layout
        self.words = words
        """int32[layout.words]; what lies beyond the header's counts means nothing."""

    @property
    def num_tokens(self) -> int:
        return self.words[0]

    @property
    def num_sequences(self) -> int:
        return self.words[1]

    @property
    def num_rows(self) -> int:
        return self.words[2]

    @property
    def num_copies(self) -> int:
        return self.words[3]

    def num_pages(self, group: int) -> int:
        """Entries of a group's page list, over all sequences."""
        table = self.layout.sequences
        return self.words[table.at(f"first_page.{group}") + table.width * self.num_sequences]

    @property
    def sizes(self) -> tuple[int, ...]:
        """What the library is told beside the buffer, in the order of `StepLayout.sizes`."""
        groups = enumerate(self.layout.groups)
        pages = [self.num_pages(g) for g, group in groups if group.has_pages]
        return (self.num_tokens, self.num_sequences, self.num_rows, *pages)

    @property
    def used_words(self) -> int:
        """Words to upload, from the first on."""
        groups = enumerate(self.layout.groups)
        return self.layout.pages.offset + sum(self.num_pages(g) for g, x in groups if x.has_pages)

    def column(self, table: Table, name: str) -> list[int] | list[float]:
        """A column's values, an entry each. Sequences have one more entry than there are."""
        counts = {"sequences": self.num_sequences + 1, "rows": self.num_rows}
        counts |= {"copies": self.num_copies, "tokens": self.num_tokens, "header": 1}
        start, count = table.at(name), counts[table.name]
        words = self.words.cast("B").cast("f") if name in FLOATS else self.words
        return words[start : start + table.width * count : table.width].tolist()

    def page_list(self, group: int) -> list[int]:
        """A group's page ids, sequence after sequence."""
        start = self.words[self.layout.header.at(f"pages.{group}")]
        return self.words[start : start + self.num_pages(group)].tolist()


class BatchWriter:
    """Fills a buffer with a step: all sequences in turn, each followed by its rows."""

    def __init__(
        self, layout: StepLayout, pages: Sequence[int], into: memoryview | None = None
    ) -> None:
        """pages: entries that each group's page list will have, 0 for a group of states.

        into: int32[layout.words] that the device lends; without it the batch has its own memory.
        """
        self._layout = layout
        self._formats = _formats_of(layout)
        self._words = (
            memoryview(bytearray(_WORD * layout.words)).cast("i") if into is None else into
        )
        self._bytes = self._words.cast("B")
        self._tokens = self._sequences = self._rows = self._copies = 0
        self._next_page: list[int] = []
        at = layout.pages.offset
        for count in pages:
            self._next_page.append(at)
            at += count
        self._first_page = tuple(self._next_page)

    def sequence(self, tokens: Sequence[int], position: int, caches: Sequence[Cache]) -> int:
        """Add tokens of a sequence, the first of which is at `position`; a cache for each group.

        Returns the index of the first token.
        """
        words, layout, first = self._words, self._layout, self._tokens
        count, index = len(tokens), self._sequences
        end = position + count
        record, paged = [first, end], []
        for g, (group, cache) in enumerate(zip(layout.groups, caches, strict=True)):
            if isinstance(cache, StateSlot):
                record += (cache.read, cache.write)
                continue
            at = self._next_page[g]
            stop = at + len(cache.ids)
            words[at:stop] = cache.ids
            self._next_page[g] = stop
            record.append(at - self._first_page[g])
            if group.window is not None:
                record.append(cache.first)
            paged.append((group.page_size, cache))
        table = layout.sequences
        self._formats.sequence.pack_into(
            self._bytes, _WORD * (table.offset + table.width * index), *record
        )
        if count == 1:
            slots = [
                c.ids[position // size - c.first] * size + position % size for size, c in paged
            ]
            table = layout.tokens
            self._formats.token.pack_into(
                self._bytes, _WORD * (table.offset + table.width * first),
                tokens[0], position, index, *slots,
            )  # fmt: skip
        else:
            self._chunk(tokens, position, paged)
        self._tokens += count
        self._sequences += 1
        return first

    def row(self, token: int, sampling: RowSampling = GREEDY) -> int:
        """Ask for the logits after a token of the step; returns the row's index."""
        table, row = self._layout.rows, self._rows
        _FLOATS_OF_ROWS.pack_into(
            self._bytes, _WORD * (table.offset + table.width * row),
            token, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
            sampling.uniform,
        )  # fmt: skip
        self._rows += 1
        return row

    def copy(self, group: int, source: int, destination: int) -> None:
        """Copy a page or slot before anything else is done. No chains: copies have no order."""
        at = self._layout.copies.offset + len(COPIES) * self._copies
        self._words[at : at + len(COPIES)] = int32((group, source, destination))
        self._copies += 1

    def finish(self) -> Batch:
        """The step. Its end closes the lists of the last sequence."""
        layout, words = self._layout, self._words
        record = [self._tokens, 0]
        lists = []
        for g, group in enumerate(layout.groups):
            if not group.has_pages:
                record += (-1, -1)
                continue
            record.append(self._next_page[g] - self._first_page[g])
            if group.window is not None:
                record.append(0)
            lists.append(self._first_page[g])
        table = layout.sequences
        at = table.offset + table.width * self._sequences
        words[at : at + table.width] = int32(record)
        counts = (self._tokens, self._sequences, self._rows, self._copies, *lists)
        words[: len(counts)] = int32(counts)
        return Batch(layout, words)

    def _chunk(
        self, tokens: Sequence[int], position: int, paged: Sequence[tuple[int, PageList]]
    ) -> None:
        """Columns of several tokens at once."""
        table, count = self._layout.tokens, len(tokens)
        columns = [int32(tokens), int32(range(position, position + count))]
        columns.append(int32([self._sequences]) * count)
        for size, cache in paged:
            slots = int32()
            at, end = position, position + count
            while at < end:
                number, offset = divmod(at, size)
                run = min(end - at, size - offset)
                slot = cache.ids[number - cache.first] * size + offset
                slots.extend(range(slot, slot + run))
                at += run
            columns.append(slots)
        start = table.offset + table.width * self._tokens
        stop = start + table.width * count
        for c, column in enumerate(columns):
            self._words[start + c : stop : table.width] = memoryview(column)


@dataclass(frozen=True, slots=True)
class _Formats:
    token: Struct
    sequence: Struct


def _formats_of(layout: StepLayout) -> _Formats:
    return _Formats(*(Struct(f"<{t.width}i") for t in (layout.tokens, layout.sequences)))


@dataclass(frozen=True, slots=True)
class Result:
    """What the device answers for one batch, one entry per logit row, in order."""

    tokens: Sequence[int]
    """[r] sampled token ids."""
    logprobs: Sequence[float]
    """[r] natural log-probability of each sampled token before temperature and filters."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an executor can hold; the engine schedules within it."""

    vocab_size: int
    context: int
    """Longest sequence in tokens, prompt and answer together."""
    layout: StepLayout
    """The tables that the library reads, with its cache groups and the bounds compiled in."""
    pools: tuple[int, ...]
    """Pages, or slots, of each group."""
    max_batch: int
    """Sequences per step, at most the layout's."""
    max_step_tokens: int
    """Tokens per step over all sequences, at most the layout's: the prefill chunk."""
    max_rows: int
    """Logit rows per step, at most the layout's."""

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return self.layout.groups

    @classmethod
    def of(
        cls,
        groups: Sequence[CacheGroup],
        pools: Sequence[int],
        *,
        vocab_size: int,
        context: int,
        max_batch: int,
        max_step_tokens: int,
        max_rows: int | None = None,
    ) -> Capacity:
        """With a layout of just these bounds."""
        rows = max_rows or max_batch
        layout = StepLayout.of(
            groups,
            context=context,
            max_tokens=max_step_tokens,
            max_sequences=max_batch,
            max_rows=rows,
            max_copies=max_batch,
        )
        return cls(vocab_size, context, layout, tuple(pools), max_batch, max_step_tokens, rows)
