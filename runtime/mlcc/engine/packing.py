"""From scheduled chunks to the flat arrays of a Batch. Decides nothing, see `scheduler.py`."""

from __future__ import annotations

from collections.abc import Sequence as Items

from mlcc.engine.batch import Batch
from mlcc.engine.sampling import uniform
from mlcc.engine.scheduler import Chunk
from mlcc.engine.sequence import Sequence


def pack(chunks: Items[Chunk], step: int, page_size: int) -> tuple[Batch, list[Sequence]]:
    """The batch of `step` and the sequence of each logit row; marks the tokens as computed.

    Single tokens come first, so that a device may treat decoding and prefill apart.
    """
    batch = Batch()
    rows: list[Sequence] = []
    for seq, count in sorted(chunks, key=_is_prefill):
        _append_tokens(batch, seq, count)
        _append_pages(batch, seq, count, page_size)
        seq.computed += count
        if seq.remaining == 0:
            _append_row(batch, seq)
            seq.sampled_step, seq.sampled_row = step, len(rows)
            seq.pending += 1
            rows.append(seq)
    return batch, rows


def _is_prefill(chunk: Chunk) -> bool:
    return chunk[1] > 1


def _append_tokens(batch: Batch, seq: Sequence, count: int) -> None:
    start = seq.computed
    if count > 1:
        batch.token_ids.extend(seq.tokens[start : start + count])
    else:
        known = start < len(seq.tokens)
        batch.token_ids.append(seq.tokens[start] if known else -1 - seq.sampled_row)
    batch.positions.extend(range(start, start + count))
    batch.qo_indptr.append(len(batch.token_ids))


def _append_pages(batch: Batch, seq: Sequence, count: int, page_size: int) -> None:
    position, end = seq.computed, seq.computed + count
    while position < end:
        index, offset = divmod(position, page_size)
        run = min(end - position, page_size - offset)
        slot = seq.pages[index] * page_size + offset
        batch.token_slots.extend(range(slot, slot + run))
        position += run
    batch.page_indices.extend(seq.pages)
    batch.page_indptr.append(len(batch.page_indices))
    batch.last_page_len.append((end - 1) % page_size + 1)


def _append_row(batch: Batch, seq: Sequence) -> None:
    params = seq.request.sampling
    batch.logit_rows.append(len(batch.token_ids) - 1)
    batch.temperature.append(params.temperature)
    batch.top_k.append(params.top_k)
    batch.top_p.append(params.top_p)
    batch.min_p.append(params.min_p)
    batch.uniforms.append(uniform(seq.seed, seq.computed))
