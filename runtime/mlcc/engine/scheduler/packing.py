"""From scheduled chunks to the tables of a Batch. Decides nothing, see `scheduler.py`.

The next step of sequences that all decode, made out of the one before: each is a token further.

Most steps of a busy server are such: nobody has come or gone since the last, and of its tables a
few columns differ. Those are rewritten here, each as a whole, in an image of the step, and nothing
else is decided or computed again. Whatever is not plain decoding, and the step after any change of
who runs, are `scheduler.py`'s and `packing.py`'s, which would plan just the same step.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter
from mlcc.engine.batch.batch import Batch, PageList, StateSlot, int32
from mlcc.engine.batch.batch_writer import BatchWriter, new_words
from mlcc.engine.batch.filters import NO_FILTERS
from mlcc.engine.batch.random import Draws, uniform
from mlcc.engine.batch.tables import CacheGroup, StepLayout, Table
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.scheduler.scheduler import Chunk
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.speculator import DecodeStats


class Row(NamedTuple):
    """Whose logits they are, and which token of its prompt is told; -1 = one is sampled. draft:
    guesses that the step computes, each of which has a row behind this one."""

    seq: TokenSequence
    told: int = -1
    draft: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Rows of the step that it stands for."""
        return 1 + len(self.draft)


class Step(NamedTuple):
    """A step that is planned and not committed."""

    rows: list[Row]
    tokens: int
    """That it computes, guesses among them, if none is of a prompt; 0 = some are."""
    decodes: int = 0
    """Sequences that decode, those among them that wait for their token in flight."""
    waited: bool = False
    """Whether there are such."""

    @property
    def decoded(self) -> DecodeStats:
        """What guessing is told of it."""
        guesses = sum(len(row.draft) for row in self.rows)
        return DecodeStats(self.tokens, self.decodes, len(self.rows), guesses, self.waited)

    @property
    def width(self) -> int:
        """Rows of its result."""
        return sum(row.width for row in self.rows)


class AdjustedSequence(NamedTuple):
    """A row whose logits are changed."""

    logits_processor: LogitsProcessor
    row: int
    said: int
    """Tokens of the answer before it."""
    in_flight: int
    """The row of the previous step that samples the last of them, -1 = all are known."""
    draft: tuple[int, ...] = ()
    """Guesses that are taken for said before it, and counted in `said`."""


def pack(
    chunks: Sequence[Chunk],
    step: int,
    layout: StepLayout,
    pools: CacheManager,
    into: memoryview | None,
) -> tuple[Batch, list[Row], list[AdjustedSequence]]:
    """The batch of `step`, what its logit rows are, and those rows that are adjusted; marks
    the tokens as computed.

    Single tokens come first, so that a device may treat decoding and prefill apart.
    """
    writer = BatchWriter(layout, into)
    has_states = any(not group.has_pages for group in layout.groups)
    rows: list[Row] = []
    adjusted: list[AdjustedSequence] = []
    for copy in pools.copies:
        writer.copy(*copy)
    pools.copied()
    for seq, count in sorted(chunks, key=_is_prefill):
        ids = _tokens(seq, count)
        first = writer.sequence(ids, seq.computed, seq.caches, seq.adapter_use)
        if has_states and not seq.draft:
            pools.advance(seq.caches)
        if seq.prompt_logprobs is not None:
            rows += _tell_prompt(writer, seq, first, count)
        seq.computed += count
        if seq.remaining == 0 or seq.draft:
            flying = seq.sampled_row if seq.pending else -1
            seq.sampled_step = step
            last = first + count - 1 - len(seq.draft)
            seq.sampled_row = _sample(writer, seq, last, 0, flying, adjusted)
            for guess in range(1, len(seq.draft) + 1):
                _sample(writer, seq, last + guess, guess, -1, adjusted)
            seq.pending += 1 + len(seq.draft)
            rows.append(Row(seq, draft=seq.draft))
    return writer.finish(), rows, adjusted


def _sample(
    writer: BatchWriter,
    seq: TokenSequence,
    token: int,
    guesses: int,
    flying: int,
    adjusted: list[AdjustedSequence],
) -> int:
    """A row for the token that follows number `token` of the step, behind so many guesses; returns
    its index. flying: the row of the step before that samples that token, -1 = it is known."""
    position = seq.planned + guesses
    sampling = seq.request.sampling
    filters = seq.filter_state.filters(position) if seq.filter_state else NO_FILTERS
    draw, top = uniform(seq.stream, position), sampling.logprobs or 0
    row = writer.row(token, sampling, draw, top, filters=filters)
    if seq.logits_processor and seq.logits_processor.acts(said := position - seq.prompt_tokens):
        draft = seq.draft[:guesses]
        adjusted.append(AdjustedSequence(seq.logits_processor, row, said, flying, draft))
    return row


def adjust(
    adjusted: Sequence[AdjustedSequence], layout: AdjustLayout, into: memoryview | None
) -> Adjustments:
    """What is done to the logits of a step that was packed just now."""
    writer = AdjustmentWriter(layout, into)
    for logits_processor, row, said, in_flight, draft in adjusted:
        logits_processor.write(writer, row, said, in_flight, draft)
    return writer.finish()


def _tell_prompt(writer: BatchWriter, seq: TokenSequence, first: int, count: int) -> Iterator[Row]:
    """A row for each token of the prompt that follows one of a chunk."""
    top = seq.request.sampling.logprobs or 0
    for at in range(seq.computed + 1, min(seq.computed + count + 1, seq.prompt_tokens)):
        token = first + at - seq.computed - 1
        writer.row(token, top_logprobs=top, given=seq.tokens[at])
        yield Row(seq, at)


def _is_prefill(chunk: Chunk) -> bool:
    return chunk[1] > 1


def _tokens(seq: TokenSequence, count: int) -> Sequence[int]:
    start = seq.computed
    if seq.draft:
        return int32((*seq.tokens[start:], *seq.draft))
    if count > 1:
        return seq.tokens[start : start + count]
    return (seq.tokens[start] if start < len(seq.tokens) else -1 - seq.sampled_row,)


class DecodeStep:
    """Steps of the same sequences. Good as long as the scheduler has made no changes since."""

    def __init__(
        self,
        batch: Batch,
        chunks: Sequence[Chunk],
        rows: list[Row],
        pools: CacheManager,
        changes: int,
    ) -> None:
        """Go on behind a batch of which `may_follow` is true. changes: the scheduler's."""
        self.chunks, self.rows, self.changes = chunks, rows, changes
        self.sequences = [row.seq for row in rows]
        self._layout, self._pools = batch.layout, pools
        self._image = new_words(batch.layout)
        used = batch.used_words
        self._image[:used] = batch.words[:used]
        self._left = min(seq.limit - seq.planned for seq in self.sequences)
        self._positions = int32([seq.computed for seq in self.sequences])
        """Of the tokens of the next step."""
        streams = [seq.stream for seq in self.sequences]
        self._draws = Draws(streams, [position + 1 for position in self._positions])
        self._in_flight = int32(range(-1, -1 - len(rows), -1))
        self._steps = 0
        self._turns: defaultdict[int, list[int]] = defaultdict(list)
        """Which sequences begin a page, or leave one behind, in which step."""
        for s in range(len(rows)):
            self._note_turn(s, 0)
        self._slots = [
            int32([_slot(seq, g, group, seq.computed) for seq in self.sequences])
            for g, group in self._paged
        ]
        self._settle()

    @staticmethod
    def may_follow(chunks: Sequence[Chunk], rows: Sequence[Row]) -> bool:
        """Whether a step only decodes, and nothing but the last token decides on the next; not
        where the prefix cache took a state, which the next step reads elsewhere than it writes."""
        return len(rows) == len(chunks) and all(
            n == 1 and seq.is_plain and _reads_what_it_writes(seq) for seq, n in chunks
        )

    def step(self, number: int, into: memoryview | None) -> Batch | None:
        """The next one, and marks its tokens as computed; None = the scheduler must decide, for a
        sequence is at its end or finds no page."""
        if not self._left or not self._turn_pages():
            return None
        seqs, layout, tokens = self.sequences, self._layout, self._layout.tokens
        known = not seqs[0].pending  # all were in the step before
        ids = int32([seq.tokens[-1] for seq in seqs]) if known else self._in_flight
        self._write(tokens, "id", ids)
        self._write(tokens, "position", self._positions)
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
        return Batch(layout, self._copied(into))

    @property
    def _paged(self) -> list[tuple[int, CacheGroup]]:
        return [(g, group) for g, group in enumerate(self._layout.groups) if group.has_pages]

    def _settle(self) -> None:
        """What only the first of these steps had: copies, and states that it read elsewhere."""
        layout = self._layout
        self._image[layout.header.at("copies")] = 0
        for g, group in enumerate(layout.groups):
            if not group.has_pages:
                slots = int32([_state(seq, g).write for seq in self.sequences])
                self._write(layout.sequences, f"slot_in.{g}", slots)

    def _turn_pages(self) -> bool:
        """Give pages to who begins one, and take those that nothing sees any more; False = there
        was none left."""
        turning = self._turns.pop(self._steps, ())
        for s in turning:
            seq = self.sequences[s]
            if not self._pools.claim(seq.caches, seq.computed, 1):
                return False
            for (g, group), slots in zip(self._paged, self._slots, strict=True):
                slots[s] = _slot(seq, g, group, seq.computed)
            self._note_turn(s, 1)
        if turning:
            self._write_lists()
        return True

    def _note_turn(self, s: int, ahead: int) -> None:
        """The next one of a sequence, if its next token is so many steps ahead."""
        seq = self.sequences[s]
        position = seq.computed + ahead
        turns = []
        for g, group in self._paged:
            turns.append(-(-position // group.page_size) * group.page_size)
            if group.window is not None:
                slides = (_pages(seq, g).first + 1) * group.page_size + group.window - 1
                turns.append(max(position, slides))
        if turns:
            self._turns[self._steps + min(turns) - seq.computed].append(s)

    def _write_lists(self) -> None:
        """The page lists, and where each sequence's begins."""
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
        """A column, as far as values go."""
        first = table.at(column)
        self._image[first : first + table.width * len(values) : table.width] = memoryview(values)

    def _copied(self, into: memoryview | None) -> memoryview:
        """The words in use."""
        layout, image = self._layout, self._image
        words = new_words(layout) if into is None else into
        tokens, end = layout.tokens, Batch(layout, image).used_words
        middle = tokens.offset + tokens.width * len(self.sequences)
        words[:middle] = image[:middle]
        words[layout.pages.offset : end] = image[layout.pages.offset : end]
        return words


def _reads_what_it_writes(seq: TokenSequence) -> bool:
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
    """Where the token at a position goes; -1 if the page is still to be given."""
    number, offset = divmod(position, group.page_size)
    pages = _pages(seq, g)
    at = number - pages.first
    return pages.ids[at] * group.page_size + offset if at < len(pages.ids) else -1
