"""The batch: one step of mixed prefill and decode rows, and its result.

A step is one buffer of 32-bit words, laid out by `tables.py`, in the CSR style of FlashInfer (Ye et
al., 2025); `batch_writer.py` fills it in place. Nothing here knows about requests (see
`request.py`) or tensors (see `mlcc.device`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from mlcc.engine.batch.tables import FLOATS, MOST_TOP_LOGPROBS, CacheGroup, StepLayout, Table
from mlcc.errors import InvalidRequestError


int32: Callable[..., array[int]] = partial(array, "i")
"""An int32 array of some values, which numpy, ctypes and JavaScript read without a copy."""


@dataclass(slots=True)
class PageList:
    """The pages of one sequence in one group, in order of position."""

    ids: array[int] = field(default_factory=int32)
    first: int = 0
    """Page number of ids[0]; earlier pages have slid out of the window."""
    room: int = 0
    """Tokens of the sequence that the pages hold."""


@dataclass(slots=True)
class StateSlot:
    """Slots where the state of one sequence is read and written, in one group."""

    read: int = -1
    """-1 = the state begins with zeros."""
    write: int = -1

    @property
    def room(self) -> int:
        """Tokens of the sequence that fit: unlimited once it has a slot."""
        return 0 if self.write < 0 else 1 << 31


Cache = PageList | StateSlot


class Batch:
    """One step: n tokens of b sequences, r of which need logits and a sample.

    Read-only, see `batch_writer.py`. A negative token id `-1 - i` stands for "the token sampled for
    row i of the previous step", so that a step may be planned before that token is known.
    """

    __slots__ = ("layout", "words")

    def __init__(self, layout: StepLayout, words: memoryview) -> None:
        self.layout = layout
        self.words = words
        """int32[layout.words]; the contents beyond the header's counts are undefined."""

    @property
    def num_tokens(self) -> int:
        return self.words[0]

    @property
    def num_sequences(self) -> int:
        return self.words[1]

    @property
    def num_rows(self) -> int:
        return self.words[2]

    @property
    def num_copies(self) -> int:
        return self.words[3]

    @property
    def top_logprobs(self) -> int:
        """The most top log-probabilities that a row requests; 0 = none."""
        return self.words[4]

    @property
    def adapted(self) -> int:
        """Sequences with a LoRA adapter."""
        layout = self.layout
        return self.words[layout.header.at("adapted")] if layout.adapter_slots else 0

    def num_pages(self, group: int) -> int:
        """Entries of a group's page list, over all sequences."""
        table = self.layout.sequences
        return self.words[table.at(f"first_page.{group}") + table.width * self.num_sequences]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes passed to the library beside the buffer, in the order of `StepLayout.sizes`."""
        groups = enumerate(self.layout.groups)
        pages = [self.num_pages(g) for g, group in groups if group.has_pages]
        return (self.num_tokens, self.num_sequences, self.num_rows, *pages)

    @property
    def used_words(self) -> int:
        """Words to upload, from the first on."""
        groups = enumerate(self.layout.groups)
        return self.layout.pages.offset + sum(self.num_pages(g) for g, x in groups if x.has_pages)

    def column(self, table: Table, name: str) -> list[int] | list[float]:
        """A column's values, one per entry. Sequences have one more entry than there are."""
        counts = {"sequences": self.num_sequences + 1, "rows": self.num_rows}
        counts |= {"copies": self.num_copies, "tokens": self.num_tokens, "header": 1}
        start, count = table.at(name), counts[table.name]
        words = self.words.cast("B").cast("f") if name in FLOATS else self.words
        return words[start : start + table.width * count : table.width].tolist()

    def page_list(self, group: int) -> list[int]:
        """A group's page ids, sequence after sequence."""
        start = self.words[self.layout.header.at(f"pages.{group}")]
        return self.words[start : start + self.num_pages(group)].tolist()


TopLogprobs = list[tuple[int, float]]
"""(token, natural log-probability), the likeliest first, the lowest token first among equals; fewer
if no other token has a probability."""


class Result(NamedTuple):
    """The device's result for one batch, one entry per logit row, in order."""

    tokens: Sequence[int]
    """[r] sampled token ids."""
    logprobs: Sequence[float]
    """[r] natural log-probability of each sampled token, from the adjusted logits, before
    temperature and filters."""
    top_logprobs: Sequence[TopLogprobs] | None = None
    """[r] the likeliest tokens of each row, as many as it requests; None = no row requests any."""


def pairs_of(tokens: Sequence[int], logprobs: Sequence[float]) -> list[TopLogprobs]:
    """The library's `top_logprobs`, MOST_TOP_LOGPROBS a row, as pairs; a token of -1 is none."""
    pairs = list(zip(tokens, logprobs, strict=True))
    starts = range(0, len(pairs), MOST_TOP_LOGPROBS)
    return [[p for p in pairs[i : i + MOST_TOP_LOGPROBS] if p[0] >= 0] for i in starts]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bounds of an executor; the engine schedules within them."""

    vocab_size: int
    context: int
    """Longest sequence in tokens, prompt and output together."""
    layout: StepLayout
    """The tables that the library reads, with its cache groups and the bounds compiled in."""
    pools: tuple[int, ...]
    """Pages, or slots, of each group."""
    max_batch: int
    """Sequences per step, at most the layout's."""
    max_step_tokens: int
    """Tokens per step over all sequences, at most the layout's: the prefill chunk."""
    max_rows: int
    """Logit rows per step, at most the layout's."""

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return self.layout.groups

    @property
    def most_pages(self) -> list[int]:
        """Most entries of each group's page list in one step, for which a library plans memory; 0
        for states."""
        layout = self.layout
        return [
            layout.max_sequences * group.most_pages(self.context, layout.max_tokens)
            if group.has_pages
            else 0
            for group in layout.groups
        ]

    @classmethod
    def of(
        cls,
        groups: Sequence[CacheGroup],
        pools: Sequence[int],
        *,
        vocab_size: int,
        context: int,
        max_batch: int,
        max_step_tokens: int,
        max_rows: int | None = None,
    ) -> Capacity:
        """A capacity whose layout has just these bounds."""
        rows = max_rows or max_batch
        layout = StepLayout.of(
            groups,
            context=context,
            max_tokens=max_step_tokens,
            max_sequences=max_batch,
            max_rows=rows,
            max_copies=max_batch,
        )
        return cls(vocab_size, context, layout, tuple(pools), max_batch, max_step_tokens, rows)


def check_capacity(capacity: Capacity) -> None:
    """Raise InvalidRequestError if a limit is no positive integer, or beyond the layout's."""
    layout = capacity.layout
    bounds = {
        "vocab_size": 2**31 - 1,
        "context": 2**31 - 1,
        "max_batch": layout.max_sequences,
        "max_step_tokens": layout.max_tokens,
        "max_rows": layout.max_rows,
    }
    values = [(name, getattr(capacity, name), most) for name, most in bounds.items()]
    values += [(f"pools[{g}]", size, 2**31 - 1) for g, size in enumerate(capacity.pools)]
    for name, value, most in values:
        if not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidRequestError(
                f"capacity.{name} is {value!r}, but must be an integer of 1 .. {most}", param=name
            )
    if len(capacity.pools) != len(capacity.groups):
        raise InvalidRequestError(
            f"{len(capacity.pools)} pools for {len(capacity.groups)} cache groups", param="pools"
        )
