"""The batch: one step of mixed prefill and decode rows, and its result.

A step is one buffer of 32-bit words, laid out by `tables.py`, in the CSR style of FlashInfer (Ye et
al., 2025). `BatchWriter` fills it in place, sequence after sequence: the engine uses it, and so do
evaluation, profiles, benchmarks and tests (`manual_steps.py`). Nothing here knows about requests
(see `request.py`) or tensors (see `mlcc.device`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from mlcc.engine.batch.filters import NO_FILTERS, FilterParams
from mlcc.engine.batch.tables import FLOATS, MOST_TOP_LOGPROBS, WORD, CacheGroup, StepLayout, Table
from mlcc.engine.lora import NO_ADAPTER, AdapterUse
from mlcc.errors import InvalidRequestError

int32: Callable[..., array[int]] = partial(array, "i")
"""An int32 array of some values, which numpy, ctypes and JavaScript read without a copy."""


@dataclass(slots=True)
class PageList:
    """The pages of one sequence in one group, in order of position."""

    ids: array[int] = field(default_factory=int32)
    first: int = 0
    """Page number of ids[0]; earlier pages have slid out of the window."""
    room: int = 0
    """Tokens of the sequence that the pages hold."""


@dataclass(slots=True)
class StateSlot:
    """Slots where the state of one sequence is read and written, in one group."""

    read: int = -1
    """-1 = the state begins with zeros."""
    write: int = -1

    @property
    def room(self) -> int:
        """Tokens of the sequence that fit: unlimited once it has a slot."""
        return 0 if self.write < 0 else 1 << 31


Cache = PageList | StateSlot


class Batch:
    """One step: n tokens of b sequences, r of which need logits and a sample.

    Read-only, see `BatchWriter`. A negative token id `-1 - i` stands for "the token sampled for
    row i of the previous step", so that a step may be planned before that token is known.
    """

    __slots__ = ("layout", "words")

    def __init__(self, layout: StepLayout, words: memoryview) -> None:
        self.layout = layout
        self.words = words
        """int32[layout.words]; the contents beyond the header's counts are undefined."""

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

    @property
    def top_logprobs(self) -> int:
        """The most top log-probabilities that a row requests; 0 = none."""
        return self.words[4]

    @property
    def num_prompts(self) -> int:
        """Sequences, the last of the step, that compute tokens of their prompts."""
        table = self.layout.sequences
        return self.words[table.at("length") + table.width * self.num_sequences]

    @property
    def adapted(self) -> int:
        """Sequences with a LoRA adapter."""
        layout = self.layout
        return self.words[layout.header.at("adapted")] if layout.adapter_slots else 0

    @property
    def mtp(self) -> bool:
        """Whether the step runs `forward_mtp` instead of `forward`."""
        layout = self.layout
        return layout.has_mtp and self.words[layout.header.at("mtp")] == 1

    def num_pages(self, group: int) -> int:
        """Entries of a group's page list, over all sequences."""
        table = self.layout.sequences
        return self.words[table.at(f"first_page.{group}") + table.width * self.num_sequences]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes passed to the library beside the buffer, in the order of `StepLayout.sizes`."""
        groups = enumerate(self.layout.groups)
        pages = [self.num_pages(g) for g, group in groups if group.has_pages]
        return (self.num_tokens, self.num_sequences, self.num_rows, *pages)

    @property
    def used_words(self) -> int:
        """Words to upload, from the first on."""
        groups = enumerate(self.layout.groups)
        return self.layout.pages.offset + sum(self.num_pages(g) for g, x in groups if x.has_pages)

    def column(self, table: Table, name: str) -> list[int] | list[float]:
        """A column's values, one per entry. Sequences have one more entry than there are."""
        counts = {"sequences": self.num_sequences + 1, "rows": self.num_rows}
        counts |= {"copies": self.num_copies, "tokens": self.num_tokens, "header": 1}
        start, count = table.at(name), counts[table.name]
        words = self.words.cast("B").cast("f") if name in FLOATS else self.words
        return words[start : start + table.width * count : table.width].tolist()

    def page_list(self, group: int) -> list[int]:
        """A group's page ids, sequence after sequence."""
        start = self.words[self.layout.header.at(f"pages.{group}")]
        return self.words[start : start + self.num_pages(group)].tolist()


TopLogprobs = list[tuple[int, float]]
"""(token, natural log-probability), the likeliest first, the lowest token first among equals; fewer
if no other token has a probability."""


class Result(NamedTuple):
    """The device's result for one batch, one entry per logit row, in order."""

    tokens: Sequence[int]
    """[r] sampled token ids."""
    logprobs: Sequence[float]
    """[r] natural log-probability of each sampled token, from the adjusted logits, before
    temperature and filters."""
    top_logprobs: Sequence[TopLogprobs] | None = None
    """[r] the likeliest tokens of each row, as many as it requests; None = no row requests any."""


def pairs_of(tokens: Sequence[int], logprobs: Sequence[float]) -> list[TopLogprobs]:
    """The library's `top_logprobs`, MOST_TOP_LOGPROBS a row, as pairs; a token of -1 is none."""
    pairs = list(zip(tokens, logprobs, strict=True))
    starts = range(0, len(pairs), MOST_TOP_LOGPROBS)
    return [[p for p in pairs[i : i + MOST_TOP_LOGPROBS] if p[0] >= 0] for i in starts]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bounds of an executor; the engine schedules within them."""

    vocab_size: int
    context: int
    """Longest sequence in tokens, prompt and output together."""
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
    embedding_slots: int = 0
    """Rows that the host can write in place of tokens: id vocab_size + i names row i."""

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return self.layout.groups

    @property
    def window_rows(self) -> int:
        """Rows of a window of sound, which each sequence attends to; 0 = the model hears nothing.
        There is room for a window of each sequence."""
        hears = "source_row" in self.layout.token_columns
        return self.embedding_slots // self.layout.max_sequences if hears else 0

    @property
    def most_pages(self) -> list[int]:
        """Most entries of each group's page list in one step, for which a library plans memory; 0
        for states."""
        layout = self.layout
        return [
            layout.max_sequences * group.most_pages(self.context, layout.max_tokens)
            if group.has_pages
            else 0
            for group in layout.groups
        ]

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
        token_columns: tuple[str, ...] = (),
    ) -> Capacity:
        """A capacity whose layout has just these bounds."""
        rows = max_rows or max_batch
        layout = StepLayout.of(
            groups,
            context=context,
            max_tokens=max_step_tokens,
            max_sequences=max_batch,
            max_rows=rows,
            max_copies=max_batch,
            token_columns=token_columns,
        )
        return cls(vocab_size, context, layout, tuple(pools), max_batch, max_step_tokens, rows)


def check_capacity(capacity: Capacity) -> None:
    """Raise InvalidRequestError if a limit is no positive integer, or beyond the layout's."""
    layout = capacity.layout
    bounds = {
        "vocab_size": 2**31 - 1,
        "context": 2**31 - 1,
        "max_batch": layout.max_sequences,
        "max_step_tokens": layout.max_tokens,
        "max_rows": layout.max_rows,
    }
    values = [(name, getattr(capacity, name), most) for name, most in bounds.items()]
    values += [(f"pools[{g}]", size, 2**31 - 1) for g, size in enumerate(capacity.pools)]
    for name, value, most in values:
        if not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidRequestError(
                f"capacity.{name} is {value!r}, but must be an integer of 1 .. {most}", param=name
            )
    if len(capacity.pools) != len(capacity.groups):
        raise InvalidRequestError(
            f"{len(capacity.pools)} pools for {len(capacity.groups)} cache groups", param="pools"
        )


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


NO_COLUMNS: Mapping[str, array[int]] = {}


class BatchWriter:
    """Fills a buffer with a step: all sequences in turn, each followed by its rows."""

    def __init__(
        self, layout: StepLayout, into: memoryview | None = None, mtp: bool = False
    ) -> None:
        """into: int32[layout.words] of the device; without it the batch has its own buffer. mtp:
        whether the step runs `forward_mtp`, if the layout has it. It writes no sliding window, so
        its tokens have no slots there."""
        self._mtp = mtp
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
        columns: Mapping[str, array[int]] = NO_COLUMNS,
    ) -> int:
        """Add tokens of a sequence, the first of which is at `position`; a cache for each group.

        adapter: if the layout has LoRA slots. columns: values of the layout's `token_columns` that
        are not as for text (`plain_column`). Returns the index of the first token.
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
                    slots.append(
                        -1
                        if self._mtp and group.window is not None
                        else ids[position // size - cache.first] * size + position % size
                    )
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
            if layout.token_columns:
                slots += (found[0] for found in self._further(position, 1, columns))
            table.pack_into(self._words, at, tokens[0], position, index, *slots)
        else:
            self._chunk(tokens, position, caches, columns)
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
        filters: FilterParams = NO_FILTERS,
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

    def finish(self, prompts: int = 0) -> Batch:
        """The step. Its last entry closes the lists of the last sequence. prompts: how many of the
        last sequences compute tokens of their prompts."""
        layout, words = self._layout, self._words
        record, begins = [self._tokens, prompts], []
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
        more = [int(self._mtp)] if layout.has_mtp else []
        if layout.adapter_slots:
            record += NO_ADAPTER
            more.append(self._adapted)
        table = layout.sequences
        table.pack_into(words, table.first_byte + table.entry_bytes * self._sequences, *record)
        counts = (self._tokens, self._sequences, self._rows, self._copies, self._top_logprobs)
        layout.header.pack_into(words, 0, *counts, *begins, *more)
        return Batch(layout, words)

    def _further(
        self, position: int, count: int, columns: Mapping[str, array[int]]
    ) -> Iterator[array[int]]:
        """The layout's further columns of tokens, in order."""
        for name in self._layout.token_columns:
            found = columns.get(name)
            yield plain_column(name, position, count) if found is None else found

    def _chunk(
        self,
        tokens: Sequence[int],
        position: int,
        caches: Sequence[Cache],
        further: Mapping[str, array[int]],
    ) -> None:
        """Write the columns of several tokens at once."""
        table, count = self._layout.tokens, len(tokens)
        ids = tokens if isinstance(tokens, array) else int32(tokens)
        columns = [ids, int32(range(position, position + count))]
        columns.append(int32([self._sequences]) * count)
        for cache, group in zip(caches, self._layout.groups, strict=True):
            if isinstance(cache, PageList):
                if self._mtp and group.window is not None:
                    columns.append(int32([-1]) * count)
                else:
                    columns.append(_slots(cache, group.page_size, position, count))
        columns += self._further(position, count, further)
        start = table.offset + table.width * self._tokens
        stop = start + table.width * count
        for c, column in enumerate(columns):
            self._words[start + c : stop : table.width] = memoryview(column)


def plain_column(name: str, position: int, count: int) -> array[int]:
    """A further column of tokens of text, from `position` on: its position, or no hidden state, or
    the sequence's beginning."""
    constant = {"hidden_row": -1, "visible_from": 0, "source_row": 0}.get(name)
    if constant is not None:
        return int32([constant]) * count
    return int32(range(position, position + count))


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
