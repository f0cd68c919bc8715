"""The contents of batches: budgets, order, pipelining, preemption. Exact numbers on small cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from mlcc.engine import Batch, Engine, Request, Result, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from tests.runtime.engine.helpers.drive import SMALL, small, toy_driver


def plan(engine: Engine) -> Batch:
    batch = engine.plan()
    assert batch is not None
    engine.check_integrity()
    return batch


def zeros(batch: Batch) -> Result:
    return Result([0] * batch.num_rows, [0.0] * batch.num_rows)


def step(engine: Engine) -> Batch:
    batch = plan(engine)
    engine.commit(zeros(batch))
    engine.check_integrity()
    return batch


def tokens(batch: Batch, column: str = "id") -> list[float]:
    return list(batch.column(batch.layout.tokens, column))


def sequences(batch: Batch, column: str) -> list[float]:
    return list(batch.column(batch.layout.sequences, column))


def rows(batch: Batch, column: str) -> list[float]:
    return list(batch.column(batch.layout.rows, column))


def counts(batch: Batch) -> list[float]:
    return [b - a for a, b in pairwise(sequences(batch, "first_token"))]


def test_a_batch_in_full() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=6))
    engine.add(Request("a", [1, 2, 3, 4, 5], SamplingParams(temperature=0.5, top_k=7)))
    engine.add(Request("b", [6, 7]))
    batch = plan(engine)
    assert tokens(batch) == [6, 1, 2, 3, 4, 5], "single tokens come first"
    assert tokens(batch, "position") == [0, 0, 1, 2, 3, 4]
    assert tokens(batch, "sequence") == [0, 1, 1, 1, 1, 1]
    b0, a0, a1 = batch.page_list(0)
    assert tokens(batch, "slot.0") == [b0 * 4, *range(a0 * 4, a0 * 4 + 4), a1 * 4]
    assert sequences(batch, "first_token") == [0, 1, 6]
    assert sequences(batch, "first_page.0") == [0, 1, 3]
    assert sequences(batch, "length")[:2] == [1, 5]
    assert rows(batch, "token") == [5], "b's prompt is not complete"
    assert (rows(batch, "temperature"), rows(batch, "top_k")) == ([0.5], [7])
    assert batch.sizes == (6, 2, 1, 3)
    assert batch.num_prompts == 2
    assert batch.used_words == batch.layout.pages.offset + 3


def test_prompts_are_last_and_counted() -> None:
    """Also of one token, as only their first step is a prompt's; so is what is left of a prompt."""
    engine = Engine(replace(SMALL, max_step_tokens=4))
    engine.add(Request("a", [1, 2, 3, 4, 5]))
    assert step(engine).num_prompts == 1
    assert step(engine).num_prompts == 1
    engine.add(Request("b", [6]))
    batch = step(engine)
    assert (batch.num_sequences, batch.num_prompts) == (2, 1)
    assert tokens(batch, "position") == [5, 0]
    batches = [step(engine) for _ in range(2)]
    assert [(b.num_sequences, b.num_prompts) for b in batches] == [(2, 0), (2, 0)]


def test_a_batch_of_all_kinds_of_groups() -> None:
    groups = CacheGroup("paged", 8), CacheGroup("window", 4, 5), CacheGroup("state")
    engine = Engine(small(*groups, pools=[9, 9, 3]), prefix_cache=False)
    engine.add(Request("a", [1] * 14))
    first = step(engine)
    assert (sequences(first, "slot_in.2")[0], sequences(first, "page_number.1")[0]) == (-1, 0)
    second = step(engine)
    assert sequences(second, "slot_in.2")[0] == sequences(first, "slot_out.2")[0] >= 0
    assert sequences(second, "page_number.1")[0] == 2, "position 14 sees 10 and later"
    assert second.page_list(0) == first.page_list(0)
    assert second.page_list(1) == first.page_list(1)[2:]
    assert second.sizes == (1, 1, 1, 2, 2)


def test_a_batch_is_written_where_the_device_says() -> None:
    engine = Engine(SMALL)
    engine.add(Request("a", [1, 2, 3]))
    lent = memoryview(bytearray(4 * SMALL.layout.words)).cast("i")
    batch = engine.plan(lent)
    assert batch is not None and batch.words is lent and lent[0] == 3


def test_prompts_run_in_chunks_beside_decoding() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=5))
    engine.add(Request("a", [1] * 3))
    engine.add(Request("b", [2] * 9))
    assert counts(step(engine)) == [3, 2]
    assert counts(step(engine)) == [1, 4]
    assert counts(step(engine)) == [1, 3]
    assert counts(step(engine)) == [1, 1]


def test_first_come_first_served_within_max_batch() -> None:
    engine = Engine(replace(SMALL, max_batch=2))
    for i in range(3):
        engine.add(Request(str(i), [10 + i], SamplingParams(max_tokens=2)))
    assert tokens(step(engine)) == [10, 11]
    step(engine)
    assert tokens(step(engine)) == [12]


def test_a_prompt_waits_until_its_pages_are_likely_to_last() -> None:
    engine = Engine(small(pools=[5]))
    engine.add(Request("a", [1] * 7, SamplingParams(max_tokens=2)))
    engine.add(Request("b", [2] * 9))
    assert (step(engine).num_sequences, engine.stats().waiting) == (1, 1), "3 + 1 pages of 3 free"
    step(engine)
    assert tokens(step(engine)) == [2] * 9


def test_pipelined_tokens_refer_to_rows_of_the_step_planned_before() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=4))
    engine.add(Request("a", [1, 1, 1]))
    first = plan(engine)
    engine.add(Request("b", [2, 2]))
    second = plan(engine)
    assert tokens(second) == [-1, 2, 2]
    third = plan(engine)
    assert tokens(third) == [-1, -2], "rows of the second step, not of the first"
    for batch in (first, second, third):
        engine.commit(zeros(batch))
        engine.check_integrity()
    assert tokens(plan(engine)) == [0, 0], "known by now"


def test_a_token_of_an_older_step_in_flight_is_waited_for() -> None:
    engine = Engine(small(CacheGroup("paged", 2), pools=[5]))
    for name in "ca":
        engine.add(Request(name, [1, 1], SamplingParams(max_tokens=9)))
    batches = [plan(engine) for _ in range(4)]
    assert [b.num_sequences for b in batches] == [2, 2, 2, 1], "a finds no page in the last"
    engine.cancel("c")
    assert engine.plan() is None, "a's token is of step 2, which is not the one before"
    for batch in batches:
        engine.commit(zeros(batch))
    assert tokens(plan(engine), "position") == [4], "a goes on"


def test_nothing_is_planned_past_a_known_end() -> None:
    for depth in (1, 2, 3):
        driver = toy_driver(depth=depth)
        driver.add(Request("a", [1] * 4, SamplingParams(max_tokens=5)))
        driver.run()
        stats = driver.engine.stats()
        assert (stats.computed_tokens, stats.sampled_tokens, stats.steps) == (4 + 4, 5, 5)


def test_rows_after_an_end_are_discarded() -> None:
    engine = Engine(SMALL, [9])
    engine.add(Request("a", [1]))
    plan(engine), plan(engine), plan(engine)
    assert len(engine.commit(Result([9], [0.0]))) == 1
    assert engine.plan() is None and engine.has_work
    assert engine.commit(Result([3], [0.0])) == []
    assert engine.stats().pages_free == sum(SMALL.pools), "what comes next writes later"
    assert engine.commit(Result([4], [0.0])) == []
    assert engine.stats().pages_free == sum(SMALL.pools) and not engine.has_work


def test_no_step_is_lost_for_pages_that_steps_in_flight_write() -> None:
    """The last page goes from the youngest, while a step writes it, to the oldest, in one plan."""
    engine = Engine(small(CacheGroup("paged", 2), pools=[4], context=8))
    for name in "ab":
        engine.add(Request(name, [1], SamplingParams(max_tokens=7)))
    batches = [plan(engine) for _ in range(5)]
    positions = [tokens(batch, "position") for batch in batches]
    assert positions == [[i, i] for i in range(4)] + [[4]]
    assert batches[4].page_list(0)[2] in batches[3].page_list(0)[2:], "it was b's"


def test_the_youngest_gives_way_and_comes_back() -> None:
    for depth in (1, 2, 3):
        driver = toy_driver(small(pools=[8]), depth=depth)
        for name in "abc":
            driver.add(Request(name, [1, 2, 3, 4, 5], SamplingParams(max_tokens=16)))
        got = driver.run()
        stats = driver.engine.stats()
        assert stats.preemptions > 0
        assert [len(g.tokens) for g in got.values()] == [16] * 3
        order = sorted(got, key=lambda name: got[name].tokens == [])
        assert order == list("abc")


def test_a_page_behind_the_window_is_given_back() -> None:
    engine = Engine(small(CacheGroup("window", 4, 4)))
    engine.add(Request("a", [1] * 9))
    assert sequences(step(engine), "page_number.0")[0] == 0
    assert sequences(step(engine), "page_number.0")[0] == 1, "position 9 sees 6 and later"
    assert engine.stats().pages_free == sum(SMALL.pools) - 2


def test_more_sequences_than_tokens_in_a_step() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=2))
    for i in range(4):
        engine.add(Request(str(i), [i] * 3, SamplingParams(max_tokens=4)))
    while engine.has_work:
        assert step(engine).num_tokens <= 2
