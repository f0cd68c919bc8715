"""Speculation changes when tokens come, never which: the naive engine's tokens, with draft tokens
that are accepted, rejected or both, for every kind of cache, sampling parameters and depth."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.spec_decode.budget import StepCost
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.engine.spec_decode.speculator import AcceptanceRates, DraftState, Speculator
from mlcc.errors import InvalidRequestError
from tests.runtime.engine.helpers.drafting import Eager, knowing
from tests.runtime.engine.helpers.drive import small, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer
from tests.runtime.engine.test_against_naive import (
    Arrival,
    arrivals,
    capacities,
    crowds,
    ends,
    run_and_compare,
)

wrongs = st.sampled_from([0.0, 0.2, 0.5, 1.0])
numbers = st.integers(0, 2**16)
some = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@some
@given(capacities(), arrivals(), st.integers(1, 3), ends, wrongs, st.integers(1, 6), numbers)
def test_agrees_with_naive(
    capacity: Capacity,
    coming: list[Arrival],
    depth: int,
    eos: set[int],
    wrong: float,
    longest: int,
    seed: int,
) -> None:
    speculator = knowing(capacity, eos, wrong, longest, seed)
    run_and_compare(capacity, coming, depth, eos, speculator=speculator)


@some
@given(crowds(), st.integers(1, 3), ends, wrongs, numbers)
def test_agrees_with_naive_when_pages_are_short(
    crowd: tuple[Capacity, list[Arrival]], depth: int, eos: set[int], wrong: float, seed: int
) -> None:
    speculator = knowing(crowd[0], eos, wrong, 4, seed)
    run_and_compare(*crowd, depth, eos, speculator=speculator)


LONG = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)


def test_accepted_draft_tokens_save_steps() -> None:
    capacity = replace(small(), vocab_size=ByteTokenizer.vocab_size)
    counts = []
    for wrong in (None, 0.0, 1.0):
        speculator = None if wrong is None else Eager(knowing(capacity, (), wrong, 3, 0)._open, 3)
        driver = toy_driver(capacity, seed=7, speculator=speculator)
        driver.add(Request("a", [1, 2, 3], LONG))
        got = driver.run()["a"]
        stats = driver.engine.stats()
        counts.append((stats.steps, got.tokens))
        assert got.finished is not None
        assert got.finished.drafted_tokens == stats.drafted_tokens
        assert got.finished.accepted_tokens == stats.accepted_tokens
        assert (stats.accepted_tokens > 0) is (wrong == 0.0)
    assert [steps for steps, _ in counts] == [20, 1 + 5, 20]
    assert all(tokens == counts[0][1] for _, tokens in counts)


def test_a_repeated_question_is_drafted_from_the_prefix_cache() -> None:
    driver = toy_driver(speculator=Speculator(NgramProposer.of))
    for name in "ab":
        driver.add(Request(name, [5, 6, 7, 8, 9], LONG))
        driver.run()
    first, again = (driver.got[name] for name in "ab")
    assert again.tokens == first.tokens
    assert first.finished is not None and first.finished.drafted_tokens == 0
    assert again.finished is not None and again.finished.accepted_tokens > 10


def test_other_tenants_answers_are_not_drafted_from() -> None:
    driver = toy_driver(speculator=Speculator(NgramProposer.of))
    for name in "ab":
        driver.add(Request(name, [5, 6, 7, 8, 9], LONG, tenant=name))
        assert driver.run()[name].finished.drafted_tokens == 0  # type: ignore[union-attr]


def test_a_prediction_is_drafted() -> None:
    driver = toy_driver()
    driver.add(Request("a", [5, 6, 7], LONG))
    answer = driver.run()["a"].tokens
    driver = toy_driver(speculator=Speculator(NgramProposer.of))
    driver.add(Request("a", [5, 6, 7], LONG, prediction=[1, 2, *answer]))
    driver.add(Request("b", [5, 6, 7], LONG, tenant="b", prediction=[*reversed(answer)]))
    got = driver.run()
    assert got["a"].tokens == got["b"].tokens == answer
    assert got["a"].finished.accepted_tokens > 10  # type: ignore[union-attr]
    assert got["b"].finished.accepted_tokens == 0  # type: ignore[union-attr]
    with pytest.raises(InvalidRequestError, match="prediction has a token id"):
        driver.add(Request("c", [5], prediction=[64]))


@pytest.mark.parametrize("depth", [1, 2])
def test_a_repeating_window_is_drafted_from_the_answer(depth: int) -> None:
    capacity = small(CacheGroup("window", 4, 1), pools=(32,), context=256)
    driver = toy_driver(capacity, depth=depth, speculator=Speculator(NgramProposer.of))
    plain = toy_driver(capacity)
    for either in (driver, plain):
        either.add(Request("a", [5], SamplingParams(temperature=0, ignore_eos=True)))
        either.run()
    assert driver.got["a"].tokens == plain.got["a"].tokens
    assert driver.engine.stats().accepted_tokens > 100
    assert driver.engine.stats().steps < 128


def test_text_is_looked_up_by_its_last_tokens() -> None:
    tokens = array("i", [1, 2, 3, 4, 5, 9, 2, 3])
    lookup = NgramProposer(tokens)
    assert lookup.propose(3) == (array("i", [4, 5, 9]), "gram2")
    tokens.append(4)
    assert lookup.propose(9) == (array("i", [5, 9, 2, 3, 4, 5, 9, 2, 3]), "gram3"), "goes round"
    tokens.append(7)
    assert lookup.propose(3) is None


def test_a_prediction_does_not_continue_into_the_prompt() -> None:
    lookup = NgramProposer(array("i", [1, 2]), prediction=[1, 2, 3])
    assert lookup.propose(4) == (array("i", [3]), "gram2")


def test_a_long_prompt_is_indexed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcc.engine.spec_decode.ngram._MAX_INDEXED", 8)
    lookup = NgramProposer(array("i", [*range(18), 0, 1]))
    assert [lookup.propose(1) for _ in range(2)] == [None, None]
    assert lookup.propose(1) == (array("i", [2]), "gram2")


def test_fewer_tokens_are_drafted_after_rejections_and_in_larger_steps() -> None:
    speculator = Speculator(NgramProposer.of)
    sure, unsure = AcceptanceRates(0.95, 0.95), AcceptanceRates(0.3, 0.5)
    lengths = []
    for decodes in (1, 4, 16, 64):
        speculator.begin_step(decodes)
        lengths.append(speculator.worthwhile(sure, 8))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 4 and lengths[-1] <= 2
    speculator.begin_step(1)
    assert speculator.worthwhile(unsure, 8) < lengths[0]
    speculator.begin_step(64)
    assert speculator.worthwhile(unsure, 8) == 0


def test_what_a_token_costs_is_learned() -> None:
    cost = StepCost()
    before = cost.marginal_share(1)
    for tokens in (1, 2, 4, 8) * 8:
        cost.observe(tokens, 1.0 + 0.02 * tokens)
    assert (
        cost.marginal_share(1) == pytest.approx(0.02 / 1.02, rel=0.3)
        and cost.marginal_share(1) < before
    )
    for tokens in (1, 2, 4, 8) * 30:
        cost.observe(tokens, 1.0 * tokens)
    assert cost.marginal_share(1) > 0.7
    cost.observe(4, None)


def test_unverified_draft_tokens_update_the_estimate() -> None:
    tokens = array("i", [1, 2, 3, 1, 2])
    speculator = Speculator(NgramProposer.of)
    draft_state = DraftState(speculator, tokens, NgramProposer(tokens))
    speculator.acceptance("gram2").first = 0.0
    assert not draft_state.propose(2)
    tokens.append(3)
    tokens.append(1)
    assert draft_state.propose(0) == ()
    assert draft_state.acceptance["gram2"].first == 1.0


def test_requests_that_need_every_token_are_not_drafted() -> None:
    driver = toy_driver(
        replace(small(), vocab_size=24),
        tokenizer=ByteTokenizer(),
        speculator=Speculator(NgramProposer.of),
    )
    prompt = [5, 6, 5, 6, 5, 6]
    for number, wish in enumerate(({"mirostat": 2}, {"dry_multiplier": 0.8})):
        driver.add(Request(f"r{number}", prompt, SamplingParams(max_tokens=9, **wish)))
        finished = driver.run()[f"r{number}"].finished
        assert finished is not None and finished.drafted_tokens == 0


def test_pages_of_rejected_draft_tokens_are_freed() -> None:
    capacity = replace(small(CacheGroup("paged", 1)), vocab_size=ByteTokenizer.vocab_size)
    driver = toy_driver(
        capacity, seed=7, speculator=Eager(knowing(capacity, (), 1.0, 6, 0)._open, 6)
    )
    driver.add(Request("a", [1, 2, 3], LONG))
    while driver.engine.has_work:
        driver.step()
        output_tokens = len(driver.got["a"].tokens)
        if driver.engine.has_work:
            assert 32 - driver.engine.stats().pages_free == 3 + output_tokens - 1
