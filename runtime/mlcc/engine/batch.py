"""What crosses the device boundary: one batch of mixed prefill and decode rows, and its result.

Flat int32 / float32 arrays in the CSR style of FlashInfer (Ye et al., 2025). Nothing here knows
about requests (see `request.py`) or tensors (see `mlcc.device`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field


def int32(values: Sequence[int] = ()) -> array[int]:
    """An int32 array, which numpy, ctypes and JavaScript read without a copy."""
    return array("i", values)


def float32(values: Sequence[float] = ()) -> array[float]:
    """A float32 array."""
    return array("f", values)


@dataclass(slots=True)
class Batch:
    """One step for the device: n tokens of b sequences, r of which need logits and a sample.

    A negative token id `-1 - i` stands for "the token sampled for row i of the previous step", so
    that a step may be planned before the previous one is known.
    """

    token_ids: array[int] = field(default_factory=int32)
    """[n] the tokens to run, sequence after sequence."""
    positions: array[int] = field(default_factory=int32)
    """[n] position of each token in its sequence."""
    token_slots: array[int] = field(default_factory=int32)
    """[n] page * page_size + offset where the token's keys and values go; -1 = nowhere."""
    qo_indptr: array[int] = field(default_factory=lambda: int32([0]))
    """[b + 1] sequence s owns tokens qo_indptr[s] : qo_indptr[s + 1]."""
    page_indptr: array[int] = field(default_factory=lambda: int32([0]))
    """[b + 1] sequence s owns page_indices[page_indptr[s] : page_indptr[s + 1]]."""
    page_indices: array[int] = field(default_factory=int32)
    """[p] page ids in order of position; -1 = freed, every query has slid past it."""
    last_page_len: array[int] = field(default_factory=int32)
    """[b] tokens in the last page once this step is appended: 1 .. page_size."""
    logit_rows: array[int] = field(default_factory=int32)
    """[r] indices into token_ids whose logits are wanted."""
    temperature: array[float] = field(default_factory=float32)
    """[r] 0 = greedy."""
    top_k: array[int] = field(default_factory=int32)
    """[r] keep the k most likely; 0 = all."""
    top_p: array[float] = field(default_factory=float32)
    """[r] keep the smallest most likely set of at least this mass; 1 = all."""
    min_p: array[float] = field(default_factory=float32)
    """[r] drop tokens less likely than min_p times the most likely; 0 = none."""
    uniforms: array[float] = field(default_factory=float32)
    """[r] one draw from [0, 1) per row, from the engine's counter-based generator."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_sequences(self) -> int:
        return len(self.last_page_len)

    @property
    def num_rows(self) -> int:
        return len(self.logit_rows)


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
    page_size: int
    """Tokens per page."""
    num_pages: int
    max_batch: int
    """Sequences per step, which is also the most logit rows per step."""
    max_step_tokens: int
    """Tokens per step over all sequences: the prefill chunk."""
    window: int | None = None
    """If every layer slides: tokens a query can see. Pages wholly behind it may be freed."""
