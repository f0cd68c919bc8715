"""Writes the logit adjustments of a step into their buffer, and reads them back: see
`adjust_tables.py`.

It knows no requests: penalties and histories come from `logits_processor.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mlcc.engine.batch.adjust_tables import HEADER, MASK_BITS, ROWS, AdjustLayout
from mlcc.engine.batch.batch import int32
from mlcc.engine.batch.tables import WORD
from mlcc.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Penalties:
    """Penalties of one row; the defaults change nothing."""

    repetition: float = 1.0
    """More than 0; above 1 makes tokens of the history less likely."""
    frequency: float = 0.0
    presence: float = 0.0


NO_PENALTIES = Penalties()


@dataclass(frozen=True, slots=True)
class AdjustedRow:
    """Adjustments of one row, as read back."""

    row: int
    in_flight: int
    penalties: Penalties
    history: list[tuple[int, int]]
    biases: list[tuple[int, float]]
    allowed: memoryview | None
    """int32[mask_words]; None = every token."""


class Adjustments:
    """Adjustments of one step. Read-only; `AdjustmentWriter` makes them."""

    __slots__ = ("layout", "words")

    def __init__(self, layout: AdjustLayout, words: memoryview) -> None:
        self.layout = layout
        self.words = words
        """int32[layout.words]; the contents beyond the words in use are undefined."""

    @property
    def num_rows(self) -> int:
        return self.words[0]

    @property
    def used_words(self) -> int:
        """Words to upload, from the first on."""
        return self.words[1]

    def rows(self) -> Iterator[AdjustedRow]:
        """Each adjusted row."""
        table, words = self.layout.rows, self.words
        floats = words.cast("B").cast("f")
        for i in range(self.num_rows):
            start = table.offset + table.width * i
            entry = dict(zip(ROWS, words[start : start + table.width], strict=True))
            at = {name: start + c for c, name in enumerate(ROWS)}
            h, b = entry["history"], entry["biases"]
            h_end, b_end = h + 2 * entry["history_count"], b + 2 * entry["bias_count"]
            mask = entry["mask"]
            yield AdjustedRow(
                entry["row"],
                entry["in_flight"],
                Penalties(*(floats[at[name]] for name in ("repetition", "frequency", "presence"))),
                list(zip(words[h:h_end:2], words[h + 1 : h_end : 2], strict=True)),
                list(zip(words[b:b_end:2], floats[b + 1 : b_end : 2], strict=True)),
                words[mask : mask + self.layout.mask_words] if mask else None,
            )


@dataclass
class AdjustmentWriter:
    """Writes the adjustments of a step into a buffer, a row at a time, in rising order."""

    layout: AdjustLayout
    into: memoryview | None = None
    """int32[layout.words] of the device; None = a buffer of its own."""
    _rows: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.into is None:  # pages of zeros that are never touched take no memory
            self.into = memoryview(bytearray(WORD * self.layout.words)).cast("i")
        self._words = self.into
        self._end = self.layout.rows.end

    def mask(self, allowed: array[int] | memoryview) -> int:
        """Write a mask, int32[mask_words]. The result is for `row`, also of several rows.

        Raises CapacityError if it does not fit.
        """
        count = self.layout.mask_words
        if len(allowed) != count:
            raise ValueError(f"a mask of {len(allowed)} words for {count * MASK_BITS} tokens")
        at = self._take(count)
        self._words[at : at + count] = memoryview(allowed)
        return at

    def row(
        self,
        row: int,
        penalties: Penalties = NO_PENALTIES,
        *,
        history: Mapping[int, int] | None = None,
        in_flight: int = -1,
        bias: Mapping[int, float] | None = None,
        mask: int = 0,
    ) -> None:
        """Adjust a row of the step. history: token -> count. bias: token -> value to add.

        Raises CapacityError beyond the bounds.
        """
        table = self.layout.rows
        if self._rows == table.entries:
            raise CapacityError(
                f"more than {table.entries} rows are adjusted, for which the model was compiled; "
                "compile it again with a larger --max-rows"
            )
        history, bias = history or {}, bias or {}
        tokens, biased = self._take(2 * len(history)), self._take(2 * len(bias))
        self._pairs(tokens, history, array("i", history.values()))
        self._pairs(biased, bias, _bits(bias.values()))
        table.pack_into(
            self._words, table.first_byte + table.entry_bytes * self._rows, row, in_flight,
            penalties.repetition, penalties.frequency, penalties.presence,
            tokens, len(history), biased, len(bias), mask,
        )  # fmt: skip
        self._rows += 1

    def finish(self) -> Adjustments:
        """The adjustments written."""
        self._words[: len(HEADER)] = int32((self._rows, self._end))
        return Adjustments(self.layout, self._words)

    def _take(self, count: int) -> int:
        """Reserve `count` words; returns the first."""
        at, most = self._end, self.layout.words
        if at + count > most:
            raise CapacityError(
                f"penalties, biases and masks of a step need {at + count} words, and the model was "
                f"compiled for {most}; answer fewer requests at once, or compile it again with a "
                "larger --max-rows"
            )
        self._end += count
        return at

    def _pairs(self, at: int, tokens: Iterable[int], values: array[int]) -> None:
        end = at + 2 * len(values)
        self._words[at:end:2] = memoryview(array("i", tokens))
        self._words[at + 1 : end : 2] = memoryview(values)


def mask_of(allowed: Iterable[int], vocab_size: int) -> array[int]:
    """A mask in which only these tokens are allowed."""
    bits = bytearray(MASK_BITS // 8 * -(-vocab_size // MASK_BITS))
    for token in allowed:
        bits[token // 8] |= 1 << token % 8
    words = int32()
    words.frombytes(bytes(bits))
    return words


def _bits(values: Iterable[float]) -> array[int]:
    """Floats by their bits."""
    words = int32()
    words.frombytes(array("f", values).tobytes())
    return words
