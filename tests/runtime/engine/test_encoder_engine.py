"""The engine of encoders, without a device: the embedding of a text is a hash of its tokens."""

from __future__ import annotations

import random
from array import array
from zlib import crc32

import pytest

from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.events import Finished
from mlcc.engine.request import Request
from mlcc.engine.scheduler.waiting_queue import LEVEL
from mlcc.errors import DeviceError, InvalidRequestError

WIDTH = 3


def engine(pooling: str = "cls", pages: int = 12, **changed: int) -> EncoderEngine:
    sizes = {"vocab_size": 50, "context": 40, "max_batch": 4, "max_step_tokens": 40, **changed}
    capacity = Capacity.of([CacheGroup("paged", 4)], [pages], **sizes)
    return EncoderEngine(capacity, pooling, WIDTH)


def row(tokens: list[int]) -> bytes:
    seed = crc32(array("i", tokens).tobytes()) % 1000
    return array("f", [seed + i for i in range(WIDTH)]).tobytes()


def answer(made: EncoderEngine, batch: Batch) -> memoryview:
    """The result of a device: for each row a hash of its text's tokens."""
    layout = batch.layout
    ids = [int(i) for i in batch.column(layout.tokens, "id")]
    owners = [int(s) for s in batch.column(layout.tokens, "sequence")]
    slots = batch.column(layout.tokens, "slot.0")
    assert len({*slots}) == len(slots), "no two tokens share a place"
    assert max(slots) < made.capacity.pools[0] * 4
    wanted = [int(t) for t in batch.column(layout.rows, "token")]
    texts = [[i for i, o in zip(ids, owners, strict=True) if o == owners[t]] for t in wanted]
    return memoryview(b"".join(map(row, texts)))


def drain(made: EncoderEngine) -> list[Finished]:
    found: list[Finished] = []
    while made.has_work:
        batch = made.plan()
        assert batch is not None and made.plan() is None
        found += made.commit(answer(made, batch))  # type: ignore[arg-type]
    return found


def test_every_text_gets_its_own_row() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        made = engine(rng.choice(["cls", "last", "mean"]))
        texts = {}
        for i in range(rng.randint(1, 30)):
            tokens = [rng.randrange(50) for _ in range(rng.randint(1, 40))]
            texts[str(i)] = tokens
            made.add(Request(str(i), tokens, tenant=rng.choice("abc")))
        ends = drain(made)
        assert {end.request_id: end.vector for end in ends} == {k: row(t) for k, t in texts.items()}
        assert {end.reason for end in ends} == {"stop"} and not made.has_work
        stats = made.stats()
        assert stats.computed_tokens == sum(map(len, texts.values())) and not stats.running


@pytest.mark.parametrize("pooling, place", [("cls", 0), ("last", 4), ("mean", 0)])
def test_a_row_names_a_token_of_its_text(pooling: str, place: int) -> None:
    made = engine(pooling)
    made.add(Request("a", [1, 2, 3, 4, 5]))
    batch = made.plan()
    assert batch is not None
    assert batch.column(batch.layout.rows, "token") == [place]


def test_tenants_take_turns_and_short_texts_fill_a_step() -> None:
    made = engine()
    for i in range(6):
        made.add(Request(f"many-{i}", [1] * 30, tenant="many"))
    made.add(Request("short", [2] * 9, tenant="many"))
    made.add(Request("one", [3] * 8, tenant="other"))
    batch = made.plan()
    assert batch is not None
    assert [e.request_id for e in made.commit(answer(made, batch))] == ["many-0", "one"]  # type: ignore[arg-type]
    batch = made.plan()
    assert batch is not None
    assert [e.request_id for e in made.commit(answer(made, batch))] == ["many-1", "short"]  # type: ignore[arg-type]
    assert len(drain(made)) == 4


def test_a_long_text_is_not_starved_by_short_ones() -> None:
    made = engine()
    made.add(Request("first", [1] * 30))
    made.add(Request("long", [1] * 40))
    for i in range(20):
        made.add(Request(str(i), [2] * 10))
    ended = [end.request_id for end in drain(made)]
    assert ended.index("long") <= 2


def test_a_long_text_is_not_starved_by_another_tenants_short_ones() -> None:
    """A long text is computed although each step begins with a short one of another tenant."""
    made = engine()
    made.add(Request("short", [1], tenant="other"))
    made.add(Request("long", [1] * 40, tenant="mine"))
    ended: list[str] = []
    for step in range(6):
        for i in range(4):
            made.add(Request(f"other-{step}-{i}", [1], tenant="other"))
            made.add(Request(f"mine-{step}-{i}", [1], tenant="mine"))
        batch = made.plan()
        assert batch is not None
        ended += [end.request_id for end in made.commit(answer(made, batch))]  # type: ignore[arg-type]
    assert ended.index("long") <= 4


def test_priority_is_among_a_tenants_texts_and_ages() -> None:
    made = engine(max_batch=1)
    for name, priority, tenant in (("low", 1, "a"), ("high", -1, "a"), ("other", 9, "b")):
        made.add(Request(name, [1], priority=priority, tenant=tenant))
    assert [end.request_id for end in drain(made)] == ["high", "other", "low"]
    made.add(Request("low", [1] * 40, priority=1, tenant="a"))
    ended: list[str] = []
    for i in range(2 * LEVEL // 40):  # from then on who comes stands behind it
        made.add(Request(f"high-{i}", [1] * 40, tenant="a"))
        batch = made.plan()
        assert batch is not None
        ended += [end.request_id for end in made.commit(answer(made, batch))]  # type: ignore[arg-type]
    assert ended.index("low") == pytest.approx(LEVEL // 40, abs=2)


def test_cancelled_texts_end_once_wherever_they_are() -> None:
    made = engine(max_batch=1)
    made.add(Request("a", [1]))
    made.add(Request("b", [2]))
    batch = made.plan()
    assert batch is not None
    assert [end.reason for end in made.cancel("a")] == ["cancelled"]
    assert [end.reason for end in made.cancel("b")] == ["cancelled"]
    assert made.cancel("b") == []
    assert made.commit(answer(made, batch)) == [] and not made.has_work  # type: ignore[arg-type]


def test_a_failed_device_ends_all_and_the_engine_goes_on() -> None:
    made = engine()
    made.add(Request("a", [1]))
    made.plan()
    assert [end.reason for end in made.fail()] == ["error"]
    made.add(Request("a", [1]))
    assert [end.reason for end in drain(made)] == ["stop"]


def test_what_does_not_fit_is_refused() -> None:
    made = engine(pages=9)
    with pytest.raises(InvalidRequestError, match="the text has 37"):
        made.add(Request("a", [1] * 37))  # 9 pages of 4
    with pytest.raises(InvalidRequestError, match="token id 50"):
        made.add(Request("a", [50]))
    made.add(Request("a", [1]))
    with pytest.raises(InvalidRequestError, match="already in use"):
        made.add(Request("a", [1]))
    made.plan()
    with pytest.raises(DeviceError, match="gave 4 bytes"):
        made.commit(memoryview(b"1234"))


def test_background_texts_get_what_the_others_leave_of_a_step() -> None:
    made = engine(max_batch=3)
    for i in range(4):
        made.add(Request(f"batch-{i}", [1], background=True, tenant="a"))
    for i in range(5):
        made.add(Request(f"text-{i}", [1], tenant="a"))
    steps: list[list[str]] = []
    while made.has_work:
        batch = made.plan()
        assert batch is not None
        steps.append([end.request_id for end in made.commit(answer(made, batch))])  # type: ignore[arg-type]
    assert steps == [
        ["text-0", "text-1", "text-2"],
        ["text-3", "text-4", "batch-0"],
        ["batch-1", "batch-2", "batch-3"],
    ]
