"""A step with numbers out of bounds is refused before a kernel runs, column by column; with any
words in the buffer nothing beyond it is read (test_sources.py runs this file under the address
sanitizer)."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcc.device.check_batch import BadBatchError, check_batch
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import Batch, BatchWriter, PageList, StateSlot, int32
from mlcc.engine.batch.tables import FILTERS, Table
from tests.runtime.device.helpers.unloaded import CAPACITY, Unloaded

LAYOUT = CAPACITY.layout
ADJUST = AdjustLayout.of(LAYOUT, CAPACITY.vocab_size)
LARGE, SMALL = 2**31 - 1, -(2**31)
BITS = {"f": lambda value: struct.unpack("<i", struct.pack("<f", value))[0]}


@pytest.fixture(scope="module")
def unloaded(demo: Path) -> Iterator[Unloaded]:
    made = Unloaded(demo)
    yield made
    made.executor.close()


def step(into: memoryview | None = None) -> Batch:
    """A chunk of 6 tokens from position 3 on, and one token at position 9; two copies."""
    writer = BatchWriter(LAYOUT, into)
    first = [PageList(int32([5, 7, 9])), PageList(int32([1, 2, 3, 4, 5])), StateSlot(2, 3)]
    writer.sequence([10, 11, 12, 13, 14, 15], 3, first)
    second = [PageList(int32([11, 12, 13])), PageList(int32([8, 9]), 3), StateSlot(4, 1)]
    writer.sequence([299], 9, second)
    writer.row(5)
    writer.row(6, top_logprobs=3)
    writer.copy(0, 20, 39)
    writer.copy(2, 0, 5)
    return writer.finish()


def adjusted(into: memoryview | None = None) -> Adjustments:
    """Adjustments of both rows, of every kind."""
    writer = AdjustmentWriter(ADJUST, into)
    mask = writer.mask(mask_of(range(0, 300, 7), 300))
    writer.row(0, Penalties(1.5), history={3: 1, 299: 2}, in_flight=0, bias={7: 1.5}, mask=mask)
    writer.row(1, bias={0: -1.0, 299: 2.0})
    return writer.finish()


def word(table: Table, column: str, entry: int = 0) -> int:
    return table.at(column) + table.width * entry


def test_a_sound_step_passes(unloaded: Unloaded) -> None:
    check_batch(step(), CAPACITY, 1)
    unloaded.check(step())
    unloaded.check(step(), adjusted())
    unloaded.check(
        step(unloaded.executor.step_buffer()), adjusted(unloaded.executor.adjustments_buffer())
    )


H, S, R, C, T, P = LAYOUT.tables[0], *LAYOUT.tables[1:]
COLUMNS = [
    *((word(H, name), (SMALL, -1, LARGE)) for name in H.columns),
    (word(H, "tokens"), (0, 6, 8, 17)),
    (word(H, "sequences"), (0, 1, 3, 5)),
    (word(H, "rows"), (9,)),
    (word(H, "copies"), (5,)),
    (word(H, "top_logprobs"), (0, 2, 4, 21)),
    *((word(S, "first_token", s), (SMALL, -1, 3, 8, LARGE)) for s in range(3)),
    *((word(S, "length", s), (SMALL, -1, 0, 5, 49, LARGE)) for s in range(2)),
    (word(S, "length", 2), (SMALL, -1, 3, LARGE)),
    *((word(S, f"first_page.{g}", s), (SMALL, -1, 1, 9, LARGE)) for g in (0, 1) for s in range(3)),
    *((word(S, "page_number.1", s), (SMALL, -1, 2, LARGE)) for s in range(2)),
    *((word(S, "slot_in.2", s), (SMALL, -2, 6, LARGE)) for s in range(2)),
    *((word(S, "slot_out.2", s), (SMALL, -1, 6, LARGE)) for s in range(2)),
    *((word(R, "token", r), (SMALL, -1, 7, LARGE)) for r in range(2)),
    (word(R, "top_k"), (SMALL, -1)),
    (word(R, "given"), (SMALL, -2, 300, LARGE)),
    (word(R, "top_logprobs", 1), (SMALL, -1, 2, 4, LARGE)),
    *((word(R, "temperature"), (BITS["f"](v),)) for v in (-1.0, float("nan"), float("inf"))),
    *((word(R, "top_p"), (BITS["f"](v),)) for v in (0.0, 1.5, float("nan"))),
    *((word(R, "min_p"), (BITS["f"](v),)) for v in (-0.5, 1.5, float("nan"))),
    *((word(R, name), (BITS["f"](v),)) for name in FILTERS for v in (-0.5, float("nan"))),
    *((word(R, "uniform"), (BITS["f"](v),)) for v in (-0.5, 1.0, float("nan"))),
    *((word(C, "group", c), (SMALL, -1, 3, LARGE)) for c in range(2)),
    *((word(C, name, 0), (SMALL, -1, 40, LARGE)) for name in ("source", "destination")),
    *((word(C, name, 1), (SMALL, -1, 6, LARGE)) for name in ("source", "destination")),
    *((word(T, "id", t), (SMALL, -2, 300, LARGE)) for t in (0, 6)),
    *((word(T, "position", t), (SMALL, -1, 2, 4, LARGE)) for t in (0, 6)[:1]),
    (word(T, "position", 6), (8, 10)),
    *((word(T, "sequence", t), (SMALL, -1, 2, LARGE)) for t in (0, 6)),
    *((word(T, "slot.0", t), (SMALL, -2, 160, LARGE)) for t in (0, 6)),
    *((word(T, "slot.1", t), (SMALL, -2, 48, LARGE)) for t in (0, 6)),
    (word(T, "visible_until"), (SMALL, 2, 9, LARGE)),
    (word(T, "visible_until", 6), (SMALL, 8, 10, LARGE)),
    *((word(T, "visible_from", t), (SMALL, -1, 10, LARGE)) for t in (0, 6)),
    *((word(T, f"position_{axis}", 6), (SMALL, -1, 48, LARGE)) for axis in "thw"),
    (word(T, "hidden_row"), (SMALL, -2, 1, LARGE)),
    (word(T, "source_row"), (SMALL, -1, 1, LARGE)),
    *((P.offset + i, (SMALL, -1, 40, LARGE)) for i in (0, 5)),
    *((P.offset + i, (SMALL, -1, 24, LARGE)) for i in (6, 12)),
]


@pytest.mark.parametrize(("at", "values"), COLUMNS)
def test_a_number_out_of_range_is_refused(
    unloaded: Unloaded, at: int, values: tuple[int, ...]
) -> None:
    batch = step(unloaded.executor.step_buffer())
    sound = batch.words[at]
    for value in values:
        batch.words[at] = value
        if value != sound:
            with pytest.raises(BadBatchError, match="a step with"):
                unloaded.check(batch)
    batch.words[at] = sound
    unloaded.check(batch)


A, ROWS = ADJUST.header, ADJUST.rows
LISTS = ROWS.end
IN_ADJUSTMENTS = [
    (A.at("rows"), (SMALL, -1, 3, LARGE)),
    (A.at("words"), (SMALL, -1, LISTS - 1, LISTS + 3, ADJUST.words + 1, LARGE)),
    (word(ROWS, "row"), (SMALL, -1, 1, 2, LARGE)),
    (word(ROWS, "row", 1), (SMALL, 0, 2, LARGE)),
    (word(ROWS, "in_flight"), (SMALL, -2, 1, LARGE)),
    *((word(ROWS, name), (SMALL, -1, LISTS - 1, LARGE)) for name in ("history", "biases")),
    *((word(ROWS, name), (SMALL, -1, 99, LARGE)) for name in ("history_count", "bias_count")),
    (word(ROWS, "mask"), (SMALL, -1, 1, LISTS - 1, LISTS + 20, LARGE)),
    (LISTS + 10, (SMALL, -1, 300, LARGE)),  # a token of the history, behind a mask of 10 words
    (LISTS + 14, (SMALL, -1, 300, LARGE)),  # and of the biases behind that
]


@pytest.mark.parametrize(("at", "values"), IN_ADJUSTMENTS)
def test_an_adjustment_out_of_range_is_refused(
    unloaded: Unloaded, at: int, values: tuple[int, ...]
) -> None:
    batch = step(unloaded.executor.step_buffer())
    adjustments = adjusted(unloaded.executor.adjustments_buffer())
    sound = adjustments.words[at]
    for value in values:
        adjustments.words[at] = value
        with pytest.raises(BadBatchError, match="a step with"):
            unloaded.check(batch, adjustments)
    adjustments.words[at] = sound
    unloaded.check(batch, adjustments)


def noise(rng: random.Random) -> int:
    return rng.choice((SMALL, -1, 0, 1, 2, rng.randrange(64), rng.randrange(4096), LARGE))


def scatter(rng: random.Random, words: memoryview) -> None:
    """Replace a few words by random ones."""
    for _ in range(rng.randrange(1, 4)):
        words[rng.randrange(len(words))] = noise(rng)


def everywhere(rng: random.Random, words: memoryview) -> None:
    """Replace all words by random ones."""
    words[:] = int32([rng.randrange(SMALL, LARGE) for _ in words])


@pytest.mark.parametrize("spoil", [scatter, everywhere], ids=lambda spoil: spoil.__name__)
def test_no_words_are_read_beyond_the_buffer(
    unloaded: Unloaded, spoil: Callable[[random.Random, memoryview], None]
) -> None:
    """Each is refused by its type, or is a step that could run; those that all of a batch's rules
    allow are among these."""
    rng = random.Random(11)
    lent, adjust = unloaded.executor.step_buffer(), unloaded.executor.adjustments_buffer()
    front = adjust[: LISTS + 40]
    refused = 0
    for _ in range(400 if spoil is everywhere else 4000):
        batch, adjustments = step(lent), adjusted(adjust)
        spoil(rng, rng.choice((lent, lent[: P.offset + 20], front)))
        allowed = within_the_rules(batch)
        try:
            unloaded.check(batch, adjustments)
        except BadBatchError:
            refused += 1
            untouched = adjustments.words[: LISTS + 20] == adjusted().words[: LISTS + 20]
            assert not (allowed and untouched), "a sound step was refused"
    assert refused > (300 if spoil is everywhere else 400)


def within_the_rules(batch: Batch) -> bool:
    """Check with the Python checker, which may raise other errors for words that are no step."""
    try:
        check_batch(batch, CAPACITY, 1)
    except (BadBatchError, ValueError, IndexError, OverflowError, MemoryError):
        return False
    return True
