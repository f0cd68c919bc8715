"""From scheduled chunks to the tables of a Batch. Decides nothing, see `scheduler.py`."""

from __future__ import annotations

from collections.abc import Sequence as Items

from mlcc.engine.batch import Batch, BatchWriter, PageList, RowSampling, StateSlot
from mlcc.engine.sampling import uniform
from mlcc.engine.scheduler import Chunk
from mlcc.engine.sequence import Sequence
from mlcc.engine.tables import StepLayout


def pack(
    chunks: Items[Chunk], step: int, layout: StepLayout, into: memoryview | None
) -> tuple[Batch, list[Sequence]]:
    """The batch of `step` and the sequence of each logit row; marks the tokens as computed.

    Single tokens come first, so that a device may treat decoding and prefill apart.
    """
    writer = BatchWriter(layout, _page_counts(chunks, len(layout.groups)), into)
    rows: list[Sequence] = []
    for seq, count in sorted(chunks, key=_is_prefill):
        first = writer.sequence(_tokens(seq, count), seq.computed, seq.caches)
        _hand_states_on(seq)
        seq.computed += count
        if seq.remaining == 0:
            seq.sampled_step, seq.sampled_row = step, len(rows)
            writer.row(first + count - 1, _sampling(seq))
            seq.pending += 1
            rows.append(seq)
    return writer.finish(), rows


def _is_prefill(chunk: Chunk) -> bool:
    return chunk[1] > 1


def _page_counts(chunks: Items[Chunk], groups: int) -> list[int]:
    counts = [0] * groups
    for seq, _ in chunks:
        for g, cache in enumerate(seq.caches):
            if isinstance(cache, PageList):
                counts[g] += len(cache.ids)
    return counts


def _tokens(seq: Sequence, count: int) -> Items[int]:
    start = seq.computed
    if count > 1:
        return seq.tokens[start : start + count]
    return (seq.tokens[start] if start < len(seq.tokens) else -1 - seq.sampled_row,)


def _hand_states_on(seq: Sequence) -> None:
    """The next step reads the states that this one writes."""
    for cache in seq.caches:
        if isinstance(cache, StateSlot):
            cache.read = cache.write


def _sampling(seq: Sequence) -> RowSampling:
    params = seq.request.sampling
    draw = uniform(seq.seed, seq.computed)
    return RowSampling(params.temperature, params.top_k, params.top_p, params.min_p, draw)
