"""What is in the batches: budgets, order, pipelining, preemption. Exact numbers on small cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from engine_drive import SMALL, toy_driver

from mlcc.engine import Batch, Engine, Request, Result, SamplingParams


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


def counts(batch: Batch) -> list[int]:
    return [b - a for a, b in pairwise(batch.qo_indptr)]


def test_a_batch_in_full() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=6))
    engine.add(Request("a", [1, 2, 3, 4, 5], SamplingParams(temperature=0.5, top_k=7)))
    engine.add(Request("b", [6, 7]))
    batch = plan(engine)
    assert list(batch.token_ids) == [6, 1, 2, 3, 4, 5], "single tokens come first"
    assert list(batch.positions) == [0, 0, 1, 2, 3, 4]
    a0, a1 = batch.page_indices[1], batch.page_indices[2]
    b0 = batch.page_indices[0]
    assert list(batch.token_slots) == [b0 * 4, *range(a0 * 4, a0 * 4 + 4), a1 * 4]
    assert list(batch.qo_indptr) == [0, 1, 6]
    assert list(batch.page_indptr) == [0, 1, 3]
    assert list(batch.last_page_len) == [1, 1]
    assert list(batch.logit_rows) == [5], "b's prompt is not complete"
    assert (list(batch.temperature), list(batch.top_k)) == ([0.5], [7])
    assert all(len(column) == 1 for column in (batch.top_p, batch.min_p, batch.uniforms))


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
    assert list(step(engine).token_ids) == [10, 11]
    step(engine)
    assert list(step(engine).token_ids) == [12]


def test_a_prompt_waits_until_its_pages_are_likely_to_last() -> None:
    engine = Engine(replace(SMALL, num_pages=5))
    engine.add(Request("a", [1] * 7, SamplingParams(max_tokens=2)))
    engine.add(Request("b", [2] * 9))
    assert (step(engine).num_sequences, engine.stats().waiting) == (1, 1), "3 + 1 pages of 3 free"
    step(engine)
    assert list(step(engine).token_ids) == [2] * 9


def test_pipelined_tokens_refer_to_rows_of_the_step_planned_before() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=4))
    engine.add(Request("a", [1, 1, 1]))
    first = plan(engine)
    engine.add(Request("b", [2, 2]))
    second = plan(engine)
    assert list(second.token_ids) == [-1, 2, 2]
    third = plan(engine)
    assert list(third.token_ids) == [-1, -2], "rows of the second step, not of the first"
    for batch in (first, second, third):
        engine.commit(zeros(batch))
        engine.check_integrity()
    assert list(plan(engine).token_ids) == [0, 0], "known by now"


def test_a_token_of_an_older_step_in_flight_is_waited_for() -> None:
    engine = Engine(replace(SMALL, num_pages=6))
    for name, prompt, longest in (("a", 8, 2), ("b", 3, 9), ("c", 2, 9)):
        engine.add(Request(name, [1] * prompt, SamplingParams(max_tokens=longest)))
    batches = [plan(engine) for _ in range(4)]
    assert [b.num_sequences for b in batches] == [3, 3, 2, 1], "c finds no page in the last"
    engine.commit(zeros(batches[0])), engine.commit(zeros(batches[1]))
    assert engine.stats().pages_free == 3, "a gave its pages back"
    batches.append(plan(engine))
    assert list(batches[4].positions) == [6], "b; c's token is of step 2, not of step 3"
    for batch in batches[2:]:
        engine.commit(zeros(batch))
    assert list(plan(engine).positions) == [7, 4], "c goes on"


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
    assert engine.stats().pages_free == SMALL.num_pages, "steps in flight come before new owners"
    assert engine.plan() is None and engine.has_work
    assert engine.commit(Result([3], [0.0])) == []
    assert engine.commit(Result([4], [0.0])) == []
    assert not engine.has_work


def test_no_step_is_lost_for_pages_that_steps_in_flight_write() -> None:
    """The last page goes from the youngest, while a step writes it, to the oldest, in one plan."""
    engine = Engine(replace(SMALL, page_size=2, num_pages=4, context=8))
    for name in "ab":
        engine.add(Request(name, [1], SamplingParams(max_tokens=7)))
    batches = [plan(engine) for _ in range(5)]
    assert [list(batch.positions) for batch in batches] == [[i, i] for i in range(4)] + [[4]]
    assert batches[4].page_indices[2] in batches[3].page_indices[2:], "it was b's"


def test_the_youngest_gives_way_and_comes_back() -> None:
    for depth in (1, 2, 3):
        driver = toy_driver(replace(SMALL, num_pages=8), depth=depth)
        for name in "abc":
            driver.add(Request(name, [1, 2, 3, 4, 5], SamplingParams(max_tokens=16)))
        got = driver.run()
        stats = driver.engine.stats()
        assert stats.preemptions > 0
        assert [len(g.tokens) for g in got.values()] == [16] * 3
        order = sorted(got, key=lambda name: got[name].tokens == [])
        assert order == list("abc")


def test_a_page_behind_the_window_is_given_back() -> None:
    engine = Engine(replace(SMALL, window=4))
    engine.add(Request("a", [1] * 9))
    assert -1 not in step(engine).page_indices
    assert step(engine).page_indices[0] == -1, "position 9 sees 6 and later"
    assert engine.stats().pages_free == SMALL.num_pages - 2


def test_more_sequences_than_tokens_in_a_step() -> None:
    engine = Engine(replace(SMALL, max_step_tokens=2))
    for i in range(4):
        engine.add(Request(str(i), [i] * 3, SamplingParams(max_tokens=4)))
    while engine.has_work:
        assert step(engine).num_tokens <= 2
