"""Layouts and steps for the tests of kernels that read a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlcc.engine.batch.batch import Batch, BatchWriter, PageList, RowSampling, StateSlot, int32
from mlcc.engine.batch.filters import FilterParams
from mlcc.engine.batch.tables import TOKEN_COLUMNS, CacheGroup, StepLayout

GARBAGE = 0x3FFFFFFF
"""The value of unused words of a step's buffer: an index of nothing."""
BOUNDS = (1024, 40, 700, 4096, 8)
OTHER_BOUNDS = (1200, 99, 640, 8192, 33)
"""Names of a step's tables, in the order of their offsets."""
GROUPS = (
    CacheGroup("paged", 16),
    CacheGroup("state"),
    CacheGroup("window", 4, 9),
    CacheGroup("paged", 1),
)
"""Cache groups of every kind."""


def layout_of(
    groups: Sequence[CacheGroup] = GROUPS, bounds: tuple[int, ...] = BOUNDS
) -> StepLayout:
    """bounds: tokens, sequences, rows, pages, copies."""
    return StepLayout(tuple(groups), *bounds)


LAYOUTS = (layout_of(), layout_of(GROUPS[:1]), layout_of(GROUPS[::-1], OTHER_BOUNDS))


def placed_step() -> tuple[Batch, Any]:
    """A step of five tokens with time, row and column, far apart, and their positions."""
    layout = replace(layout_of(GROUPS[:1]), token_columns=TOKEN_COLUMNS[1:4])
    writer = BatchWriter(layout)
    places = {
        "position_t": int32([0, 7, 131071, 5, 5]),
        "position_h": int32([0, 100, 3, 32767, 6]),
        "position_w": int32([1, 9, 9, 8, 4095]),
    }
    pages = PageList(int32([3, 1]))
    writer.sequence(int32([1] * 5), 2, [pages], columns=places)
    return writer.finish(), np.arange(2, 7, dtype=np.int32)


def words_of(batch: Batch) -> Any:
    """The step as kernels take it: int32[layout.words]."""
    return np.frombuffer(batch.words, np.int32)


def writer_of(layout: StepLayout) -> BatchWriter:
    """A step in a buffer full of garbage."""
    return BatchWriter(layout, memoryview(int32([GARBAGE]) * layout.words))


def token_step(layout: StepLayout, sequences: Sequence[Sequence[int]], seed: int = 0) -> Batch:
    """Tokens of several sequences from some position on, with a row behind each but the first."""
    rng = np.random.default_rng(seed)
    rows = []
    for s, tokens in enumerate(sequences):
        position = int(rng.integers(0, 50))
        caches: list[Any] = []
        for group in layout.groups:
            if not group.has_pages:
                caches.append(StateSlot(s - 1, s))
                continue
            slid = 0
            if group.window is not None:
                slid = max(0, position - group.window + 1) // group.page_size
            count = -(-(position + len(tokens)) // group.page_size) - slid
            caches.append(PageList(int32(rng.permutation(500)[:count].tolist()), slid))
        rows.append((tokens, position, caches))
    writer = writer_of(layout)
    for s, row in enumerate(rows):
        first = writer.sequence(*row)
        if s:
            writer.row(first + len(row[0]) - 1)
    return writer.finish()


def sample_step(
    layout: StepLayout, rows: Sequence[tuple[float, ...]], given: Sequence[int] | None = None
) -> Batch:
    """A step with rows only, sampled by (temperature, top_k, top_p, min_p, uniform) and the further
    `FilterParams`, or with given tokens."""
    writer = writer_of(layout)
    for i, (temperature, top_k, top_p, min_p, uniform, *others) in enumerate(rows):
        sampling, token = (
            RowSampling(temperature, int(top_k), top_p, min_p),
            given[i] if given else -1,
        )
        writer.row(0, sampling, uniform, given=token, filters=FilterParams(*others))
    return writer.finish()


def copy_step(layout: StepLayout, copies: Sequence[tuple[int, int, int]]) -> Batch:
    """A step of nothing but copies: (group, source, destination)."""
    writer = writer_of(layout)
    for copy in copies:
        writer.copy(*copy)
    return writer.finish()
