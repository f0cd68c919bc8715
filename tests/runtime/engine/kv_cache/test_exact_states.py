"""States of recurrent models, one feature at a time, each counted to have occurred: chunks,
rollbacks, prefixes, draft tokens, migration. The toy's state is a hash chain, so a correct token
proves that the state contains exactly the tokens before it; `test_against_naive` draws combinations
at random."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from tests.runtime.engine.helpers.drafting import Eager, knowing
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer
from tests.runtime.engine.test_against_naive import TOKENIZER, check_answer
from tests.runtime.engine.test_migration import move

PAGED, WINDOW, STATE = CacheGroup("paged", 4), CacheGroup("window", 4, 6), CacheGroup("state")
KINDS = [(STATE,), (PAGED, STATE), (WINDOW, STATE), (STATE, PAGED, WINDOW)]
LONG = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
PROMPT = [(5 * i) % 22 + 2 for i in range(38)]
of_each_kind = pytest.mark.parametrize("groups", KINDS, ids=lambda g: "-".join(x.kind for x in g))


def capacity_of(groups: tuple[CacheGroup, ...], slots: int = 12, **more: int) -> Capacity:
    pools = [64 if group.has_pages else slots for group in groups]
    made = small(*groups, pools=pools, context=96, **more)
    return replace(made, vocab_size=ByteTokenizer.vocab_size)


def check(driver: Driver, capacity: Capacity, *requests: Request) -> None:
    """All of it to the token, and to the bit of its logits."""
    for number, request in enumerate(requests):
        check_answer(driver.got[request.id], request, number, capacity, set())


@of_each_kind
@pytest.mark.parametrize("depth", [1, 3])
def test_a_prompt_in_chunks(groups: tuple[CacheGroup, ...], depth: int) -> None:
    capacity = capacity_of(groups, max_step_tokens=5)
    driver = toy_driver(capacity, (), TOKENIZER, depth, 7)
    request = Request("a", PROMPT, LONG)
    driver.add(request)
    driver.run()
    assert driver.engine.stats().steps >= len(PROMPT) / 5 + LONG.max_tokens - 1
    check(driver, capacity, request)


@pytest.mark.parametrize("groups", [(PAGED, STATE), (STATE, PAGED, WINDOW)], ids=["two", "three"])
def test_a_preempted_sequence_begins_again(groups: tuple[CacheGroup, ...]) -> None:
    """Three answers in pages for one and a half: a preempted one loses its state."""
    pools = [22 if group.has_pages else 3 for group in groups]
    capacity = small(*groups, pools=pools, context=64, max_step_tokens=12)
    capacity = replace(capacity, vocab_size=ByteTokenizer.vocab_size)
    driver = toy_driver(capacity, (), TOKENIZER, 2, 7)
    requests = [Request(f"r{i}", PROMPT[i:], LONG) for i in range(3)]
    for request in requests:
        driver.add(request)
    driver.run()
    assert driver.engine.stats().preemptions > 0
    check(driver, capacity, *requests)


@of_each_kind
def test_a_prefix_is_found_with_its_state(groups: tuple[CacheGroup, ...]) -> None:
    capacity = capacity_of(groups, max_step_tokens=64)
    driver = toy_driver(capacity, (), TOKENIZER, 1, 7)
    prompt = [*PROMPT, *PROMPT]
    requests = [Request("a", prompt, LONG), Request("b", prompt, LONG)]
    for request in requests:
        driver.add(request)
        driver.run()
    finished = driver.got["b"].finished
    assert finished is not None and finished.cached_tokens >= 64
    check(driver, capacity, *requests)


@of_each_kind
@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
def test_draft_tokens_are_accepted_or_rejected(
    groups: tuple[CacheGroup, ...], wrong: float
) -> None:
    """Rejected draft tokens leave no trace in the state."""
    capacity = capacity_of(groups)
    speculator = Eager(knowing(capacity, (), wrong, 4, 0)._open, 4)
    driver = toy_driver(capacity, (), TOKENIZER, 1, 7, speculator=speculator)
    request = Request("a", PROMPT, LONG)
    driver.add(request)
    driver.run()
    stats = driver.engine.stats()
    assert stats.drafted_tokens > 0
    assert (stats.accepted_tokens > 0) is (wrong < 1.0)
    assert (stats.accepted_tokens == stats.drafted_tokens) is (wrong == 0.0)
    check(driver, capacity, request)


@of_each_kind
def test_it_moves_in_the_middle_of_an_answer(groups: tuple[CacheGroup, ...]) -> None:
    capacity = capacity_of(groups)
    source, to = (toy_driver(capacity, (), TOKENIZER, 1, seed) for seed in (7, 8))
    request = Request("a", PROMPT, LONG)
    source.add(request)
    while len(source.got["a"].tokens) < 6:
        source.step()
    assert move("a", source, to), "its state went along"
    to.run()
    assert to.engine.stats().computed_tokens < LONG.max_tokens
    check(to, capacity, request)
