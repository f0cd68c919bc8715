"""Steps for the tests of paged attention: ragged, on shuffled pages. All else is NaN, so that a
read beyond the sequence spoils the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from mlcc.device.reference import attention as twin
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.batch import Batch, BatchWriter, Cache, PageList, StateSlot, int32
from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc_compiler.ir.layout import FP8_WORDS, INT8_WORDS, SCALED_FORMS, AttentionShape, KvLayout
from tests.compiler.kernels.cases.step import BOUNDS, GARBAGE, layout_of

MIXED = ((1, 1), (1, 16), (5, 5), (1, 17), (1, 200), (40, 130), (64, 64), (3, 300))
"""(queries, keys) of each sequence."""
OTHERS = (CacheGroup("window", 4, 30), CacheGroup("state"), CacheGroup("paged", 8))
"""Groups that may come before the one attended: each adds columns and a list before its own."""


@dataclass(frozen=True)
class Case:
    """One compiled kernel."""

    heads: int = 9
    kv_heads: int = 3
    dim: int = 64
    page: int = 16
    window: int | None = None
    softcap: float | None = None
    dtype: str = "float32"
    before: tuple[CacheGroup, ...] = ()
    bounds: tuple[int, ...] = BOUNDS
    sinks: bool = False
    causal: bool = True
    images: bool = False
    """Whether some runs of tokens see each other both ways."""
    windows: bool = False
    """With images: whether no token sees further back than its run."""

    @property
    def scale(self) -> float:
        return float(self.dim**-0.5)

    @property
    def shape(self) -> AttentionShape:
        numbers = (self.scale, self.window, self.softcap, self.sinks, self.causal)
        bounds = self.images, self.windows
        return AttentionShape(self.heads, self.kv_heads, self.dim, *numbers, *bounds)

    @property
    def step(self) -> StepLayout:
        window = self.window if self.causal else None
        kind = "paged" if window is None else "window"
        found = layout_of((*self.before, CacheGroup(kind, self.page, window)), self.bounds)
        columns = ("visible_until",) * self.images + ("visible_from",) * self.windows
        return replace(found, token_columns=columns)

    @property
    def layout(self) -> KvLayout:
        group = len(self.before)
        return KvLayout(self.page, self.dtype, self.kv_heads, self.dim, self.step, group)

    @property
    def arguments(self) -> tuple[AttentionShape, KvLayout]:
        """Arguments of the kernel's factory, after the device."""
        return self.shape, self.layout


@dataclass
class Inputs:
    """The inputs of attention in one step. The step's counts are no more than the sizes."""

    case: Case
    q: Any
    pages: Any
    scales: Any
    """Scales of 8-bit pages; None for others."""
    batch: Batch
    sequences: int
    """Sequences for which kernels are started."""
    entries: int
    """Entries of the group's page list for which kernels are started."""

    @property
    def tensors(self) -> list[Any]:
        pages = [self.pages]
        if self.scales is not None:
            words = self.case.dtype in (INT8_WORDS, FP8_WORDS)
            pages = [self.pages.view(np.uint32) if words else self.pages, self.scales]
        return [self.q, *pages, np.frombuffer(self.batch.words, np.int32)]

    @property
    def columns(self) -> list[Any]:
        """The tensors in the layout of CPUs."""
        q, pages, *rest = self.tensors
        return [q, laid_out(pages), *rest]

    @property
    def sinks(self) -> list[Any]:
        """None, or one: between the scores of the heads and far from them."""
        if not self.case.sinks:
            return []
        values = np.random.default_rng(0).standard_normal(self.case.heads) * 4
        values[:2] = 60, -60
        return [values.astype(np.float32)]

    @property
    def expected(self) -> Any:
        """The output of the numpy twin."""
        case = self.case
        step = StepView(self.batch)
        lists = step.lists(case.layout.group)
        numbers = (case.scale, case.window, case.softcap)
        sinks = self.sinks[0] if case.sinks else None
        until = step.tokens("visible_until") if case.images else None
        since = step.tokens("visible_from") if case.windows else None
        numbers = (*numbers, self.scales, sinks, case.causal, until, since)
        return twin.paged_attention(self.q, self.pages, lists, *numbers)


def key_columns(pages: Any) -> Any:
    """Pages as CPUs have them, keys dimension after dimension in the same place."""
    out = pages.copy()
    keys = pages[:, 0]
    out[:, 0] = np.ascontiguousarray(keys.swapaxes(-1, -2)).reshape(keys.shape)
    return out


def laid_out(pages: Any) -> Any:
    """Pages as CPUs have them: 8-bit numbers in fours, if there are whole ones, else columns."""
    *front, size, dim = pages.shape
    if pages.dtype != np.int8 or size % 4 or dim % 4:
        return key_columns(pages)
    fours = pages.reshape(*front, size, dim // 4, 4)
    out = pages.copy()
    out[:, 0] = fours[:, 0].swapaxes(-2, -3).reshape(pages[:, 0].shape)
    fours = pages.reshape(*front, size // 4, 4, dim)
    out[:, 1] = fours[:, 1].swapaxes(-1, -2).reshape(pages[:, 1].shape)
    return out


def key_rows(pages: Any) -> Any:
    """The inverse of `key_columns`."""
    out = pages.copy()
    *front, size, dim = pages[:, 0].shape
    out[:, 0] = pages[:, 0].reshape(*front, dim, size).swapaxes(-1, -2)
    return out


def inputs(case: Case, sequences: Any, seed: int = 0, padding: int = 0, prompts: int = 0) -> Inputs:
    """A step of these sequences, the last `prompts` of prompts, and room for `padding` tokens.

    Of a window group some lists begin with a page that has slid out already.
    """
    rng = np.random.default_rng(seed)
    unseen = [_unseen(case, *sequence) for sequence in sequences]
    slid = [int(pages - rng.integers(0, min(pages, 2) + 1)) for pages in unseen]
    counts = [-(-keys // case.page) for _, keys in sequences]
    free = rng.permutation(sum(counts) + 7).tolist()
    is_fp8 = case.dtype == FP8_WORDS
    is_8_bit = case.dtype in SCALED_FORMS
    kept = ("uint8" if is_fp8 else "int8") if is_8_bit else case.dtype
    shape = (len(free), 2, case.kv_heads, case.page)
    pages = np.full((*shape, case.dim), 99 if is_8_bit else np.nan, kept)
    scales = np.full(shape, np.nan, np.float32) if is_8_bit else None
    poisoned = [free.pop() for _ in range(7)]
    lists = []
    for s, (_, keys) in enumerate(sequences):
        ids = [free.pop() for _ in range(slid[s], counts[s])]
        lists.append(PageList(int32(ids), slid[s]))
        for i in range(unseen[s], counts[s]):
            used = min(case.page, keys - i * case.page)
            values = rng.standard_normal((2, case.kv_heads, used, case.dim))
            if scales is not None:
                rounded = twin.round_heads_fp8 if is_fp8 else twin.round_heads
                values, scales[ids[i - slid[s]], :, :, :used] = rounded(values)
            pages[ids[i - slid[s]], :, :, :used] = values
    batch = _step(case, sequences, lists, poisoned, rng, prompts)
    count = batch.num_tokens + padding
    q = rng.standard_normal((count, case.heads, case.dim)).astype(np.float32) * 2
    entries = batch.num_pages(case.layout.group)
    return Inputs(case, q, pages, scales, batch, batch.num_sequences, entries)


def alone(given: Inputs, s: int, begin: int = 0, end: int | None = None) -> Inputs:
    """The inputs of one sequence of a step, of all its tokens or of some: the keys of later ones
    are in its pages, and not seen."""
    case, view = given.case, StepView(given.batch)
    own = view.lists(case.layout.group)
    first, last = own.first_token[s : s + 2]
    ids = own.ids[own.first_page[s] : own.first_page[s + 1]]
    pages = PageList(int32(ids.tolist()), int(own.page_number[s]))
    end = last - first if end is None else end
    keys = own.length[s] - (last - first) + end
    of_prompt = int(s >= given.batch.num_sequences - given.batch.num_prompts)
    sequence, rng = (end - begin, keys), np.random.default_rng(s)
    batch = _step(case, [sequence], [pages], [0], rng, of_prompt)
    q = given.q[first + begin : first + end]
    return Inputs(case, q, given.pages, given.scales, batch, 1, len(ids))


def _unseen(case: Case, queries: int, keys: int) -> int:
    """Pages that have slid out of the window of all queries."""
    return 0 if not case.shape.slides else max(0, keys - queries + 1 - case.window) // case.page


def _step(
    case: Case,
    sequences: Any,
    lists: list[PageList],
    poisoned: list[int],
    rng: np.random.Generator,
    prompts: int = 0,
) -> Batch:
    """The lists of the groups before name poisoned pages only."""

    def other(group: CacheGroup, keys: int) -> Cache:
        if not group.has_pages:
            return StateSlot(poisoned[0], poisoned[0])
        ids = rng.choice(poisoned, -(-keys // group.page_size))
        return PageList(int32(ids.tolist()))

    rows = []
    for (_, keys), own in zip(sequences, lists, strict=True):
        rows.append([*(other(group, keys) for group in case.before), own])
    words = memoryview(int32([GARBAGE]) * case.step.words)
    writer = BatchWriter(case.step, words)
    for (queries, keys), caches in zip(sequences, rows, strict=True):
        count, start = int(queries), int(keys - queries)
        columns = _visible(start, count, rng, case.windows) if case.images else {}
        writer.sequence(int32([1]) * count, start, caches, columns=columns)
    return writer.finish(prompts)


def _visible(start: int, count: int, rng: np.random.Generator, windows: bool) -> dict[str, Any]:
    """The last position that each token sees, its own or its image's last; and the first: 0, or of
    windows a position up to that of their first token."""
    visible, begin, at = list(range(start, start + count)), [0] * count, 0
    while at < count:
        length = min(int(rng.integers(1, 50)), count - at)
        if windows or rng.integers(2):
            visible[at : at + length] = [start + at + length - 1] * length
        if windows:
            first = start + at - int(rng.integers(0, 2)) * int(rng.integers(0, start + at + 1))
            begin[at : at + length] = [first] * length
        at += length
    return {"visible_until": int32(visible), "visible_from": int32(begin)}


def in_pieces(case: Case, tokens: int, keys: int, attend: Callable[[Inputs], Any]) -> None:
    """Whether `tokens` tokens behind others have the same bits one by one and in steps of 2 to 9.
    Raises AssertionError."""
    given = inputs(case, ((tokens, keys),))
    one_by_one = np.concatenate([attend(alone(given, 0, i, i + 1)) for i in range(tokens)])
    for count in (2, 3, 4, 5, 9):
        ends = [*range(count, tokens, count), tokens]
        found = [attend(alone(given, 0, begin, end)) for begin, end in pairwise([0, *ends])]
        np.testing.assert_array_equal(np.concatenate(found), one_by_one)


def in_chunks(case: Case, tokens: int, keys: int, attend: Callable[[Inputs], Any]) -> None:
    """Whether `tokens` tokens of a prompt have the same bits as a whole and in chunks of 1 to 64.
    Raises AssertionError."""
    given = inputs(case, ((tokens, keys),), prompts=1)
    whole, rng = attend(given), np.random.default_rng(tokens)
    for longest in (4, 16, 64):
        ends = np.cumsum(rng.integers(1, longest + 1, tokens))
        cuts = [0, *ends[ends < tokens].tolist(), tokens]
        found = [attend(alone(given, 0, begin, end)) for begin, end in pairwise(cuts)]
        np.testing.assert_array_equal(np.concatenate(found), whole)
