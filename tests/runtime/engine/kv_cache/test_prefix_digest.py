"""The digest of a prefix cache: never more than is cached, and never much less."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Engine, Request, SamplingParams
from mlcc.engine.kv_cache.prefix_digest import (
    hashes_of,
    is_sampled_depth,
    prefix_digest,
    prefix_hashes,
)
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver

GREEDY = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
BLOCK = 4


def expected_hits(digest: set[int], prompt: list[int], scope: tuple[str, str] = ("", "")) -> int:
    """Tokens of a prompt that a sketch says are there."""
    return max((n for n, h in prefix_hashes(scope, prompt, BLOCK) if h in digest), default=0)


def answered(driver: Driver, name: str, prompt: list[int], tenant: str = "") -> int:
    driver.add(Request(name, prompt, GREEDY, tenant))
    finished = driver.run()[name].finished
    assert finished is not None
    return finished.cached_tokens


def test_depths_grow_by_a_quarter_at_most() -> None:
    digest = [depth for depth in range(1, 5000) if is_sampled_depth(depth)]
    assert digest[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]
    assert all(b / a <= 1.25 for a, b in pairwise(digest[3:]))
    assert len(digest) < 60


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 9)), max_size=8))
def test_hashes_of_the_digest_are_cached(asked: list[tuple[int, int, int]]) -> None:
    """Pages are short, so that some of it is lost again. A hit may be longer: it also ends within
    blocks, and between the depths in the digest."""
    capacity = small(pools=(24,))
    driver = Driver(Engine(capacity), ToyExecutor(capacity))
    for n, (start, length, end) in enumerate(asked):
        prompt = [start] * length + [end, n % 7]
        digest = hashes_of(driver.engine.prefix_digest())
        expected = expected_hits(digest, prompt)
        assert expected <= answered(driver, f"r{n}", prompt)


def test_a_prompt_is_found_by_the_digest() -> None:
    driver = toy_driver()
    prompt = [random.Random(1).randrange(64) for _ in range(45)]
    assert expected_hits(hashes_of(driver.engine.prefix_digest()), prompt) == 0
    answered(driver, "a", prompt)
    digest = hashes_of(driver.engine.prefix_digest())
    assert expected_hits(digest, prompt) == 40, (
        "eleven blocks are cached, and ten of them are in the digest"
    )
    assert expected_hits(digest, [*prompt[:20], 1, 2, 3, 4, 5, 6, 7]) == 20
    assert expected_hits(digest, [1, *prompt]) == 0
    assert answered(driver, "b", prompt) == 44


def test_scopes_are_separate() -> None:
    driver = toy_driver()
    prompt = list(range(20))
    answered(driver, "a", prompt, tenant="one")
    digest = hashes_of(driver.engine.prefix_digest())
    assert expected_hits(digest, prompt, ("one", "")) == 16
    assert expected_hits(digest, prompt, ("two", "")) == expected_hits(digest, prompt) == 0


def test_a_sketch_is_bounded_and_has_short_beginnings_first() -> None:
    driver = toy_driver()
    for n in range(6):
        answered(driver, f"r{n}", [n, *range(12)])
    tree = driver.engine._pools.tree
    assert len(prefix_digest(tree)) > 6 * 8
    bounded = prefix_digest(tree, most=6)
    assert len(bounded) == 6 * 8
    first = {prefix_hashes(("", ""), [n, *range(12)], BLOCK)[0][1] for n in range(6)}
    assert hashes_of(bounded) == first
