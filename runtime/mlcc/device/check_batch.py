"""Checks that a batch keeps the contract of `tables.py`, as far as one batch alone can show it.

For the toy executor, and for debugging any other; production executors need not pay for it. It does
not see what the caches hold from earlier steps (`toy/executor.py` does).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Cache, Capacity, PageList, StateSlot, int32
from mlcc.engine.batch.tables import ADAPTER, FILTERS, MOST_TOP_LOGPROBS, CacheGroup
from mlcc.errors import UnsupportedError


class BadBatchError(AssertionError):
    """The engine planned a wrong step. A bug, so not an MlccError that could be answered."""


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence of a batch."""

    first: int
    """Its tokens are first : first + count of the batch."""
    count: int
    end: int
    """Length of the sequence after the step."""
    caches: tuple[Cache, ...]

    @property
    def start(self) -> int:
        """Position of its first token."""
        return self.end - self.count


def require(ok: bool, message: str) -> None:
    """Raise BadBatchError unless `ok`."""
    if not ok:
        raise BadBatchError(message)


def check_pages(
    capacity: Capacity,
    group: int,
    ids: Sequence[int],
    page_bytes: Sequence[int],
    size: int | None = None,
) -> None:
    """Raise BadBatchError unless the group has these pages, and the data has their size."""
    require(0 <= group < len(capacity.pools), f"pages of group {group}")
    pool = capacity.pools[group]
    require(all(0 <= page < pool for page in ids), f"pages {list(ids)[:9]} of a pool of {pool}")
    wanted = len(ids) * page_bytes[group]
    require(size in (None, wanted), f"{size} bytes for pages of {wanted}")


def check_embeddings(capacity: Capacity, slots: Sequence[int], width: int, size: int) -> None:
    """Raise UnsupportedError if there are no embeddings, BadBatchError unless these slots exist and
    rows of `width` numbers have this size."""
    if not capacity.embedding_slots:
        raise UnsupportedError(
            "the model was compiled without embeddings of images; compile a checkpoint that has a "
            "vision tower, without --no-vision"
        )
    require(all(0 <= slot < capacity.embedding_slots for slot in slots), f"slots {list(slots)[:9]}")
    require(size == 4 * width * len(slots), f"{size} bytes for {len(slots)} rows of {width}")


def check_batch(batch: Batch, capacity: Capacity, previous_rows: int) -> list[Span]:
    """Check a batch in full; returns its sequences. Raises BadBatchError. previous_rows: logit rows
    of the previous step, to which placeholders refer."""
    require(batch.layout == capacity.layout, "another layout")
    _check_sizes(batch, capacity)
    spans = list(_spans(batch))
    _check_copies(batch, capacity)
    _check_adapters(batch)
    for g, group in enumerate(capacity.groups):
        for span in spans:
            _check_cache(span, g, group, capacity)
        if not _is_unused(batch, group):
            _check_written(spans, g, group)
    _check_tokens(batch, spans, capacity, previous_rows)
    _check_rows(batch, capacity.vocab_size)
    return spans


def check_adjustments(
    adjustments: Adjustments, batch: Batch, capacity: Capacity, previous_rows: int
) -> None:
    """Raise BadBatchError unless adjustments keep the contract of `adjust_tables.py`."""
    layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
    require(adjustments.layout == layout, "adjustments of another layout")
    count = adjustments.num_rows
    require(0 <= count <= batch.num_rows, f"{count} rows are adjusted")
    require(layout.rows.end <= adjustments.used_words <= layout.words, "words in use")
    entries = list(adjustments.rows())
    rows = [entry.row for entry in entries]
    rising = all(a < b for a, b in pairwise(rows))
    require(rising and all(0 <= row < batch.num_rows for row in rows), f"rows {rows} are adjusted")
    for entry in entries:
        flying, penalties = entry.in_flight, entry.penalties
        require(-1 <= flying < previous_rows, f"row {flying} of {previous_rows} is in flight")
        finite = all(map(math.isfinite, (penalties.frequency, penalties.presence)))
        require(finite and 0 < penalties.repetition < math.inf, f"{penalties}")
        for pairs in (entry.history, entry.biases):
            tokens = [token for token, _ in pairs]
            require(len(set(tokens)) == len(tokens), f"a token is listed twice: {tokens}")
            require(all(0 <= t < capacity.vocab_size for t in tokens), f"tokens {tokens}")
        require(all(count >= 0 for _, count in entry.history), f"counts of {entry.history}")
        require(all(math.isfinite(bias) for _, bias in entry.biases), f"biases {entry.biases}")


def slot_of(cache: PageList, position: int, page_size: int) -> int:
    """Slot of the token at a position in its group's pool. Raises BadBatchError."""
    number, offset = divmod(position, page_size)
    require(number >= cache.first, f"position {position} is needed, but its page was freed")
    index = number - cache.first
    require(index < len(cache.ids), f"position {position} is behind the last page")
    return cache.ids[index] * page_size + offset


def _check_sizes(batch: Batch, capacity: Capacity) -> None:
    tokens, sequences, rows = batch.num_tokens, batch.num_sequences, batch.num_rows
    require(0 < tokens <= capacity.max_step_tokens, f"{tokens} tokens in one step")
    require(0 < sequences <= capacity.max_batch, f"{sequences} sequences in one step")
    require(0 <= rows <= min(tokens, capacity.max_rows), f"{rows} logit rows of {tokens} tokens")
    require(0 <= batch.num_copies <= batch.layout.max_copies, f"{batch.num_copies} copies")
    layout = batch.layout
    begin = layout.pages.offset
    for g, group in enumerate(layout.groups):
        if group.has_pages:
            at = batch.words[layout.header.at(f"pages.{g}")]
            require(at == begin, f"group {g}'s pages begin at word {at} instead of {begin}")
            begin += batch.num_pages(g)
    require(begin <= layout.pages.end, f"{begin - layout.pages.offset} entries of page lists")


def _check_adapters(batch: Batch) -> None:
    layout = batch.layout
    if not layout.adapter_slots:
        return
    columns = (batch.column(layout.sequences, name) for name in ADAPTER)
    uses = [(int(slot), int(rank)) for slot, rank in zip(*columns, strict=True)]
    for slot, rank in uses:
        require(-1 <= slot < layout.adapter_slots, f"the slot {slot} of an adapter")
        require(rank > 0 if slot >= 0 else rank == 0, f"rank {rank} of slot {slot}")
    adapted = sum(slot >= 0 for slot, _ in uses)
    require(batch.adapted == adapted and uses[-1] == (-1, 0), f"{batch.adapted} are adapted")


def _spans(batch: Batch) -> Iterator[Span]:
    table = batch.layout.sequences
    require(0 <= batch.num_prompts <= batch.num_sequences, f"{batch.num_prompts} prompts")
    first = _rising(batch, "first_token", batch.num_tokens, "tokens")
    lengths = batch.column(table, "length")
    caches = [_caches(batch, g, group) for g, group in enumerate(batch.layout.groups)]
    for s in range(batch.num_sequences):
        count = first[s + 1] - first[s]
        yield Span(first[s], count, int(lengths[s]), tuple(c[s] for c in caches))


def _rising(batch: Batch, name: str, total: int, what: str) -> list[int]:
    values = [int(v) for v in batch.column(batch.layout.sequences, name)]
    require(values[0] == 0 and values[-1] == total, f"{name} does not span 0 .. {total} {what}")
    require(all(a < b for a, b in pairwise(values)), f"{name} does not rise: {values}")
    return values


def _caches(batch: Batch, g: int, group: CacheGroup) -> list[Cache]:
    table = batch.layout.sequences
    if not group.has_pages:
        pairs = zip(
            batch.column(table, f"slot_in.{g}"), batch.column(table, f"slot_out.{g}"), strict=True
        )
        return [StateSlot(int(a), int(b)) for a, b in pairs]
    ids = batch.page_list(g)
    bounds = _rising(batch, f"first_page.{g}", len(ids), f"pages of group {g}")
    numbers = [0] * len(bounds)
    if group.window is not None:
        numbers = [int(n) for n in batch.column(table, f"page_number.{g}")]
    return [
        PageList(int32(ids[a:b]), number)
        for (a, b), number in zip(pairwise(bounds), numbers, strict=False)
    ]


def _check_copies(batch: Batch, capacity: Capacity) -> None:
    names = ("group", "source", "destination")
    columns = [batch.column(batch.layout.copies, name) for name in names]
    copies = [tuple(map(int, entry)) for entry in zip(*columns, strict=True)]
    written = {(g, to) for g, _, to in copies}
    require(len(written) == len(copies), f"two copies to one place: {copies}")
    for g, source, to in copies:
        require(0 <= g < len(capacity.pools), f"a copy in group {g}")
        inside = 0 <= source < capacity.pools[g] and 0 <= to < capacity.pools[g]
        require(inside and (g, source) not in written, f"a copy of {source} to {to}")


def _check_cache(span: Span, g: int, group: CacheGroup, capacity: Capacity) -> None:
    require(span.start >= 0, f"{span.count} new tokens in a sequence of {span.end}")
    require(span.end <= capacity.context, f"a sequence of {span.end} exceeds the context")
    cache, pool = span.caches[g], capacity.pools[g]
    if isinstance(cache, StateSlot):
        require(0 <= cache.write < pool and -1 <= cache.read < pool, f"slots {cache} of {pool}")
        require((cache.read < 0) == (span.start == 0), f"position {span.start} reads {cache.read}")
        return
    require(all(0 <= p < pool for p in cache.ids), f"page out of range: {list(cache.ids)}")
    require(len(set(cache.ids)) == len(cache.ids), f"a page is twice: {list(cache.ids)}")
    pages = -(-span.end // group.page_size)
    require(cache.first + len(cache.ids) == pages, f"{cache} for a sequence of {span.end}")


def _check_written(spans: Sequence[Span], g: int, group: CacheGroup) -> None:
    """Check that no page or slot is written by two sequences of the step."""
    if group.kind == "state":
        writes = [c.write for s in spans if isinstance(c := s.caches[g], StateSlot)]
        require(len(set(writes)) == len(writes), f"two sequences write one of the slots {writes}")
        for i, span in enumerate(spans):
            cache = span.caches[g]
            others = writes[:i] + writes[i + 1 :]
            shared = isinstance(cache, StateSlot) and cache.read in others
            require(not shared, f"a slot that another sequence writes is read: {cache}")
        return
    lists = [(span, c) for span in spans if isinstance(c := span.caches[g], PageList)]
    users = Counter(page for _, cache in lists for page in cache.ids)
    for span, cache in lists:
        for position in range(span.start, span.end):
            page = slot_of(cache, position, group.page_size) // group.page_size
            require(users[page] == 1, f"page {page} is written, but belongs to two sequences")


def _check_tokens(
    batch: Batch, spans: Sequence[Span], capacity: Capacity, previous_rows: int
) -> None:
    table, vocab = batch.layout.tokens, capacity.vocab_size + capacity.embedding_slots
    for token in map(int, batch.column(table, "id")):
        good = 0 <= token < vocab if token >= 0 else -1 - token < previous_rows
        require(good, f"token id {token}; vocabulary {vocab}, {previous_rows} rows before")
    positions = [p for span in spans for p in range(span.start, span.end)]
    require(batch.column(table, "position") == positions, f"positions are not {positions}")
    if "hidden_row" in table.columns and not batch.mtp:
        rows = batch.column(table, "hidden_row")
        require(all(row == -1 for row in rows), f"hidden states of {rows} in another step")
    if "visible_until" in table.columns:
        _check_visible(batch.column(table, "visible_until"), spans)
    if "visible_from" in table.columns:
        first = batch.column(table, "visible_from")
        good = all(0 <= seen <= own for seen, own in zip(first, positions, strict=True))
        require(good, f"tokens see from {first}")
    if "source_row" in table.columns:
        rows = batch.column(table, "source_row")
        good = all(0 <= row < max(1, capacity.embedding_slots) for row in rows)
        require(good, f"tokens attend to the rows from {rows}")
    owners = [s for s, span in enumerate(spans) for _ in range(span.count)]
    require(batch.column(table, "sequence") == owners, f"sequences are not {owners}")
    for g, group in enumerate(capacity.groups):
        if _is_unused(batch, group):
            require(set(batch.column(table, f"slot.{g}")) == {-1}, f"slots of group {g}")
        elif group.has_pages:
            _check_slots(batch.column(table, f"slot.{g}"), spans, g, group)


def _is_unused(batch: Batch, group: CacheGroup) -> bool:
    """Whether the step leaves a group alone: the layer that drafts writes no sliding window."""
    return batch.mtp and group.window is not None


def _check_visible(column: Sequence[float], spans: Sequence[Span]) -> None:
    for span in spans:
        seen = column[span.first : span.first + span.count]
        good = all(i <= last < span.end for i, last in enumerate(seen, span.start))
        require(good, f"tokens of {span.start} .. {span.end} see to {seen}")


def _check_slots(slots: Sequence[float], spans: Sequence[Span], g: int, group: CacheGroup) -> None:
    for span in spans:
        cache = span.caches[g]
        assert isinstance(cache, PageList)
        for i, position in enumerate(range(span.start, span.end), span.first):
            good = slot_of(cache, position, group.page_size)
            require(slots[i] == good, f"position {position} goes to slot {slots[i]}, not {good}")


def _check_rows(batch: Batch, vocab_size: int) -> None:
    table = batch.layout.rows
    rows = batch.column(table, "token")
    rising = all(a < b for a, b in pairwise(rows))
    require(rising and all(0 <= i < batch.num_tokens for i in rows), f"rows of tokens {rows}")
    temperature, top_k = batch.column(table, "temperature"), batch.column(table, "top_k")
    require(all(math.isfinite(t) and t >= 0 for t in temperature), "temperature")
    require(all(k >= 0 for k in top_k), "top_k")
    require(all(0 < p <= 1 for p in batch.column(table, "top_p")), "top_p")
    require(all(0 <= p <= 1 for p in batch.column(table, "min_p")), "min_p")
    require(all(0 <= u < 1 for u in batch.column(table, "uniform")), "uniform")
    for name in FILTERS:
        require(all(0 <= x < math.inf for x in batch.column(table, name)), name)
    given = batch.column(table, "given")
    require(all(-1 <= t < vocab_size for t in given), f"tokens {[*given]} are given")
    wanted = [int(k) for k in batch.column(table, "top_logprobs")]
    require(all(0 <= k <= MOST_TOP_LOGPROBS for k in wanted), f"top_logprobs {wanted}")
    most = max(wanted, default=0)
    require(batch.top_logprobs == most, f"{batch.top_logprobs} top logprobs, not {most}")
