"""The toy executor itself: it raises an error for every kind of fault that it detects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from mlcc.device.check_batch import BadBatchError
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Batch, Capacity, Engine, Request, SamplingParams
from mlcc.engine.batch.batch import BatchWriter, PageList, StateSlot, int32
from mlcc.engine.batch.tables import FLOATS, CacheGroup
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.engine.helpers.drive import SMALL, small

Change = Callable[[Batch], None]


def after_some_steps(capacity: Capacity = SMALL) -> tuple[ToyExecutor, Batch]:
    """An executor in the middle of two requests, and the next good batch: -1 -2 and a chunk."""
    engine, toy = Engine(capacity, prefix_cache=False), ToyExecutor(capacity)
    for name, prompt in (("a", range(6)), ("b", range(1, 8))):
        engine.add(Request(name, prompt, SamplingParams(temperature=0.0)))
    for _ in range(3):
        batch = engine.plan()
        assert batch is not None
        engine.commit(toy.collect(toy.submit(batch)))
    engine.add(Request("c", range(5)))
    batch = engine.plan()
    assert batch is not None
    assert batch.column(batch.layout.sequences, "first_token") == [0, 1, 2, 7]
    return toy, batch


def put(table: str, column: str, entry: int, value: float) -> Change:
    """Change one word; a negative entry counts from the end of those in use."""

    def change(batch: Batch) -> None:
        where = getattr(batch.layout, table)
        used = len(batch.column(where, column))
        words = batch.words.cast("B").cast("f") if column in FLOATS else batch.words
        words[where.at(column) + where.width * (entry % used)] = value

    return change


def page(entry: int, value: int) -> Change:
    """Change an entry of the page list: three pages of a, three of b, two of c."""

    def change(batch: Batch) -> None:
        batch.words[batch.layout.pages.offset + entry] = value

    return change


def all_of(*changes: Change) -> Change:
    def change(batch: Batch) -> None:
        for one in changes:
            one(batch)

    return change


def share_written_page(batch: Batch) -> None:
    """c's first page becomes a's last one, slots and all."""
    shared = batch.page_list(0)[2]
    page(6, shared)(batch)
    for i in range(4):
        put("tokens", "slot.0", 2 + i, shared * 4 + i)(batch)


def swap_slots(batch: Batch) -> None:
    first, second = batch.column(batch.layout.tokens, "slot.0")[2:4]
    put("tokens", "slot.0", 2, second)(batch)
    put("tokens", "slot.0", 3, first)(batch)


def swap_histories(batch: Batch) -> None:
    """a and b write to their own pages, but read each other's first page."""
    a, _, _, b = batch.page_list(0)[:4]
    page(0, b)(batch)
    page(3, a)(batch)


CHANGES: dict[str, Change] = {
    "nothing to run": all_of(*(put("header", c, 0, 0) for c in ("tokens", "sequences", "rows"))),
    "a token too many": put("header", "tokens", 0, 8),
    "a token too few": put("header", "tokens", 0, 6),
    "a sequence too few": put("header", "sequences", 0, 2),
    "more rows than tokens": put("header", "rows", 0, 8),
    "negative rows": put("header", "rows", 0, -1),
    "a copy that is none": put("header", "copies", 0, 1),
    "page list elsewhere": put("header", "pages.0", 0, 1),
    "tokens start late": put("sequences", "first_token", 0, 1),
    "tokens do not rise": put("sequences", "first_token", 1, 2),
    "pages do not rise": put("sequences", "first_page.0", 1, 4),
    "length is short": put("sequences", "length", 0, 7),
    "length is of another page": put("sequences", "length", 0, 13),
    "more new tokens than tokens": put("sequences", "length", 2, 4),
    "page out of range": page(0, SMALL.pools[0]),
    "negative page": page(0, -1),
    "page twice": lambda b: page(0, b.page_list(0)[1])(b),
    "position is off": put("tokens", "position", 0, 3),
    "sequence is off": put("tokens", "sequence", 1, 0),
    "slot is off": put("tokens", "slot.0", 0, 0),
    "two slots swapped": swap_slots,
    "shared page is written": share_written_page,
    "another's history": swap_histories,
    "unwritten page": page(0, SMALL.pools[0] - 1 - 7),
    "token id out of range": put("tokens", "id", 2, SMALL.vocab_size),
    "placeholder of a missing row": put("tokens", "id", 0, -3),
    "row of no token": put("rows", "token", -1, 7),
    "rows out of order": put("rows", "token", 0, 1),
    "uniform is 1": put("rows", "uniform", 0, 1.0),
    "negative temperature": put("rows", "temperature", 0, -1.0),
    "nan temperature": put("rows", "temperature", 0, float("nan")),
    "negative top_k": put("rows", "top_k", 0, -1),
    "top_p is 0": put("rows", "top_p", 0, 0.0),
    "min_p above 1": put("rows", "min_p", 0, 1.5),
    "xtc below 0": put("rows", "xtc", 0, -0.5),
    "a given token that is none": put("rows", "given", 0, 1 << 20),
    "more top logprobs than there are": put("rows", "top_logprobs", 0, 21),
    "top logprobs that the header does not know": put("rows", "top_logprobs", 0, 1),
}


def test_the_batch_is_good_as_planned() -> None:
    toy, batch = after_some_steps()
    assert len(toy.collect(toy.submit(batch)).tokens) == 3


@pytest.mark.parametrize("name", CHANGES)
def test_every_fault_raises(name: str) -> None:
    toy, batch = after_some_steps()
    before = bytes(batch.words)
    CHANGES[name](batch)
    assert bytes(batch.words) != before
    with pytest.raises(BadBatchError):
        toy.collect(toy.submit(batch))


GROUPS = CacheGroup("window", 4, 5), CacheGroup("state")
OF_GROUPS: dict[str, Change] = {
    "the page that a query sees has slid out": put("sequences", "page_number.0", 0, 2),
    "no page has slid out": put("sequences", "page_number.0", 0, 0),
    "state of another": put("sequences", "slot_in.1", 0, 1),
    "state forgotten": put("sequences", "slot_in.1", 0, -1),
    "state from nowhere": put("sequences", "slot_in.1", 2, 0),
    "state to nowhere": put("sequences", "slot_out.1", 0, -1),
    "two states in one slot": put("sequences", "slot_out.1", 0, 1),
}


@pytest.mark.parametrize("name", OF_GROUPS)
def test_every_fault_of_windows_and_states_raises(name: str) -> None:
    toy, batch = after_some_steps(small(*GROUPS, pools=[20, 4]))
    before = bytes(batch.words)
    assert batch.column(batch.layout.sequences, "page_number.0")[0] == 1
    OF_GROUPS[name](batch)
    assert bytes(batch.words) != before
    with pytest.raises(BadBatchError):
        toy.collect(toy.submit(batch))


def test_copies_come_first() -> None:
    """A second sequence goes on from copies of the first one's page and state."""
    capacity = small(CacheGroup("paged", 4), CacheGroup("state"), pools=[8, 4])
    toy = ToyExecutor(capacity)

    def run(tokens: list[int], start: int, page: int, slots: StateSlot, copies: Any = ()) -> Any:
        writer = BatchWriter(capacity.layout)
        for copy in copies:
            writer.copy(*copy)
        first = writer.sequence(tokens, start, [PageList(int32([page])), slots])
        writer.row(first + len(tokens) - 1)
        return toy.collect(toy.submit(writer.finish()))

    run([5, 6], 0, 3, StateSlot(-1, 0))
    copied = run([7], 2, 6, StateSlot(2, 2), [(0, 3, 6), (1, 0, 2)])
    assert copied == run([7], 2, 3, StateSlot(0, 0))


def test_top_logprobs_begin_with_the_token() -> None:
    steps = ManualSteps(SMALL, 2)
    toy = ToyExecutor(SMALL)
    assert toy.collect(toy.submit(steps.step({0: [1, 2], 1: [3]}))).top_logprobs is None
    result = toy.collect(toy.submit(steps.step({0: [-1], 1: [-2]}, top_logprobs=3)))
    assert result.top_logprobs is not None
    for top, token, logprob in zip(
        result.top_logprobs, result.tokens, result.logprobs, strict=True
    ):
        others = [((token + i) % SMALL.vocab_size, logprob - i) for i in (1, 2)]
        assert top == [(token, logprob), *others]


@pytest.mark.parametrize(
    "limits",
    [{"max_batch": 2}, {"max_step_tokens": 6}, {"context": 8}, {"pools": (5,)}, {"max_rows": 2}],
)
def test_limits_of_the_capacity_hold(limits: dict[str, Any]) -> None:
    toy, batch = after_some_steps()
    toy.capacity = replace(SMALL, **limits)
    with pytest.raises(BadBatchError):
        toy.collect(toy.submit(batch))


def test_a_skipped_step_raises() -> None:
    engine, toy = Engine(SMALL), ToyExecutor(SMALL)
    engine.add(Request("a", range(20)))
    engine.plan()
    second = engine.plan()
    assert second is not None
    with pytest.raises(BadBatchError, match="never written"):
        toy.collect(toy.submit(second))


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


@pytest.mark.parametrize("in_order", [True, False])
def test_a_page_goes_on_at_once_because_steps_run_in_order(in_order: bool) -> None:
    """a is cancelled while a step uses its pages, the first of which b is given. Run the other
    way round, that step would read b's prompt, and the toy sees it."""
    engine, toy = Engine(SMALL, prefix_cache=False), ToyExecutor(SMALL)
    engine.add(Request("a", range(5), SamplingParams(temperature=0.0)))
    first, second = engine.plan(), engine.plan()
    assert first and second
    engine.cancel("a")
    engine.add(Request("b", range(5, 8), SamplingParams(temperature=0.0)))
    third = engine.plan()
    assert third and third.page_list(0)[0] == second.page_list(0)[0]
    if not in_order:
        second, third = third, second
    run = nullcontext() if in_order else pytest.raises(BadBatchError, match="position 3 reads slot")
    with run:
        for step in (first, second, third):
            toy.collect(toy.submit(step))
