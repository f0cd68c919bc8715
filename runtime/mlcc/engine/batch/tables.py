"""Layout of a step in its one buffer: four tables of 32-bit words and their columns.

The one place where columns are named: the engine writes by it, the compiler prints its offsets into
kernels, and the manifest carries it for readers in other languages. It holds no data (see
`batch.py`) and knows no requests. A new parameter of a step is a column here.

    header      counts of the step, and where each group's page list begins
    sequences   one more than there are: the last holds only where the lists end (CSR)
    rows        which token's logits are needed, and how to sample from them
    copies      pages or slots to copy before anything else is done
    tokens      tokens to run, sequence after sequence
    pages       page ids, group after group, within a group sequence after sequence

Tables begin at offsets that the compiled bounds fix, entries are row-major, pages are last: only
the words in use are uploaded. Floats are kept by their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from struct import Struct

from mlcc.util.fast_dataclass import fast_dataclass

WORD = 4
"""Bytes of a word."""
_ALIGNMENT = 64
"""Words, 256 bytes: tables begin where any device may bind."""

HEADER = ("tokens", "sequences", "rows", "copies", "top_logprobs")
"""Counts, and the most top log-probabilities that a row requests; after them, for each group with
pages, the word at which its page list begins."""
MTP = ("mtp",)
"""Added to the header of a model with a multi-token-prediction layer, after the page lists: 1 = the
step runs `forward_mtp`, the layer alone, instead of `forward`."""
TOKENS = ("id", "position", "sequence")
"""A negative id -1 - i stands for "the token sampled for row i of the previous step"."""
SEQUENCES = ("first_token", "length")
"""length: tokens of the sequence once this step is done. In the entry after the last: how many of
the last sequences compute tokens of their prompts. So that it does not matter how a prompt is cut
into chunks, kernels choose how they compute by that, and not by the number of tokens; 0, as from
older engines, leaves them to choose."""
ADAPTED = ("adapted",)
"""Added to the header of a model with LoRA slots, last: sequences that use one."""
ADAPTER = ("adapter", "adapter_rank")
"""Added to sequences of such a model, last. adapter: its slot on the device, -1 = none.
adapter_rank: number of rows of the slot's matrices that count, 0 without an adapter."""
FILTERS = (
    "top_n_sigma", "typical_p", "epsilon", "eta", "xtc", "dynatemp_range", "dynatemp_exponent",
)  # fmt: skip
"""Further parameters of `sample`: see `filters.py`."""
ROWS = (
    "token", "temperature", "top_k", "top_p", "min_p", "uniform", "top_logprobs", "given", *FILTERS,
)  # fmt: skip
"""token: index of the token whose logits are needed. top_logprobs: number of likeliest tokens to
report with their log-probabilities. given: the token that is "sampled" in any case, to get its
log-probability; -1 = one is drawn."""
COPIES = ("group", "source", "destination")
TOKEN_COLUMNS = (
    "visible_until", "position_t", "position_h", "position_w", "hidden_row", "visible_from",
    "source_row",
)  # fmt: skip
"""Added to tokens, last and in this order, each only if the model reads it.

visible_until: the position of the last token that a query attends to, its own or, in an image that
is seen both ways, the image's last. position_t, position_h, position_w: time, row and column of
multimodal rope (M-RoPE). hidden_row: in a step of `forward_mtp`, the token of the step before whose
hidden state the layer continues from; -1 = none, zeros. visible_from: the position of the first
token that a query attends to, in layers whose attention is in windows of an image. source_row: the
row of the embeddings from which on an encoder's keys and values of the sequence lie, for
cross-attention.
"""
MOST_TOP_LOGPROBS = 20
"""Compiled into every library: the most that OpenAI's API allows."""
FLOATS = frozenset({"temperature", "top_p", "min_p", "uniform", *FILTERS})
"""Columns whose words are the bits of a float32."""

OF_GROUP: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "paged": (("slot",), ("first_page",)),
    "window": (("slot",), ("first_page", "page_number")),
    "state": ((), ("slot_in", "slot_out")),
}
"""Columns that a cache group adds to tokens and to sequences, each name followed by `.group`:

slot: page * page_size + offset of the token's keys and values, -1 = nowhere. first_page: where the
sequence's pages begin in the group's list. page_number: page number of the first of its list;
earlier pages have slid out of the window. slot_in, slot_out: where the state is read (-1 = it
begins with zeros) and written; no slot written in a step is read by another sequence.
"""


@fast_dataclass(frozen=True)
class CacheGroup:
    """Layers whose caches grow and are freed alike: one pool, one page list per sequence."""

    kind: str
    """paged, window or state."""
    page_size: int = 1
    """Tokens per page; of a state group, 1: a slot holds a sequence."""
    window: int | None = None
    """Of a window group: tokens that a query sees, itself among them."""

    def __post_init__(self) -> None:
        if self.kind not in OF_GROUP:
            raise ValueError(f"a cache group of the unknown kind {self.kind!r}")
        if (self.window is not None) != (self.kind == "window"):
            raise ValueError(f"a cache group of kind {self.kind} has the window {self.window}")
        if self.page_size < 1 or (self.window is not None and self.window < 1):
            raise ValueError(f"a cache group has pages of {self.page_size}, window {self.window}")

    @cached_property
    def has_pages(self) -> bool:
        """Whether a sequence holds pages; of a state group it holds one slot."""
        return self.kind != "state"

    def most_pages(self, context: int, chunk: int) -> int:
        """Pages, or slots, of one sequence at its longest, with steps of `chunk` tokens."""
        if self.kind == "state":
            return 1
        tokens = context if self.window is None else min(context, self.window - 1 + chunk)
        whole = -(-tokens // self.page_size)
        # what a window covers may begin anywhere in its first page
        return whole if tokens == context else whole + 1


@fast_dataclass(frozen=True, slots=True)
class Table:
    """One table: `entries` of len(columns) words each, from word `offset` on."""

    name: str
    columns: tuple[str, ...]
    entries: int
    offset: int
    floats: frozenset[str] = FLOATS
    """Names of columns whose words are the bits of a float32."""
    width: int = field(init=False)
    """Words of an entry."""
    first_byte: int = field(init=False)
    entry_bytes: int = field(init=False)
    pack_into: Callable[..., None] = field(init=False, repr=False, compare=False)
    """(words, byte, *values): writes the entry that begins at a byte, one value per column."""

    def __post_init__(self) -> None:
        codes = ("f" if name in self.floats else "i" for name in self.columns)
        object.__setattr__(self, "width", len(self.columns))
        object.__setattr__(self, "first_byte", WORD * self.offset)
        object.__setattr__(self, "entry_bytes", WORD * self.width)
        object.__setattr__(self, "pack_into", Struct("<" + "".join(codes)).pack_into)

    def __reduce__(self) -> tuple[type[Table], tuple[object, ...]]:
        """A capacity is sent between processes; a packer cannot be."""
        return Table, (self.name, self.columns, self.entries, self.offset, self.floats)

    @property
    def end(self) -> int:
        return self.offset + self.width * self.entries

    def at(self, column: str) -> int:
        """The word of a column in entry 0; `width` further for each next entry.

        Raises KeyError if there is no such column.
        """
        if column not in self.columns:
            raise KeyError(f"table {self.name} has no column {column!r}: {', '.join(self.columns)}")
        return self.offset + self.columns.index(column)


@fast_dataclass(frozen=True)
class StepLayout:
    """The tables of a model's steps, from its cache groups and the bounds it is compiled for."""

    groups: tuple[CacheGroup, ...]
    max_tokens: int
    """Tokens of a step, over all sequences."""
    max_sequences: int
    max_rows: int
    """Logit rows of a step: several of a sequence where draft tokens are verified."""
    max_pages: int
    """Entries of all page lists of a step."""
    max_copies: int
    adapter_slots: int = 0
    """LoRA adapters on the device at once; 0 = compiled without."""
    token_columns: tuple[str, ...] = ()
    """Those of TOKEN_COLUMNS that the model reads."""

    @cached_property
    def header(self) -> Table:
        lists = [f"pages.{g}" for g, group in enumerate(self.groups) if group.has_pages]
        more = (*(MTP if self.has_mtp else ()), *(ADAPTED if self.adapter_slots else ()))
        return Table("header", (*HEADER, *lists, *more), 1, 0)

    @cached_property
    def has_mtp(self) -> bool:
        """Whether the library has `forward_mtp`."""
        return "hidden_row" in self.token_columns

    @cached_property
    def sequences(self) -> Table:
        more = ADAPTER if self.adapter_slots else ()
        columns = (*SEQUENCES, *self._of_groups(1), *more)
        return Table("sequences", columns, self.max_sequences + 1, _aligned(self.header.end))

    @cached_property
    def rows(self) -> Table:
        return Table("rows", ROWS, self.max_rows, _aligned(self.sequences.end))

    @cached_property
    def copies(self) -> Table:
        return Table("copies", COPIES, self.max_copies, _aligned(self.rows.end))

    @cached_property
    def tokens(self) -> Table:
        columns = (*TOKENS, *self._of_groups(0), *self.token_columns)
        return Table("tokens", columns, self.max_tokens, _aligned(self.copies.end))

    @cached_property
    def pages(self) -> Table:
        return Table("pages", ("id",), self.max_pages, _aligned(self.tokens.end))

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in the order of their offsets."""
        return self.header, self.sequences, self.rows, self.copies, self.tokens, self.pages

    @cached_property
    def words(self) -> int:
        """Size of the buffer in 32-bit words."""
        return _aligned(self.pages.end)

    @classmethod
    def of(
        cls,
        groups: Sequence[CacheGroup],
        *,
        context: int,
        max_tokens: int,
        max_sequences: int,
        max_rows: int,
        max_copies: int,
        token_columns: tuple[str, ...] = (),
    ) -> StepLayout:
        """With space for the page lists of `max_sequences` sequences at their longest."""
        lists = sum(group.most_pages(context, max_tokens) for group in groups if group.has_pages)
        pages = max_sequences * lists
        sizes = max_tokens, max_sequences, max_rows, pages, max_copies
        return cls(tuple(groups), *sizes, token_columns=token_columns)

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the numbers in a library's shape argument: n tokens, b sequences, r rows, and
        the entries of each group's page list, p0, p1 ..."""
        return ("n", "b", "r", *(f"p{g}" for g, group in enumerate(self.groups) if group.has_pages))

    def _of_groups(self, table: int) -> Iterator[str]:
        for g, group in enumerate(self.groups):
            yield from (f"{column}.{g}" for column in OF_GROUP[group.kind][table])


def _aligned(words: int) -> int:
    return -(-words // _ALIGNMENT) * _ALIGNMENT
