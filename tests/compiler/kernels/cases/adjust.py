"""Adjustments for the kernels of every device, and steps with top logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcc.device.reference.logits import adjust
from mlcc.device.reference.sampling import log_softmax
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import int32
from mlcc.engine.batch.tables import StepLayout
from tests.compiler.kernels.cases.step import GARBAGE, words_of, writer_of

Array = Any
LAST = np.array([5, 7, 9], np.int32)
"""Tokens that the previous step sampled for its rows."""
ROWS = 8
TOP_COUNTS = (0, 1, 5, 20, 20)


def adjusting(vocab: int) -> AdjustmentWriter:
    """A writer into a buffer full of garbage."""
    layout = AdjustLayout(ROWS, vocab)
    return AdjustmentWriter(layout, memoryview(int32([GARBAGE]) * layout.words))


def everything(vocab: int) -> Adjustments:
    """Adjustments of rows 0 .. 6 without row 1, of at least 100 tokens: each kind alone, and all
    together."""
    rng = np.random.default_rng(vocab)
    writer = adjusting(vocab)
    mask = writer.mask(mask_of(rng.choice(vocab, vocab // 2, replace=False).tolist(), vocab))
    only = writer.mask(mask_of([vocab - 1], vocab))
    some = Penalties(1.3, 0.5, 0.25)
    listed = {5: 0, 7: 2, vocab - 1: 3}
    writer.row(
        0, some, history=listed, in_flight=1, bias={7: 1.5, 5: -1, 8: -100.0}, mask=mask
    )  # the token in flight, 7, is listed and biased
    nearly_all = {token: token % 3 for token in range(vocab) if token != LAST[2]}
    writer.row(2, Penalties(0.7, -0.5, 0.25), history=nearly_all, in_flight=2)
    writer.row(3, mask=mask)
    writer.row(4, some, in_flight=0)
    writer.row(5, bias=dict.fromkeys(range(vocab), 0.125))
    writer.row(6, Penalties(2), history=listed, mask=only)
    return writer.finish()


def expected(logits: Array, adjustments: Adjustments) -> Array:
    """The logits as the numpy twin adjusts them."""
    return adjust(logits.copy(), adjustments, LAST)


def words_in(adjustments: Adjustments) -> Array:
    """The adjustments as the argument of a kernel: int32[layout.words]."""
    return np.frombuffer(adjustments.words, np.int32)


def top_step(layout: StepLayout, counts: Sequence[int] = TOP_COUNTS) -> Array:
    """Adjustment words of a step with one row for each count of top logprobs."""
    writer = writer_of(layout)
    for count in counts:
        writer.row(0, top_logprobs=count)
    return words_of(writer.finish())


def hard_rows(vocab: int) -> Array:
    """[5, vocab]: plain, few values with zeros of both signs, and nothing but one number."""
    rng = np.random.default_rng(vocab)
    logits = (rng.standard_normal((5, vocab)) * 3).astype(np.float32)
    logits[3] = rng.integers(-2, 3, vocab) * np.float32(-1)
    logits[4] = np.where(np.arange(vocab) % 2, np.nan, -np.inf)
    logits[4, vocab // 2] = -1e30
    return logits


def sampled(logits: Array) -> list[Array]:
    """(ids, logprobs) as `sample` might give them: of any token that has a probability."""
    ids = np.array([np.flatnonzero(np.isfinite(row))[-1] for row in logits], np.int32)
    rows = np.where(np.isnan(logits), -np.inf, logits.astype(np.float64))
    logprobs = [log_softmax(row)[i] for row, i in zip(rows, ids, strict=True)]
    return [ids, np.array(logprobs, np.float32)]
