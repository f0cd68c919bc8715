"""From scheduled chunks to the tables of a Batch. Decides nothing, see `scheduler.py`."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.engine.batch import Batch
from mlcc.engine.batch_writer import BatchWriter
from mlcc.engine.caches import CachePools
from mlcc.engine.sampling import uniform
from mlcc.engine.scheduler import Chunk
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.tables import StepLayout


def pack(
    chunks: Sequence[Chunk],
    step: int,
    layout: StepLayout,
    pools: CachePools,
    into: memoryview | None,
) -> tuple[Batch, list[TokenSequence]]:
    """The batch of `step` and the sequence of each logit row; marks the tokens as computed.

    Single tokens come first, so that a device may treat decoding and prefill apart.
    """
    writer = BatchWriter(layout, into)
    has_states = any(not group.has_pages for group in layout.groups)
    rows: list[TokenSequence] = []
    for copy in pools.copies:
        writer.copy(*copy)
    pools.copied()
    for seq, count in sorted(chunks, key=_is_prefill):
        first = writer.sequence(_tokens(seq, count), seq.computed, seq.caches)
        if has_states:
            pools.advance(seq.caches)
        seq.computed += count
        if seq.remaining == 0:
            seq.sampled_step, seq.sampled_row = step, len(rows)
            draw = uniform(seq.stream, seq.computed)
            writer.row(first + count - 1, seq.request.sampling, draw)
            seq.pending += 1
            rows.append(seq)
    return writer.finish(), rows


def _is_prefill(chunk: Chunk) -> bool:
    return chunk[1] > 1


def _tokens(seq: TokenSequence, count: int) -> Sequence[int]:
    start = seq.computed
    if count > 1:
        return seq.tokens[start : start + count]
    return (seq.tokens[start] if start < len(seq.tokens) else -1 - seq.sampled_row,)
