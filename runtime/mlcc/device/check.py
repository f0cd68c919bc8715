"""Whether a batch keeps the contract of `batch.py`, in every detail that one batch alone shows.

For the toy executor and for debugging any other; production executors need not pay for it. What
the pages hold from earlier steps is not seen here (see `toy.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlcc.engine.batch import Batch, Capacity


class BadBatchError(AssertionError):
    """The engine planned something wrong. A bug, so not an MlccError that could be answered."""


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence of a batch."""

    first: int
    """Its tokens are first : first + count of the batch."""
    count: int
    pages: Sequence[int]
    start: int
    """Position of its first token."""

    @property
    def end(self) -> int:
        """Length of the sequence after the step."""
        return self.start + self.count


def require(ok: bool, message: str) -> None:
    """Raise BadBatchError unless `ok`."""
    if not ok:
        raise BadBatchError(message)


def check_batch(batch: Batch, capacity: Capacity, previous_rows: int) -> list[Span]:
    """The sequences of a batch, which has been checked in full. Raises BadBatchError.

    `previous_rows` is the number of logit rows of the step before, to which placeholders refer.
    """
    _check_sizes(batch, capacity)
    spans = list(_spans(batch, capacity))
    for span in spans:
        _check_span(batch, span, capacity)
    _check_slots(batch, spans, capacity)
    _check_tokens(batch.token_ids, capacity.vocab_size, previous_rows)
    _check_rows(batch)
    return spans


def _check_sizes(batch: Batch, capacity: Capacity) -> None:
    tokens, sequences, rows = batch.num_tokens, batch.num_sequences, batch.num_rows
    require(0 < tokens <= capacity.max_step_tokens, f"{tokens} tokens in one step")
    require(0 < sequences <= capacity.max_batch, f"{sequences} sequences in one step")
    require(rows <= sequences, f"{rows} logit rows of {sequences} sequences")
    lengths = (len(batch.positions), len(batch.token_slots))
    require(lengths == (tokens, tokens), f"{tokens} tokens, but {lengths} positions and slots")
    _check_indptr("qo_indptr", batch.qo_indptr, sequences, tokens)
    _check_indptr("page_indptr", batch.page_indptr, sequences, len(batch.page_indices))


def _check_indptr(name: str, indptr: Sequence[int], sequences: int, total: int) -> None:
    require(len(indptr) == sequences + 1, f"{name} has {len(indptr)} entries")
    require(indptr[0] == 0 and indptr[-1] == total, f"{name} does not span 0 .. {total}")
    rising = all(a < b for a, b in pairwise(indptr))
    require(rising, f"{name} does not rise: {list(indptr)}")


def _spans(batch: Batch, capacity: Capacity) -> Iterator[Span]:
    for s in range(batch.num_sequences):
        first, last = batch.qo_indptr[s], batch.qo_indptr[s + 1]
        pages = batch.page_indices[batch.page_indptr[s] : batch.page_indptr[s + 1]]
        filled = batch.last_page_len[s]
        require(1 <= filled <= capacity.page_size, f"last_page_len is {filled}")
        length = (len(pages) - 1) * capacity.page_size + filled
        yield Span(first, last - first, pages, length - (last - first))


def _check_span(batch: Batch, span: Span, capacity: Capacity) -> None:
    require(span.start >= 0, f"{span.count} new tokens in a sequence of {span.end}")
    require(span.end <= capacity.context, f"a sequence of {span.end} exceeds the context")
    real = [page for page in span.pages if page != -1]
    require(all(0 <= p < capacity.num_pages for p in real), f"page out of range: {real}")
    require(len(set(real)) == len(real), f"a page is twice in one sequence: {real}")
    positions = list(batch.positions[span.first : span.first + span.count])
    require(positions == [*range(span.start, span.end)], f"positions {positions} from {span.start}")


def _check_slots(batch: Batch, spans: Sequence[Span], capacity: Capacity) -> None:
    """Each token goes to its own place, and no page that is written is part of two sequences."""
    size = capacity.page_size
    users: dict[int, int] = {}
    for span in spans:
        for page in span.pages:
            users[page] = users.get(page, 0) + 1
    for span in spans:
        for i in range(span.count):
            index, offset = divmod(span.start + i, size)
            page, slot = span.pages[index], batch.token_slots[span.first + i]
            require(page >= 0, f"position {span.start + i} is written to a freed page")
            require(users[page] == 1, f"page {page} is written, but belongs to two sequences")
            require(slot == page * size + offset, f"position {span.start + i} goes to slot {slot}")


def _check_tokens(tokens: Sequence[int], vocab: int, previous_rows: int) -> None:
    for token in tokens:
        good = 0 <= token < vocab if token >= 0 else -1 - token < previous_rows
        require(good, f"token id {token}; vocabulary {vocab}, {previous_rows} rows before")


def _check_rows(batch: Batch) -> None:
    rows = batch.logit_rows
    rising = all(a < b for a, b in pairwise(rows))
    require(rising and all(0 <= i < batch.num_tokens for i in rows), f"logit_rows {list(rows)}")
    columns = (batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.uniforms)
    lengths = [len(column) for column in columns]
    require(lengths == [len(rows)] * 5, f"{len(rows)} rows, sampling arrays of {lengths}")
    require(all(math.isfinite(t) and t >= 0 for t in batch.temperature), "temperature")
    require(all(k >= 0 for k in batch.top_k), "top_k")
    require(all(0 < p <= 1 for p in batch.top_p), "top_p")
    require(all(0 <= p <= 1 for p in batch.min_p), "min_p")
    require(all(0 <= u < 1 for u in batch.uniforms), "uniforms")
