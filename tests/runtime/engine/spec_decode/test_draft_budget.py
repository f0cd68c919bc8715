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
from mlcc.engine.spec_decode.budget import REFRESH, SHARE, START, DraftBudget, StepCost
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


TIMES = (0, 11.9, 13.8, 15.2, 15.3, 19.7, 19.8, 22, 23, 28, 29.3, 30.5, 31, 40.3, 40.6, 41, 42.4)
"""Milliseconds of Gemma 270M on a Zen 5 core by rows: products take them in tiles of 2 to 6."""
MORE_TIMES = (43.5, 44, 54, 54.5, 54.7, 55, 57, 69, 78)


def tiled(tokens: int) -> float:
    known = (*TIMES, *MORE_TIMES)
    return 1e-3 * (known[tokens] if tokens < len(known) else 78 + 2.9 * (tokens - 25))


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


def seconds_of(
    cost: Cost,
    right: Callable[[int], float] | None,
    depth: int,
    streams: int,
    answer: int = ANSWER,
) -> float:
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
        engine.add(Request(f"s{i}", [2, 3], SamplingParams(max_tokens=answer)))
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
@pytest.mark.parametrize("cost", [flat, steep, dear, tiled])
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


@pytest.mark.parametrize("cost", [tiled, dear])
@pytest.mark.parametrize("right", [0.0, 0.4, 0.7])
def test_finding_out_beside_others_costs_less_than_a_hundredth(cost: Cost, right: float) -> None:
    """16 sequences and some 250 steps, in which drafts hardly pay."""
    without = seconds_of(cost, None, 1, 16, 250)
    assert seconds_of(cost, lambda _: right, 1, 16, 250) < 1.01 * without


@pytest.mark.parametrize("streams", [4, 16])
def test_a_step_has_as_many_rows_as_it_computes_at_once(streams: int) -> None:
    """Where a row by itself costs more than it yields, and some together do not."""
    without = seconds_of(tiled, None, 1, streams, 400)
    assert seconds_of(tiled, lambda _: 0.95, 1, streams, 400) < without / 1.03


def test_times_are_those_of_as_many_tokens() -> None:
    """Not of the line beside them, unless they were measured long ago."""
    cost = StepCost()
    for _ in range(4):
        for tokens in (16, 18, 19):
            cost.observe(tokens, tiled(tokens))
    assert cost.marginal_share(18) > 2 * cost.marginal_share(17) and cost.marginal_share(18) > 0.12
    assert cost.most_more(16, 20) == 7, "not far beyond the largest"
    for _ in range(400):
        cost.observe(16, tiled(16))
        cost.observe(24, tiled(24))
    assert cost.marginal_share(18) < 0.1, "as the line has it"


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
