"""Decode steps that reuse columns of the step before equal newly planned ones, word for word."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Batch, Capacity, Engine, Request, SamplingParams
from mlcc.engine import engine as engine_module
from mlcc.engine.batch.random import Draws, stream_of, uniform
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.scheduler.packing import DecodeStep
from tests.runtime.engine.helpers.drive import small

PAGED, WINDOW, STATE = CacheGroup("paged", 4), CacheGroup("window", 2, 5), CacheGroup("state")
ANSWER = 30


class Counted(DecodeStep):
    """Counts the steps that it makes."""

    made = 0

    def step(self, number: int, into: memoryview | None) -> Batch | None:
        batch = super().step(number, into)
        Counted.made += batch is not None
        return batch


def columns(batch: Batch) -> list[object]:
    layout = batch.layout
    tables = (layout.header, layout.sequences, layout.rows, layout.copies, layout.tokens)
    found: list[object] = [batch.column(table, name) for table in tables for name in table.columns]
    paged = (g for g, group in enumerate(layout.groups) if group.has_pages)
    return [*found, *map(batch.page_list, paged)]


def steps(capacity: Capacity, requests: Sequence[Request], depth: int) -> Iterator[list[object]]:
    """The words sent to the device, up to the end of the last table in use."""
    engine, executor = Engine(capacity), ToyExecutor(capacity)
    for request in requests:
        engine.add(request)
    tickets: deque[int] = deque()
    while engine.has_work:
        while len(tickets) < depth and (batch := engine.plan()) is not None:
            engine.check_integrity()
            yield columns(batch)
            tickets.append(executor.submit(batch, engine.adjustments()))
        engine.commit(executor.collect(tickets.popleft()))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    "groups", [(PAGED,), (PAGED, WINDOW), (WINDOW, STATE), (STATE,)], ids=lambda g: g[0].kind
)
def test_the_words_of_a_step_are_those_of_one_planned_anew(
    groups: Sequence[CacheGroup], depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = [24 if group.has_pages else 9 for group in groups]  # short: they give way, too
    capacity = small(*groups, pools=pools, context=48)
    sampling = SamplingParams(max_tokens=ANSWER, seed=3)
    requests = [Request(str(i), [1 + i] * (3 + 4 * i), sampling) for i in range(3)]
    requests.append(Request("late", [9] * 5, SamplingParams(temperature=0, max_tokens=5)))

    monkeypatch.setattr(engine_module, "DecodeStep", Counted)
    Counted.made = 0
    found = list(steps(capacity, requests, depth))
    made = Counted.made
    monkeypatch.setattr(Counted, "may_follow", staticmethod(lambda chunks, rows: False))
    assert found == list(steps(capacity, requests, depth))
    assert Counted.made == made > ANSWER // 2


def test_what_hangs_on_more_than_the_last_token_is_planned_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "DecodeStep", Counted)
    Counted.made = 0
    special = (
        SamplingParams(max_tokens=9, presence_penalty=1.0),
        SamplingParams(max_tokens=9, mirostat=2),
        SamplingParams(max_tokens=9, xtc_probability=0.5),
    )
    for sampling in special:
        requests = [Request("a", [1, 2], SamplingParams(max_tokens=9)), Request("b", [3], sampling)]
        list(steps(small(), requests, 1))
        assert not Counted.made, sampling


seeds = st.lists(st.tuples(st.integers(), st.integers(0, 2**31)), min_size=1, max_size=9)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(seeds)
def test_draws_made_together_are_those_made_alone(seeds: list[tuple[int, int]]) -> None:
    streams = [stream_of(seed) for seed, _ in seeds]
    draws = Draws(streams, [index for _, index in seeds])
    for ahead in range(3):
        alone = [
            uniform(stream, index + ahead)
            for stream, (_, index) in zip(streams, seeds, strict=True)
        ]
        assert list(draws.next()) == alone
