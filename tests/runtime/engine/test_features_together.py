"""Pairs of features of the engine: draft tokens with waiting requests, short pages, adapters,
exports and measured times; steps that reuse columns, and states of the prefix cache."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.lora import AdapterMatrix
from mlcc.engine.migration import Identity
from mlcc.engine.spec_decode.budget import StepCost
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.engine.spec_decode.speculator import Proposal, Speculator
from mlcc.errors import InvalidRequestError
from mlcc.model.kv_transfer import export_request, import_request
from tests.runtime.engine.helpers.drafting import Eager
from tests.runtime.engine.helpers.drive import SMALL, Driver, small, toy_driver
from tests.runtime.lora.rooms import with_slots

LONG = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
IDENTITY = Identity("layout", "model", "tokenizer")


class Same:
    """Drafts the same token at each position."""

    free, origin = True, "same"

    def num_to_draft(self, worthwhile: int) -> int:
        return worthwhile

    def propose(self, most: int) -> Proposal:
        return Proposal([1] * most, self.origin)


def eager(longest: int) -> Eager:
    return Eager(lambda *of: Same(), longest)


def rows(most: int, tokens: int, pages: int = 64) -> Capacity:
    return Capacity.of(
        [CacheGroup("paged", 4)], [pages], vocab_size=64, context=128, max_batch=4,
        max_step_tokens=tokens, max_rows=most,
    )  # fmt: skip


@pytest.mark.parametrize("capacity", [rows(4, 64), rows(16, 8)], ids=["rows", "tokens"])
def test_waiting_requests_do_not_wait_for_draft_tokens(capacity: Capacity) -> None:
    driver = toy_driver(capacity, speculator=eager(8))
    driver.add(Request("a", [1, 2, 3], replace(LONG, max_tokens=100)))
    for _ in range(3):
        driver.step()
    assert driver.engine.stats().drafted_tokens
    driver.add(Request("b", [4, 5, 6], LONG))
    for _ in range(2):
        driver.step()
    assert driver.got["b"].tokens


def test_a_long_prompt_does_not_wait_for_draft_tokens() -> None:
    driver = toy_driver(rows(16, 8), speculator=eager(8))
    for name in "ab":
        driver.add(Request(name, [1, 2, 3], replace(LONG, max_tokens=100)))
    driver.add(Request("c", [5] * 60, LONG))
    for _ in range(14):
        driver.step()
    assert driver.got["c"].tokens


def test_no_sequence_is_preempted_for_draft_tokens() -> None:
    driver = toy_driver(rows(16, 32, pages=4), speculator=eager(8))
    driver.add(Request("a", [1, 2, 3], replace(LONG, max_tokens=14)))
    driver.add(Request("b", [4, 5, 6], replace(LONG, max_tokens=6)))
    while not driver.got["b"].finished:
        driver.step()
    assert driver.engine.stats().preemptions == 0
    assert driver.engine.stats().drafted_tokens > 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("tokens", [8, 3])
def test_a_state_that_the_prefix_cache_took_is_read_by_the_next_step(
    tokens: int, depth: int
) -> None:
    """A prompt that ends with a block of one token, or a chunk of one."""
    page = 1 if tokens == 8 else 4
    capacity = small(
        CacheGroup("paged", page), CacheGroup("state"), pools=(64, 9), max_step_tokens=tokens
    )
    request = Request("a", [1, 2, 3, 4, 5, 6, 7, 8], LONG)
    answers = []
    for prefix_cache in (True, False):
        driver = toy_driver(capacity, depth=depth, prefix_cache=prefix_cache)
        driver.add(request)
        answers.append(driver.run()["a"].tokens)
    assert answers[0] == answers[1]


def load(driver: Driver, name: str) -> None:
    content = name.encode() + bytes(3)
    driver.load(name, [AdapterMatrix(0, 0, 0, 1, 1, False, "float32", content)])


def test_answers_of_an_adapter_are_drafted_from_its_own() -> None:
    driver = toy_driver(with_slots(SMALL, 2), speculator=Speculator(NgramProposer.of))
    load(driver, "x")
    load(driver, "y")
    accepted = []
    for number, adapter in enumerate(("", "x", "y", "x", "")):
        driver.add(Request(f"r{number}", [5, 6, 7, 8, 9], LONG, adapter=adapter))
        finished = driver.run()[f"r{number}"].finished
        assert finished is not None
        accepted.append((finished.drafted_tokens > 0, finished.accepted_tokens > 10))
    assert accepted == [(False, False)] * 3 + [(True, True)] * 2


def test_a_request_with_a_prediction_moves_between_any_two_steps() -> None:
    source = toy_driver()
    source.add(Request("a", [5, 6, 7], LONG))
    answer = source.run()["a"].tokens
    prediction: Sequence[int] = array("i", answer)
    for steps in range(1, 6):
        source, to = (toy_driver(speculator=Eager(NgramProposer.of, 4)) for _ in range(2))
        source.add(Request("a", [5, 6, 7], LONG, prediction=prediction))
        for _ in range(steps):
            if source.engine.has_work:
                source.step()
        if source.got["a"].finished:
            break
        data = export_request(source.engine.migration, source.executor, IDENTITY, "a")
        assert import_request(to.engine.migration, to.executor, IDENTITY, data).computed
        to.got["a"] = source.got["a"]
        assert to.run()["a"].tokens == answer
        assert to.engine.stats().accepted_tokens > 0 or len(answer) < 4


def test_the_cost_of_draft_tokens_is_not_learned_from_prompts() -> None:
    """Not even from a prompt that is computed again and followed by draft tokens."""
    counts: list[int] = []

    class Recording(StepCost):
        def observe(self, tokens: int, seconds: float | None) -> None:
            counts.append(tokens)

    speculator = eager(3)
    speculator.cost = Recording()
    capacity = with_slots(rows(16, 16), 1)
    source, to = toy_driver(capacity), toy_driver(capacity, speculator=speculator)
    for driver in (source, to):
        load(driver, "x")
        driver.seconds = lambda: 1.0
    source.add(Request("a", [*range(26)], LONG, adapter="x"))
    for _ in range(4):
        source.step()
    data = export_request(source.engine.migration, source.executor, IDENTITY, "a")
    assert not import_request(to.engine.migration, to.executor, IDENTITY, data).computed
    to.got["a"] = source.got["a"]
    to.run()
    assert to.engine.stats().drafted_tokens > 0
    assert counts and max(counts) == 1 + 3


def test_a_prediction_is_no_longer_than_an_answer() -> None:
    driver = toy_driver(speculator=Speculator(NgramProposer.of))
    driver.add(Request("a", [5], LONG, prediction=[1] * 64))
    with pytest.raises(InvalidRequestError, match="prediction has 65 tokens"):
        driver.add(Request("b", [5], LONG, prediction=[1] * 65))
    driver.run()
