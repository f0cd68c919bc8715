"""A draft model changes when tokens come, never which; its pages always contain the tokens of their
sequence (the toy reads them back), with shared prefixes, short pages, rollbacks, pauses and
catching up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.spec_decode.draft_model import DraftModel, shared_group
from mlcc.errors import UnsupportedError
from tests.runtime.engine.helpers.drafting import Drafting, Eager
from tests.runtime.engine.helpers.drive import small, toy_driver
from tests.runtime.engine.spec_decode.test_speculation import numbers, some, wrongs
from tests.runtime.engine.test_against_naive import (
    VOCAB,
    Arrival,
    arrivals,
    crowds,
    ends,
    run_and_compare,
)

fewer = settings(some, max_examples=40)
PAGED, WINDOW, STATE = CacheGroup("paged", 4), CacheGroup("window", 4, 6), CacheGroup("state")


def draft_capacity(target: Capacity, groups: list[CacheGroup], **more: int) -> Capacity:
    """With as many pages as the target has, and bounds of its own."""
    bounds = {"context": target.context, "max_batch": 3, "max_step_tokens": 7, **more}
    return Capacity.of(
        groups, [target.pools[0]] * len(groups), vocab_size=target.vocab_size, **bounds
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Capacity, Capacity]:
    """A model and its draft."""
    size, context = draw(st.sampled_from([1, 2, 4])), draw(st.integers(8, 48))
    others = [CacheGroup("window", 4, 5), STATE, CacheGroup("paged", 8)]
    groups = [CacheGroup("paged", size), *draw(st.lists(st.sampled_from(others), max_size=1))]
    most = [2 * context // group.page_size + 2 if group.has_pages else 6 for group in groups]
    target = Capacity.of(
        groups,
        [draw(st.integers(1, pages)) for pages in most],
        vocab_size=VOCAB,
        context=context,
        max_batch=draw(st.integers(1, 5)),
        max_step_tokens=draw(st.integers(2, 12)),
        max_rows=draw(st.integers(2, 6)),
    )
    own = [CacheGroup("paged", size), *draw(st.sampled_from([[], [CacheGroup("window", size, 3)]]))]
    tokens = draw(st.integers(1, 9))
    batch = draw(st.integers(1, tokens))
    bounds = {"context": draw(st.sampled_from([context, 9])), "max_batch": batch}
    return target, draft_capacity(target, own, **bounds, max_step_tokens=tokens)


@fewer
@given(pairs(), arrivals(), st.integers(1, 3), ends, wrongs, st.integers(1, 5), numbers)
def test_agrees_with_naive(
    both: tuple[Capacity, Capacity],
    coming: list[Arrival],
    depth: int,
    eos: set[int],
    wrong: float,
    longest: int,
    seed: int,
) -> None:
    target, capacity = both
    draft = Drafting(capacity, wrong, random.Random(seed))
    opened = DraftModel(capacity, target).open
    speculator = Eager(opened, longest, draw=random.Random(seed))
    run_and_compare(target, coming, depth, eos, speculator=speculator, draft=draft)


@fewer
@given(crowds(), st.integers(1, 3), ends, wrongs, numbers)
def test_agrees_with_naive_when_pages_are_short(
    crowd: tuple[Capacity, list[Arrival]], depth: int, eos: set[int], wrong: float, seed: int
) -> None:
    target, coming = crowd
    paged = CacheGroup("paged", 2)
    pools = [max(target.pools), *target.pools]
    target = Capacity.of(
        [paged, *target.groups], pools, vocab_size=VOCAB, context=target.context,
        max_batch=target.max_batch, max_step_tokens=target.max_step_tokens,
    )  # fmt: skip
    draft = Drafting(draft_capacity(target, [paged]), wrong, random.Random(seed))
    opened = DraftModel(draft.capacity, target).open
    speculator = Eager(opened, 4, draw=random.Random(seed))
    run_and_compare(target, coming, depth, eos, speculator=speculator, draft=draft)


def test_a_draft_saves_steps_and_keeps_up_with_shared_prompts() -> None:
    capacity = small()
    draft = Drafting(draft_capacity(capacity, [PAGED], max_step_tokens=16), 0.0, random.Random(1))
    driver = toy_driver(capacity, draft=draft)
    wish = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    for name, prompt in (("a", [*range(9)]), ("b", [*range(9), 1]), ("c", [*range(8), 7])):
        driver.add(Request(name, prompt, wish))
        finished = driver.run()[name].finished
        assert finished is not None and finished.accepted_tokens > 9
    assert driver.engine.stats().steps < 3 * 12


def test_a_draft_that_is_wrong_is_hardly_asked() -> None:
    capacity = small(context=1024, pools=(256,))
    bounds = draft_capacity(capacity, [PAGED, CacheGroup("window", 4, 3)], max_step_tokens=512)
    draft = Drafting(bounds, 1.0, random.Random(1))
    driver = toy_driver(capacity, draft=draft)
    driver.add(Request("a", [1, 2], SamplingParams(temperature=0.0, ignore_eos=True)))
    driver.run()
    assert 0 < draft.drafted < 60


def test_drafts_that_cannot_share_pages_are_refused() -> None:
    for groups, why in (
        ([STATE], "keeps states"),
        ([PAGED, CacheGroup("paged", 8)], "several sizes"),
        ([CacheGroup("paged", 8)], "none of that size"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            shared_group(groups, [WINDOW, PAGED])
    assert shared_group([PAGED, WINDOW], [WINDOW, PAGED]) == 1
    target = small(pools=(32,))
    with pytest.raises(UnsupportedError, match="has 8 pages and the model 32"):
        DraftModel(small(pools=(8,)), target)
