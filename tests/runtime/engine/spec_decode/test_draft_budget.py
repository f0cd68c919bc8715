"""The draft budget: where draft tokens are expensive and often rejected, speculation costs next to
nothing. Step times are simulated."""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence

import pytest

from mlcc.engine import Batch, Capacity, Engine, Request, Result, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.spec_decode.budget import REFRESH, SHARE, START, DraftBudget
from mlcc.engine.spec_decode.speculator import Proposal, Speculator

Cost = Callable[[int], float]
"""Seconds of a step of so many tokens."""
ANSWER = 1200


def flat(tokens: int) -> float:
    """A device that reads its weights and hardly computes."""
    return 8e-3 + 4e-4 * tokens


def steep(tokens: int) -> float:
    """The second token of a step costs nearly as much as the first, and the others less: not
    linear."""
    return 9e-3 if tokens == 1 else 15e-3 + 6e-4 * tokens


def dear(tokens: int) -> float:
    """Each token costs the same: speculation never pays."""
    return 9e-3 * tokens


class Half:
    """Draft tokens of which a share is accepted, all with the same estimate."""

    free, origin = True, "half"

    def __init__(self, tokens: array[int], right: Callable[[int], float]) -> None:
        self._tokens, self._right = tokens, right
        self._draw = random.Random(7)

    def propose(self, most: int) -> Proposal | None:
        at = len(self._tokens)
        good = [self._draw.random() < self._right(at + i) for i in range(most)]
        return Proposal([token_at(at + i) if g else 1 for i, g in enumerate(good)], self.origin)

    def num_to_draft(self, worthwhile: int) -> int:
        return worthwhile


def token_at(position: int) -> int:
    """The token that the scripted device says there; never 1."""
    return 2 + position % 50


def seconds_of(cost: Cost, right: Callable[[int], float] | None, depth: int, streams: int) -> float:
    """Seconds of the answers on a device. right: the share of accepted draft tokens by position;
    None = no speculation."""

    def opened(request: Request, tokens: array[int], tree: RadixTree, scope: Hashable) -> Half:
        assert right is not None
        return Half(tokens, right)

    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [4096], vocab_size=64, context=4096,
        max_batch=streams, max_step_tokens=256, max_rows=64,
    )  # fmt: skip
    speculator = None if right is None else Speculator(opened)
    engine = Engine(capacity, prefix_cache=False, speculator=speculator)
    for i in range(streams):
        engine.add(Request(f"s{i}", [2, 3], SamplingParams(max_tokens=ANSWER)))
    now, flying = 0.0, deque[Batch]()
    while engine.has_work:
        while len(flying) < depth and (batch := engine.plan()) is not None:
            flying.append(batch)
        batch = flying.popleft()
        took = cost(batch.num_tokens)
        now += took
        engine.commit(Result(answers(batch), [0.0] * batch.num_rows), took)
    return now


def answers(batch: Batch) -> Sequence[int]:
    """The sampled token of each row."""
    positions = batch.column(batch.layout.tokens, "position")
    rows = batch.column(batch.layout.rows, "token")
    return [token_at(int(positions[int(row)]) + 1) for row in rows]


@pytest.mark.parametrize("depth, streams", [(1, 1), (2, 1), (2, 4)])
@pytest.mark.parametrize("cost", [flat, steep, dear])
@pytest.mark.parametrize("right", [0.0, 0.15, 0.4])
def test_rejected_draft_tokens_cost_next_to_nothing(
    cost: Cost, right: float, depth: int, streams: int
) -> None:
    without = seconds_of(cost, None, depth, streams)
    assert seconds_of(cost, lambda _: right, depth, streams) < 1.03 * without


@pytest.mark.parametrize("cost", [steep, dear])
def test_text_that_changes_its_mind_loses_no_more(cost: Cost) -> None:
    """Right for a while, so that chances are high, and wrong for as long; again and again."""
    without = seconds_of(cost, None, 1, 1)
    assert seconds_of(cost, lambda at: float(at // 40 % 2), 1, 1) < 1.03 * without


@pytest.mark.parametrize("cost", [flat, steep])
def test_accepted_draft_tokens_still_pay(cost: Cost) -> None:
    assert seconds_of(cost, lambda _: 0.97, 1, 1) < seconds_of(cost, None, 1, 1) / 1.5


def test_without_measured_times_drafting_is_allowed() -> None:
    budget = DraftBudget()
    budget.observe_plain(1, None)
    budget.observe_drafted(1, 1, None)
    assert budget.allows(1) and budget.allows(7)


def test_what_is_lost_is_earned_again() -> None:
    budget = DraftBudget()
    budget.observe_drafted(1, 1, 0.02)
    assert not budget.allows(1), "not before it is known what a step takes without"
    budget.observe_plain(1, 0.01)
    assert budget.allows(1) and not budget.allows(2)
    lost = 0
    while budget.allows(1):
        budget.observe_drafted(1, 1, 0.02)
        lost += 1
    assert START <= lost <= START + 1
    waited = 0
    while not budget.allows(1):
        budget.observe_plain(1, 0.01)
        waited += 1
    assert waited <= 1 / SHARE


def test_the_cost_of_plain_steps_is_measured_again() -> None:
    budget = DraftBudget()
    budget.observe_plain(1, 0.01)
    for _ in range(REFRESH - 1):
        assert budget.allows(1)
        budget.observe_drafted(1, 4, 0.012)
    budget.observe_drafted(1, 4, 0.012)
    assert not budget.allows(1)
    budget.observe_plain(1, 0.011)
    assert budget.allows(1)


def test_draft_tokens_beside_prompts_and_draft_steps_cost_too() -> None:
    budget = DraftBudget()
    budget.observe_plain(2, 0.01)
    budget.observe_mixed(2, 8, 0, 1.0)
    assert not budget.allows(2)
    other = DraftBudget()
    other.observe_plain(2, 0.01)
    other.spend(1.0)
    assert not other.allows(2)
