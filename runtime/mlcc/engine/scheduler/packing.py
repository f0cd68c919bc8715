"""Packing: writes scheduled chunks into the tables of a Batch. It decides nothing (`scheduler.py`).

`DecodeStep` is the fast path for steady-state decode: it patches the previous step instead of
replanning. Most steps of a busy server only decode, with the same sequences as the step before, so
only a few columns change. Any other step, and the first after a change of the running sequences, is
planned by the scheduler, which would make the same step.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import sub
from typing import NamedTuple

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter
from mlcc.engine.batch.batch import (
    NO_COLUMNS,
    Batch,
    BatchWriter,
    PageList,
    StateSlot,
    int32,
    new_words,
)
from mlcc.engine.batch.filters import NO_FILTERS
from mlcc.engine.batch.random import Draws, uniform
from mlcc.engine.batch.tables import CacheGroup, StepLayout, Table
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.media_embeddings import MediaEmbeddings, media_columns
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.scheduler.scheduler import Chunk
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.speculator import DecodeStats


class Row(NamedTuple):
    """A logit row of a step. prompt_index: the prompt token whose log-probability it reports; -1 =
    a token is sampled. draft: draft tokens, each with a row after this one."""

    seq: TokenSequence
    prompt_index: int = -1
    draft: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Rows of the step for this row and its draft tokens."""
        return 1 + len(self.draft)


class Step(NamedTuple):
    """A step that is planned and not committed."""

    rows: list[Row]
    tokens: int
    """Tokens that it computes, draft tokens included; 0 = some are prompt tokens."""
    decodes: int = 0
    """Decoding sequences, including those that wait for their token in flight."""
    waited: bool = False
    """Whether any sequence waits."""

    @property
    def decode_stats(self) -> DecodeStats:
        """Statistics of the step, from which the speculator learns."""
        drafted = sum(len(row.draft) for row in self.rows)
        return DecodeStats(self.tokens, self.decodes, len(self.rows), drafted, self.waited)

    @property
    def width(self) -> int:
        """Rows of the step's result."""
        return sum(row.width for row in self.rows)


class AdjustedSequence(NamedTuple):
    """A row whose logits are adjusted."""

    logits_processor: LogitsProcessor
    row: int
    output_index: int
    """Output tokens before it."""
    in_flight: int
    """Row of the previous step that samples the last of them; -1 = all are known."""
    draft: tuple[int, ...] = ()
    """Draft tokens before it, counted in `output_index`."""


def pack(
    chunks: Sequence[Chunk],
    step: int,
    layout: StepLayout,
    pools: CacheManager,
    into: memoryview | None,
    media: MediaEmbeddings,
) -> tuple[Batch, list[Row], list[AdjustedSequence]]:
    """The batch of `step`, its logit rows, and the rows with adjustments. Marks the tokens as
    computed. chunks: in `step_order`."""
    writer = BatchWriter(layout, into)
    has_states = any(not group.has_pages for group in layout.groups)
    rows: list[Row] = []
    adjusted: list[AdjustedSequence] = []
    for copy in pools.copies:
        writer.copy(*copy)
    pools.clear_copies()
    prompts = 0
    for seq, count in chunks:
        prompts += _of_prompt(seq)
        ids, columns = _tokens(seq, count), NO_COLUMNS
        if seq.media and seq.media[-1].end > seq.computed:
            ids = media.placed(int32(ids), seq.media, seq.computed)
        if seq.media and layout.token_columns:
            columns = media_columns(seq.media, seq.computed, count)
        first = writer.sequence(ids, seq.computed, seq.caches, seq.adapter_use, columns)
        if has_states and not seq.draft:
            pools.advance(seq.caches)
        if seq.prompt_logprobs is not None:
            rows += _prompt_rows(writer, seq, first, count)
        seq.computed += count
        if seq.remaining == 0 or seq.draft:
            in_flight = seq.sampled_row if seq.pending else -1
            seq.sampled_step = step
            last = first + count - 1 - len(seq.draft)
            seq.sampled_row = _sample(writer, seq, last, 0, in_flight, adjusted)
            for drafted in range(1, len(seq.draft) + 1):
                _sample(writer, seq, last + drafted, drafted, -1, adjusted)
            seq.pending += 1 + len(seq.draft)
            rows.append(Row(seq, draft=seq.draft))
    return writer.finish(prompts), rows, adjusted


def _sample(
    writer: BatchWriter,
    seq: TokenSequence,
    token: int,
    drafted: int,
    in_flight: int,
    adjusted: list[AdjustedSequence],
) -> int:
    """Add a row that samples after token number `token` of the step, `drafted` draft tokens into
    the draft. in_flight: row of the previous step that samples that token; -1 = it is known.
    Returns the row."""
    position = seq.planned + drafted
    sampling = seq.request.sampling
    filters = seq.filter_state.filters(position) if seq.filter_state else NO_FILTERS
    draw, top = uniform(seq.stream, position), sampling.logprobs or 0
    row = writer.row(token, sampling, draw, top, filters=filters)
    if seq.logits_processor and seq.logits_processor.applies_to(
        output_index := position - seq.prompt_tokens
    ):
        draft = seq.draft[:drafted]
        adjusted.append(AdjustedSequence(seq.logits_processor, row, output_index, in_flight, draft))
    return row


def adjust(
    adjusted: Sequence[AdjustedSequence], layout: AdjustLayout, into: memoryview | None
) -> Adjustments:
    """The logit adjustments of the step packed last."""
    writer = AdjustmentWriter(layout, into)
    for logits_processor, row, output_index, in_flight, draft in adjusted:
        logits_processor.write(writer, row, output_index, in_flight, draft)
    return writer.finish()


def _prompt_rows(writer: BatchWriter, seq: TokenSequence, first: int, count: int) -> Iterator[Row]:
    """A row for each prompt token that follows a token of the chunk."""
    top = seq.request.sampling.logprobs or 0
    for at in range(seq.computed + 1, min(seq.computed + count + 1, seq.prompt_tokens)):
        token = first + at - seq.computed - 1
        writer.row(token, top_logprobs=top, given=seq.tokens[at])
        yield Row(seq, at)


def step_order(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks to pack in the order in which a step has them: those of prompts last, so that a device
    can treat decode and prefill apart, and of both single tokens first."""
    return sorted(chunks, key=lambda chunk: (_of_prompt(chunk[0]), chunk[1] > 1))


def _of_prompt(seq: TokenSequence) -> bool:
    """Whether the next tokens to compute begin within the prompt."""
    return seq.computed < seq.prompt_tokens


def _tokens(seq: TokenSequence, count: int) -> Sequence[int]:
    start = seq.computed
    if seq.draft:
        return int32((*seq.tokens[start:], *seq.draft))
    if count > 1:
        return seq.tokens[start : start + count]
    return (seq.tokens[start] if start < len(seq.tokens) else -1 - seq.sampled_row,)


class DecodeStep:
    """Steps of the same decoding sequences. Valid while the scheduler's `changes` stay the same."""

    def __init__(
        self,
        batch: Batch,
        chunks: Sequence[Chunk],
        rows: list[Row],
        pools: CacheManager,
        changes: int,
    ) -> None:
        """Continue after a batch for which `may_follow` is true. changes: the scheduler's."""
        self.chunks, self.rows, self.changes = chunks, rows, changes
        self.sequences = [row.seq for row in rows]
        self._layout, self._pools = batch.layout, pools
        self._image = new_words(batch.layout)
        used = batch.used_words
        self._image[:used] = batch.words[:used]
        self._left = min(seq.limit - seq.planned for seq in self.sequences)
        self._positions = int32([seq.computed for seq in self.sequences])
        """Positions of the next step's tokens."""
        self._saved = [sum(span.saved for span in seq.media) for seq in self.sequences]
        """Positions that images save, of M-RoPE."""
        streams = [seq.stream for seq in self.sequences]
        self._draws = Draws(streams, [position + 1 for position in self._positions])
        self._in_flight = int32(range(-1, -1 - len(rows), -1))
        self._steps = 0
        self._page_turns: defaultdict[int, list[int]] = defaultdict(list)
        """Step -> sequences that begin a page, or slide past one, in it."""
        for s in range(len(rows)):
            self._schedule_page_turn(s, 0)
        self._slots = [
            int32([_slot(seq, g, group, seq.computed) for seq in self.sequences])
            for g, group in self._paged
        ]
        self._clear_first_step()

    @staticmethod
    def may_follow(chunks: Sequence[Chunk], rows: Sequence[Row]) -> bool:
        """Whether a step only decodes, no sequence is at its limit, and the next token depends on
        nothing but the last. False if the prefix cache took a state: the next step then reads
        another slot than it writes."""
        return len(rows) == len(chunks) and all(
            n == 1 and seq.planned < seq.limit and seq.is_plain and _state_in_place(seq)
            for seq, n in chunks
        )

    def step(self, number: int, into: memoryview | None) -> Batch | None:
        """The next step, whose tokens are marked as computed. None if the scheduler must decide: a
        sequence is at its limit, or no page is free."""
        if not self._left or not self._turn_pages():
            return None
        seqs, layout, tokens = self.sequences, self._layout, self._layout.tokens
        known = not seqs[0].pending  # all were in the step before
        ids = int32([seq.tokens[-1] for seq in seqs]) if known else self._in_flight
        self._write(tokens, "id", ids)
        self._write(tokens, "position", self._positions)
        for name in layout.token_columns:
            if name == "visible_until":
                self._write(tokens, name, self._positions)
            elif name not in ("hidden_row", "source_row"):
                places = map(sub, self._positions, self._saved)
                self._write(tokens, name, int32(places))
        for (g, _), slots in zip(self._paged, self._slots, strict=True):
            self._write(tokens, f"slot.{g}", slots)
        self._positions, self._slots = _next(self._positions), [_next(s) for s in self._slots]
        self._write(layout.sequences, "length", self._positions)
        self._write(layout.rows, "uniform", memoryview(self._draws.next()).cast("B").cast("i"))
        for seq in seqs:
            seq.computed += 1
            seq.pending += 1
            seq.sampled_step = number
        self._left -= 1
        self._steps += 1
        return Batch(layout, self._copy_used(into))

    @property
    def _paged(self) -> list[tuple[int, CacheGroup]]:
        return [(g, group) for g, group in enumerate(self._layout.groups) if group.has_pages]

    def _clear_first_step(self) -> None:
        """Clear what only the first step had: copies, prompts, and states read from another
        slot."""
        layout = self._layout
        self._image[layout.header.at("copies")] = 0
        lengths = layout.sequences
        self._image[lengths.at("length") + lengths.width * len(self.sequences)] = 0
        for g, group in enumerate(layout.groups):
            if not group.has_pages:
                slots = int32([_state(seq, g).write for seq in self.sequences])
                self._write(layout.sequences, f"slot_in.{g}", slots)

    def _turn_pages(self) -> bool:
        """Allocate pages for sequences that begin one and free those outside the window; False if
        none is free."""
        turning = self._page_turns.pop(self._steps, ())
        for s in turning:
            seq = self.sequences[s]
            if not self._pools.claim(seq.caches, seq.computed, 1):
                return False
            for (g, group), slots in zip(self._paged, self._slots, strict=True):
                slots[s] = _slot(seq, g, group, seq.computed)
            self._schedule_page_turn(s, 1)
        if turning:
            self._write_lists()
        return True

    def _schedule_page_turn(self, s: int, ahead: int) -> None:
        """Schedule the next page turn of a sequence whose next token is `ahead` steps away."""
        seq = self.sequences[s]
        position = seq.computed + ahead
        turns = []
        for g, group in self._paged:
            turns.append(-(-position // group.page_size) * group.page_size)
            if group.window is not None:
                slides = (_pages(seq, g).first + 1) * group.page_size + group.window - 1
                turns.append(max(position, slides))
        if turns:
            self._page_turns[self._steps + min(turns) - seq.computed].append(s)

    def _write_lists(self) -> None:
        """Write the page lists, and where each sequence's begins."""
        layout, at = self._layout, self._layout.pages.offset
        for g, group in self._paged:
            ids, begins = int32(), int32([0])
            for seq in self.sequences:
                ids.extend(_pages(seq, g).ids)
                begins.append(len(ids))
            self._image[at : at + len(ids)] = memoryview(ids)
            self._image[layout.header.at(f"pages.{g}")] = at
            self._write(layout.sequences, f"first_page.{g}", begins)
            if group.window is not None:
                firsts = int32([_pages(seq, g).first for seq in self.sequences])
                self._write(layout.sequences, f"page_number.{g}", firsts)
            at += len(ids)

    def _write(self, table: Table, column: str, values: array[int] | memoryview) -> None:
        """Write a column, one entry per value."""
        first = table.at(column)
        self._image[first : first + table.width * len(values) : table.width] = memoryview(values)

    def _copy_used(self, into: memoryview | None) -> memoryview:
        """A copy of the words in use."""
        layout, image = self._layout, self._image
        words = new_words(layout) if into is None else into
        tokens, end = layout.tokens, Batch(layout, image).used_words
        middle = tokens.offset + tokens.width * len(self.sequences)
        words[:middle] = image[:middle]
        words[layout.pages.offset : end] = image[layout.pages.offset : end]
        return words


def _state_in_place(seq: TokenSequence) -> bool:
    return all(isinstance(c, PageList) or c.read == c.write for c in seq.caches)


def _next(values: array[int]) -> array[int]:
    return int32([value + 1 for value in values])


def _pages(seq: TokenSequence, group: int) -> PageList:
    cache = seq.caches[group]
    assert isinstance(cache, PageList)
    return cache


def _state(seq: TokenSequence, group: int) -> StateSlot:
    cache = seq.caches[group]
    assert isinstance(cache, StateSlot)
    return cache


def _slot(seq: TokenSequence, g: int, group: CacheGroup, position: int) -> int:
    """Slot of the token at a position; -1 if its page is not allocated yet."""
    number, offset = divmod(position, group.page_size)
    pages = _pages(seq, g)
    at = number - pages.first
    return pages.ids[at] * group.page_size + offset if at < len(pages.ids) else -1
