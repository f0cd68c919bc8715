"""The prefix cache: hits, isolation of scopes, and unchanged tokens."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Capacity, Engine, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import pages_for
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver
from tests.runtime.engine.test_against_naive import (
    VOCAB,
    Arrival,
    Groups,
    ends,
    fixed,
    groups,
    run_and_compare,
)

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
PAGED, WINDOW, STATE = CacheGroup("paged", 4), CacheGroup("window", 4, 6), CacheGroup("state")


def cached(driver: Driver, prompt: list[int], tenant: str = "", salt: str = "") -> int:
    """Answer a request alone; how many tokens of its prompt were there."""
    name = f"r{len(driver.got)}"
    driver.add(Request(name, prompt, GREEDY, tenant, salt))
    finished = driver.run()[name].finished
    assert finished is not None and finished.reason == "length"
    return finished.cached_tokens


def test_a_prompt_is_computed_once_but_for_its_last_token() -> None:
    driver = toy_driver()
    prompt = list(range(14))
    assert cached(driver, prompt) == 0
    before = driver.engine.stats().computed_tokens
    assert cached(driver, prompt) == 13
    assert driver.engine.stats().computed_tokens - before == 1 + 3
    assert driver.engine.stats().cached_tokens == 13
    assert driver.got["r0"].tokens == driver.got["r1"].tokens


def test_the_next_turn_finds_the_answer() -> None:
    driver = toy_driver()
    prompt = list(range(14))
    assert cached(driver, prompt) == 0
    answer = driver.got["r0"].tokens
    assert cached(driver, [*prompt, *answer, 1, 2]) == 14 + 3, "the last was never computed"
    assert cached(driver, [*prompt, *answer[:2], 63, 1, 2]) == 14 + 2, "as far as they are the same"


def test_other_beginnings_share_what_they_share() -> None:
    driver = toy_driver()
    assert cached(driver, [*range(8), 9, 9, 9]) == 0
    assert cached(driver, [*range(8), 7, 7]) == 8
    assert cached(driver, [*range(6), 5, 5]) == 6, "within a page"
    assert cached(driver, [63, *range(8)]) == 0


@pytest.mark.parametrize("other", [("t", ""), ("", "s")])
def test_tenants_and_salts_share_nothing(other: tuple[str, str]) -> None:
    driver = toy_driver()
    prompt = list(range(14))
    assert [cached(driver, prompt), cached(driver, prompt, *other)] == [0, 0]
    assert [cached(driver, prompt), cached(driver, prompt, *other)] == [13, 13]


def test_it_can_be_off() -> None:
    capacity = small()
    driver = Driver(Engine(capacity, prefix_cache=False), ToyExecutor(capacity))
    assert [cached(driver, [1] * 9) for _ in range(2)] == [0, 0]
    assert driver.engine.stats().pages_kept == 0


def test_a_window_needs_only_what_its_next_query_sees() -> None:
    driver = toy_driver(small(WINDOW, pools=(16,), max_step_tokens=4))
    prompt = list(range(20))
    assert cached(driver, prompt) == 0
    assert cached(driver, prompt) == 19
    assert cached(driver, [*prompt[:16], 1, 1]) == 16, "pages that slid away are still there"


def test_a_state_is_found_at_the_last_whole_block_of_the_prompt() -> None:
    driver = toy_driver(small(PAGED, STATE, pools=(32, 8), max_step_tokens=32))
    prompt = list(range(14))
    assert cached(driver, prompt) == 0
    assert cached(driver, prompt) == 12
    assert cached(driver, [*prompt, *driver.got["r0"].tokens, 1]) == 12, "not behind its answer"
    assert cached(driver, [*range(8), 1, 2]) == 0, "no state was kept there"


def test_states_are_kept_only_where_a_slot_is_free() -> None:
    driver = toy_driver(small(PAGED, STATE, pools=(32, 1), max_step_tokens=32))
    assert [cached(driver, list(range(14))) for _ in range(2)] == [0, 0]


def test_a_state_alone() -> None:
    driver = toy_driver(small(STATE, pools=(4,), context=256, max_step_tokens=32))
    prompt = [i % 64 for i in range(150)]
    assert [cached(driver, prompt) for _ in range(2)] == [0, 128]


def test_the_longest_unused_goes_first_and_leaves_go_before_stems() -> None:
    driver = toy_driver(small(pools=(8,), context=32))
    stem = list(range(8))
    assert cached(driver, [*stem, *[10] * 5]) == 0
    assert cached(driver, [*stem, *[11] * 5]) == 8
    assert cached(driver, [40] * 12) == 0, "takes the first one's leaves"
    assert cached(driver, [*stem, *[11] * 5]) >= 8
    assert cached(driver, [*stem, *[10] * 5]) == 8


def test_running_requests_share_a_prompt() -> None:
    capacity = small(max_batch=3)
    driver = toy_driver(capacity)
    prompt = list(range(13))
    driver.add(Request("a", prompt, SamplingParams(max_tokens=8, ignore_eos=True)))
    driver.step()
    for name in ("b", "c"):
        driver.add(Request(name, prompt, SamplingParams(max_tokens=8, ignore_eos=True)))
    driver.step()
    engine = driver.engine
    held = capacity.pools[0] - engine.stats().pages_free
    assert engine.stats().running == 3 and held == 3 + 3 * 1, "three pages are shared"
    got = driver.run()
    assert [got[name].finished.cached_tokens for name in "abc"] == [0, 12, 12]  # type: ignore[union-attr]


def test_nothing_is_trusted_after_a_failure() -> None:
    driver = toy_driver(depth=2)
    driver.add(Request("a", list(range(13))))
    driver.step()
    driver.take(driver.engine.fail())
    driver.tickets.clear()
    driver.engine.check_integrity()
    assert driver.engine.stats().pages_kept == 0
    driver.executor.close()
    driver = Driver(driver.engine, ToyExecutor(driver.engine.capacity))
    assert cached(driver, list(range(13))) == 0


def test_what_is_kept_can_be_forgotten_while_others_run() -> None:
    driver = toy_driver(small(max_batch=3))
    prompt = list(range(13))
    assert cached(driver, [*range(40, 52)]) == 0
    for name in ("a", "b"):
        driver.add(Request(name, prompt, SamplingParams(max_tokens=8, ignore_eos=True)))
        driver.step()
    driver.engine.forget_prefixes()
    driver.engine.check_integrity()
    assert driver.engine.stats().pages_kept == 0
    assert cached(driver, [*range(40, 52)]) == 0
    assert cached(driver, prompt) == 12, "what runs is still shared"


def test_copies_have_a_bound_in_a_step() -> None:
    """A step copies at most as many pages as there are sequences: with two groups of pages the
    second sequence reuses less."""
    capacity = small(PAGED, WINDOW, pools=(32, 32), max_batch=2)
    driver = toy_driver(capacity)
    assert cached(driver, list(range(10))) == 0
    for name in ("b", "c"):
        driver.add(Request(name, [*range(10), 50], GREEDY))
    got = driver.run()
    assert sorted(got[name].finished.cached_tokens for name in "bc") == [8, 10]  # type: ignore[union-attr]


@st.composite
def families(draw: st.DrawFn, chosen: Groups) -> tuple[Capacity, list[Arrival]]:
    """Requests that begin like earlier ones, in pools that hold one or some of them."""
    alphabet = st.integers(60, 62)
    requests: list[Request] = []
    for i in range(draw(st.integers(2, 8))):
        stem: list[int] = []
        if requests:
            other = draw(st.sampled_from(requests)).prompt
            stem = list(other[: draw(st.integers(0, len(other)))])
        prompt = [*stem, *draw(st.lists(alphabet, min_size=1, max_size=10))][-30:]
        sampling = SamplingParams(
            temperature=draw(st.sampled_from([0.0, 1.0])),
            max_tokens=draw(st.integers(1, 12)),
            ignore_eos=draw(st.booleans()),
        )
        tenant, salt = draw(st.sampled_from([*product(("", "t"), ("", "s"))] + [("", "")] * 6))
        name = draw(st.sampled_from(["", "", f"{prompt}"]))
        wanted = draw(st.integers(1, 3)) if name else 1
        requests += [
            Request(f"r{i}-{k}", prompt, sampling, tenant, salt, sampling_group=name)
            for k in range(wanted)
        ]
    groups_ = draw(chosen)
    longest = max(len(r.prompt) + (r.sampling.max_tokens or 0) for r in requests)
    capacity = Capacity.of(
        groups_,
        [pages_for(longest, group) + draw(st.integers(0, 20)) for group in groups_],
        vocab_size=VOCAB,
        context=longest + 1,
        max_batch=draw(st.integers(1, 5)),
        max_step_tokens=draw(st.integers(1, 20)),
    )
    cancel = st.none() | st.none() | st.none() | st.integers(0, 12)
    return capacity, [Arrival(r, draw(st.integers(0, 25)), draw(cancel)) for r in requests]


of_one_size = st.sampled_from([1, 2, 3, 4]).flatmap(
    lambda size: groups(st.just(size), st.integers(1, 12))
)
of_any_size = groups(st.sampled_from([1, 2, 3, 4]), st.integers(1, 12))


@fixed
@given(families(of_one_size), st.integers(1, 3), ends)
def test_families_agree_with_naive(
    family: tuple[Capacity, list[Arrival]], depth: int, eos: set[int]
) -> None:
    run_and_compare(*family, depth, eos)


@fixed
@given(families(of_one_size), st.integers(1, 3), ends)
def test_families_agree_with_naive_without_other_sharers(
    family: tuple[Capacity, list[Arrival]], depth: int, eos: set[int]
) -> None:
    run_and_compare(*family, depth, eos, prefix_cache=False)


@fixed
@given(families(of_any_size), st.integers(1, 3), ends)
def test_families_agree_with_naive_with_pages_of_any_sizes(
    family: tuple[Capacity, list[Arrival]], depth: int, eos: set[int]
) -> None:
    run_and_compare(*family, depth, eos)
