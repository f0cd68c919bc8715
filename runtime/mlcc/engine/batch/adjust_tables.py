"""Layout of logit adjustments: penalties, biases and forbidden tokens, applied before sampling.

The second upload of a step, made only if some row needs it, and the one place where its columns are
named. One buffer of 32-bit words as the step's (`tables.py`), floats by their bits:

    header      number of adjusted rows, and words in use
    rows        of each: its penalties, and where its lists lie
    lists       one after the other: histories, biases, masks; rows may share a mask

For each adjusted row, in this order:

    repetition  x > 0: x / repetition, else x * repetition (Keskar et al., 2019), for every token
                of the history
    frequency   x - frequency * count (OpenAI's API reference), for every token of the history
    presence    x - presence if count > 0 (OpenAI's API reference)
    bias        x + bias (OpenAI's `logit_bias`)
    mask        -inf for each token that is not allowed
    timestamps  in a model with timestamps, of a row with a mask: if all timestamps together are
                likelier than the likeliest other token, -inf for all others (Whisper's rule;
                Radford et al., 2022)

A history names each token once, with the number of times it was sampled; a count of 0 is for a
token of the prompt alone, which only `repetition` uses, as in vLLM. One token may still be in
flight: the one that the previous step sampled for its row `in_flight`. The library adds it to the
history, whether it is listed there or not.
"""

from __future__ import annotations

from functools import cached_property

from mlcc.engine.batch.tables import StepLayout, Table
from mlcc.util.fast_dataclass import fast_dataclass

HEADER = ("rows", "words")
ROWS = (
    "row", "in_flight", "repetition", "frequency", "presence",
    "history", "history_count", "biases", "bias_count", "mask",
)  # fmt: skip
"""row: of the step's rows. in_flight: row of the previous step, -1 = none. history, biases: the
word at which the row's list begins. mask: the word of its mask, 0 = every token is allowed."""
HISTORY = ("token", "count")
BIASES = ("token", "bias")
FLOATS = frozenset({"repetition", "frequency", "presence", "bias"})
"""Columns whose words are the bits of a float32."""
MASK_BITS = 32
"""Tokens per mask word: token t is bit t % 32 of word t // 32, 1 = allowed."""
_ENTRIES = 4096
"""Space for histories and biases of each row, in entries."""


@fast_dataclass(frozen=True)
class AdjustLayout:
    """Where adjustments lie, and the bounds compiled in: space for one row that names the whole
    vocabulary, and for a mask and 4,096 entries of each row."""

    max_rows: int
    vocab_size: int
    first_timestamp: int = 0
    """Tokens from here on are timestamps; 0 = none are. Kernels know it, the host need not."""

    @classmethod
    def of(cls, step: StepLayout, vocab_size: int) -> AdjustLayout:
        """The layout of adjustments for steps of a layout."""
        return cls(step.max_rows, vocab_size)

    @cached_property
    def header(self) -> Table:
        return Table("header", HEADER, 1, 0)

    @cached_property
    def rows(self) -> Table:
        return Table("rows", ROWS, self.max_rows, self.header.end, FLOATS)

    @property
    def mask_words(self) -> int:
        """Words of a mask."""
        return -(-self.vocab_size // MASK_BITS)

    @cached_property
    def words(self) -> int:
        """Size of the buffer in 32-bit words."""
        each = len(HISTORY) * _ENTRIES + self.mask_words
        return self.rows.end + len(HISTORY) * self.vocab_size + self.max_rows * each
