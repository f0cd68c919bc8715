"""The oracle itself: that it raises at every kind of fault it is there to find."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
from engine_drive import SMALL

from mlcc.device.check import BadBatchError
from mlcc.device.toy import ToyExecutor
from mlcc.engine import Batch, Capacity, Engine, Request, SamplingParams
from mlcc.engine.batch import float32, int32

Change = Callable[[Batch], None]


def after_some_steps(capacity: Capacity = SMALL) -> tuple[ToyExecutor, Batch]:
    """An executor in the middle of two requests, and the next good batch: -1 -2 and a chunk."""
    engine, toy = Engine(capacity), ToyExecutor(capacity)
    for name, prompt in (("a", range(6)), ("b", range(1, 8))):
        engine.add(Request(name, prompt, SamplingParams(temperature=0.0)))
    for _ in range(3):
        batch = engine.plan()
        assert batch is not None
        engine.commit(toy.collect(toy.submit(batch)))
    engine.add(Request("c", range(5)))
    batch = engine.plan()
    assert batch is not None and list(batch.qo_indptr) == [0, 1, 2, 7]
    return toy, batch


def assign(name: str, index: int, value: float) -> Change:
    def change(batch: Batch) -> None:
        getattr(batch, name)[index] = value

    return change


def append(name: str, value: float) -> Change:
    return lambda batch: getattr(batch, name).append(value)


def empty(batch: Batch) -> None:
    batch.token_ids, batch.qo_indptr, batch.last_page_len = int32(), int32([0]), int32()


def share_written_page(batch: Batch) -> None:
    """c's page becomes a's last one, slots and all."""
    batch.page_indices[4] = batch.page_indices[2]
    page = batch.page_indices[4]
    batch.token_slots[2:6] = int32(range(page * 4, page * 4 + 4))


def fewer_pages(batch: Batch) -> None:
    """c's five tokens in one page."""
    batch.page_indices.pop()
    batch.page_indptr[-1] -= 1


def swap_slots(batch: Batch) -> None:
    slots = batch.token_slots
    slots[2], slots[3] = slots[3], slots[2]


def swap_histories(batch: Batch) -> None:
    """a and b write to their own pages, but read each other's first page."""
    i = batch.page_indices
    i[0], i[3] = i[3], i[0]


CHANGES: dict[str, Change] = {
    "nothing to run": empty,
    "a token too many": append("token_ids", 1),
    "a position too many": append("positions", 1),
    "a slot too few": lambda b: b.token_slots.__delitem__(-1),
    "indptr of another size": append("qo_indptr", 7),
    "indptr starts late": assign("qo_indptr", 0, 1),
    "indptr does not rise": assign("qo_indptr", 1, 2),
    "page indptr ends early": assign("page_indptr", -1, 5),
    "empty last page": assign("last_page_len", 0, 0),
    "overfull last page": assign("last_page_len", 0, 5),
    "last page length is off": assign("last_page_len", 0, 2),
    "more new tokens than tokens": fewer_pages,
    "page out of range": assign("page_indices", 0, SMALL.num_pages),
    "negative page": assign("page_indices", 0, -2),
    "freed page is visible": assign("page_indices", 0, -1),
    "freed page is written": assign("page_indices", -1, -1),
    "page twice": lambda b: assign("page_indices", 0, b.page_indices[1])(b),
    "position is off": assign("positions", 0, 3),
    "slot is off": assign("token_slots", 0, 0),
    "two slots swapped": swap_slots,
    "shared page is written": share_written_page,
    "another's history": swap_histories,
    "unwritten page": assign("page_indices", 0, SMALL.num_pages - 1 - 7),
    "token id out of range": assign("token_ids", 2, SMALL.vocab_size),
    "placeholder of a missing row": assign("token_ids", 0, -3),
    "logit row out of range": assign("logit_rows", -1, 7),
    "logit rows out of order": assign("logit_rows", 0, 1),
    "uniform is 1": assign("uniforms", 0, 1.0),
    "negative temperature": assign("temperature", 0, -1.0),
    "nan temperature": assign("temperature", 0, float("nan")),
    "negative top_k": assign("top_k", 0, -1),
    "top_p is 0": assign("top_p", 0, 0.0),
    "min_p above 1": assign("min_p", 0, 1.5),
    "a parameter too few": lambda b: setattr(b, "uniforms", float32()),
}


def test_the_batch_is_good_as_planned() -> None:
    toy, batch = after_some_steps()
    assert len(toy.collect(toy.submit(batch)).tokens) == 3


@pytest.mark.parametrize("name", CHANGES)
def test_every_fault_raises(name: str) -> None:
    toy, good = after_some_steps()
    batch = copy.deepcopy(good)
    CHANGES[name](batch)
    assert batch != good
    with pytest.raises(BadBatchError):
        toy.collect(toy.submit(batch))


@pytest.mark.parametrize(
    "limits",
    [{"max_batch": 2}, {"max_step_tokens": 6}, {"context": 8}, {"num_pages": 5}],
)
def test_limits_of_the_capacity_hold(limits: dict[str, int]) -> None:
    toy, batch = after_some_steps()
    toy.capacity = replace(SMALL, **limits)
    with pytest.raises(BadBatchError):
        toy.submit(batch)


def test_a_skipped_step_raises() -> None:
    engine, toy = Engine(SMALL), ToyExecutor(SMALL)
    engine.add(Request("a", range(20)))
    engine.plan()
    second = engine.plan()
    assert second is not None
    with pytest.raises(BadBatchError, match="never written"):
        toy.collect(toy.submit(second))


@pytest.mark.parametrize("in_order", [True, False])
def test_a_page_goes_on_at_once_because_steps_run_in_order(in_order: bool) -> None:
    """a is cancelled while a step uses its last page, which b is given. Run the other way round,
    that step would read and write b's prompt, and the toy sees it."""
    engine, toy = Engine(SMALL), ToyExecutor(SMALL)
    engine.add(Request("a", range(5), SamplingParams(temperature=0.0)))
    first, second = engine.plan(), engine.plan()
    assert first and second
    engine.cancel("a")
    engine.add(Request("b", range(5, 8), SamplingParams(temperature=0.0)))
    third = engine.plan()
    assert third and third.page_indices[0] == second.page_indices[1]
    if not in_order:
        second, third = third, second
    run = nullcontext() if in_order else pytest.raises(BadBatchError, match="position 4 reads slot")
    with run:
        for step in (first, second, third):
            toy.collect(toy.submit(step))


def test_results_are_collected_in_order_and_once() -> None:
    toy, batch = after_some_steps()
    ticket = toy.submit(batch)
    for wrong in (ticket + 1, ticket - 1):
        with pytest.raises(BadBatchError, match="ticket"):
            toy.collect(wrong)
    toy.collect(ticket)
    with pytest.raises(BadBatchError, match="ticket"):
        toy.collect(ticket)
    toy.close()
    toy.close()
