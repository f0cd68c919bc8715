"""The writer of adjustments against plain collections, and its bounds."""

from __future__ import annotations

import random
import struct
from array import array
from dataclasses import dataclass

import pytest

from mlcc.device.check_batch import BadBatchError, check_adjustments
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import CapacityError

VOCAB, ROWS = 75, 6
CAPACITY = Capacity.of(
    [CacheGroup("paged", 4)],
    [16],
    vocab_size=VOCAB,
    context=64,
    max_batch=ROWS,
    max_step_tokens=8,
)
LAYOUT = AdjustLayout.of(CAPACITY.layout, VOCAB)


@dataclass
class Asked:
    """The adjustments of a row, as plain collections."""

    penalties: Penalties
    history: dict[int, int]
    in_flight: int
    bias: dict[int, float]
    allowed: set[int] | None


def some_row(rng: random.Random, masks: list[set[int]]) -> Asked:
    def tokens() -> list[int]:
        return rng.sample(range(VOCAB), rng.choice([0, 1, 7, VOCAB]))

    numbers = (rng.uniform(0.5, 2), rng.uniform(-2, 2), rng.uniform(-2, 2))
    return Asked(
        Penalties(*map(float32, numbers)),
        {token: rng.randrange(9) for token in tokens()},
        rng.randrange(-1, 3),
        {token: float32(rng.uniform(-100, 100)) for token in tokens()},
        rng.choice([None, *masks]),
    )


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def step(rows: int = ROWS) -> Batch:
    """A batch with rows only."""
    writer = BatchWriter(CAPACITY.layout)
    for _ in range(rows):
        writer.row(0)
    return writer.finish()


def written(asked: dict[int, Asked], masks: list[set[int]], into: bool) -> Adjustments:
    lent = memoryview(array("i", [0x3FFFFFFF]) * LAYOUT.words) if into else None
    writer = AdjustmentWriter(LAYOUT, lent)
    places = [(mask, writer.mask(mask_of(mask, VOCAB))) for mask in masks]
    for row, of in asked.items():
        place = next((at for mask, at in places if mask is of.allowed), 0)
        writer.row(
            row, of.penalties, history=of.history, in_flight=of.in_flight, bias=of.bias, mask=place
        )
    return writer.finish()


@pytest.mark.parametrize("seed", range(40))
def test_reads_back_as_it_was_asked(seed: int) -> None:
    rng = random.Random(seed)
    masks = [set(rng.sample(range(VOCAB), rng.randrange(VOCAB))) for _ in range(rng.randrange(3))]
    rows = sorted(rng.sample(range(ROWS), rng.randrange(ROWS + 1)))
    asked = {row: some_row(rng, masks) for row in rows}
    made = written(asked, masks, into=bool(seed % 2))
    check_adjustments(made, step(), CAPACITY, previous_rows=3)
    found = list(made.rows())
    assert [entry.row for entry in found] == rows
    for entry, of in zip(found, asked.values(), strict=True):
        assert entry.penalties == of.penalties and entry.in_flight == of.in_flight
        assert entry.history == list(of.history.items())
        assert entry.biases == list(of.bias.items())
        assert (entry.allowed is None) == (of.allowed is None)
        if entry.allowed is not None and of.allowed is not None:
            words = [word & 0xFFFFFFFF for word in entry.allowed]
            assert {t for t in range(32 * len(words)) if words[t // 32] >> t % 32 & 1} == of.allowed
    entries = sum(len(of.history) + len(of.bias) for of in asked.values())
    lists = 2 * entries + LAYOUT.mask_words * len(masks)
    assert made.used_words == LAYOUT.rows.end + lists


def test_a_row_may_name_the_whole_vocabulary_and_each_has_room() -> None:
    """The bounds of the layout, for a vocabulary larger than the space of a row."""
    layout = AdjustLayout(2, 10_000)
    writer = AdjustmentWriter(layout)
    for row, count in ((0, 10_000), (1, 4096)):
        mask = writer.mask(mask_of([], 10_000))
        writer.row(row, history=dict.fromkeys(range(count), 1), mask=mask)
    assert writer.finish().used_words <= layout.words


def test_more_than_the_bounds_is_refused() -> None:
    writer = AdjustmentWriter(LAYOUT)
    full = dict.fromkeys(range(VOCAB), 1)
    for row in range(ROWS):
        writer.row(row, history=full)
    with pytest.raises(CapacityError, match=f"more than {ROWS} rows are adjusted"):
        writer.row(ROWS)
    mask = mask_of([], VOCAB)
    with pytest.raises(CapacityError, match=f"compiled for {LAYOUT.words}"):
        for _ in range(LAYOUT.words):
            writer.mask(mask)
    assert writer.finish().used_words <= LAYOUT.words
    with pytest.raises(ValueError, match="a mask of 1 words"):
        writer.mask(array("i", [0]))


def test_the_check_knows_the_contract() -> None:
    """A token twice in a history, which a dict cannot give; rows and tokens that are none."""

    def refused(message: str, *rows: int, previous: int = 1, **of: object) -> None:
        writer = AdjustmentWriter(LAYOUT)
        for row in rows:
            writer.row(row, **of)  # type: ignore[arg-type]
        with pytest.raises(BadBatchError, match=message):
            check_adjustments(writer.finish(), step(3), CAPACITY, previous)

    refused("rows .* are adjusted", 1, 0)
    refused("rows .* are adjusted", 3)
    refused("in flight", 0, in_flight=1)
    refused("tokens", 0, history={VOCAB: 1})
    refused("tokens", 0, bias={-1: 1.0})
    refused("counts", 0, history={1: -1})
    refused("Penalties", 0, penalties=Penalties(repetition=0))
    refused("biases", 0, bias={1: float("inf")})
    writer = AdjustmentWriter(LAYOUT)
    writer.row(0, history={5: 1, 6: 1})
    made = writer.finish()
    made.words[made.used_words - 2] = 5
    with pytest.raises(BadBatchError, match="listed twice"):
        check_adjustments(made, step(3), CAPACITY, 1)
