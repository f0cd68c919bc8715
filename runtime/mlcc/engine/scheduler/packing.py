"""From scheduled chunks to the tables of a Batch. Decides nothing, see `scheduler.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter
from mlcc.engine.batch.batch import Batch, int32
from mlcc.engine.batch.batch_writer import BatchWriter
from mlcc.engine.batch.filters import NO_FILTERS
from mlcc.engine.batch.random import uniform
from mlcc.engine.batch.tables import StepLayout
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.scheduler.scheduler import Chunk
from mlcc.engine.sequence import TokenSequence


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
