"""Prompts beside decoding: who reads an answer does not wait for another's prompt. Time is a number
that the tests make up, as a device would take it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from statistics import median

import pytest
from engine_drive import small, toy_driver

from mlcc.engine import Capacity, Engine, Request, Result, SamplingParams, TextDelta
from mlcc.engine.pace import BREATH, LEAST, Pace
from mlcc.engine.tables import CacheGroup

Cost = Callable[[int, int], float]
"""Seconds of a step, by its sequences and its tokens."""
STREAMS, PROMPT = 8, 4096


def bound(sequences: int, tokens: int) -> float:
    """Of a device that reads weights for 4 ms and computes a token in 0.2 ms."""
    return 4e-3 + 2e-4 * tokens


def stepped(sequences: int, tokens: int) -> float:
    """Many at once are cheaper, as matrix units make them; a sequence reads its past."""
    return 3e-3 + 5e-5 * sequences + (3e-4 * tokens if tokens < 32 else 6e-3 + 1e-4 * tokens)


def gaps(cost: Cost, measured: bool, depth: int = 1) -> tuple[list[float], int]:
    """Times between tokens of 8 answers while 2 prompts of 4,096 tokens come, one after the other,
    and all steps."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [4096], vocab_size=64, context=8192,
        max_batch=STREAMS + 1, max_step_tokens=512,
    )  # fmt: skip
    engine = Engine(capacity, prefix_cache=False)
    for i in range(STREAMS):
        engine.add(Request(f"s{i}", [1] * 8, SamplingParams(max_tokens=2500)))
    now, steps, done = 0.0, 0, 0
    last: dict[str, float] = {}
    found: dict[str, list[float]] = defaultdict(list)
    flying: list[tuple[int, float]] = []
    while done < 2:
        if steps == 20:
            engine.add(Request("long0", [2] * PROMPT, SamplingParams(max_tokens=2)))
        while len(flying) < depth and (batch := engine.plan()) is not None:
            flying.append((batch.num_rows, cost(batch.num_sequences, batch.num_tokens)))
        rows, seconds = flying.pop(0)
        now, steps = now + seconds, steps + 1
        result = Result([3] * rows, [0.0] * rows)
        for event in engine.commit(result, seconds if measured else None):
            name = event.request_id
            if isinstance(event, TextDelta):
                if name in last and name.startswith("s") and steps > 20:
                    found[name].append(now - last[name])
                last[name] = now
            elif name.startswith("long"):
                done += 1
                engine.add(Request(f"long{done}", [2] * PROMPT, SamplingParams(max_tokens=2)))
            else:
                raise AssertionError("streams are to last as long as the prompts")
    assert len(found) == STREAMS
    return [gap for times in found.values() for gap in times], steps


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cost", [bound, stepped])
def test_the_longest_gaps_are_under_twice_the_median(cost: Cost, depth: int) -> None:
    found, steps = gaps(cost, measured=True, depth=depth)
    found.sort()
    assert found[int(0.99 * len(found))] < 2 * median(found)
    only_decoding = cost(STREAMS, STREAMS)
    assert median(found) < 2 * only_decoding, "and not because all are long"
    assert steps < 20 + 2 * PROMPT / LEAST * 1.2


def test_without_it_they_are_not() -> None:
    found, steps = gaps(bound, measured=False)
    assert max(found) > 10 * bound(STREAMS, STREAMS)
    assert steps < 60, "prompts take all that a step holds"


def test_what_is_not_measured_changes_nothing() -> None:
    pace = Pace()
    for _ in range(3 * BREATH):
        assert pace.prompt_tokens(decodes=4, most=500) == 500
        pace.planned(4, 500)
        pace.took(None)


def test_prompts_go_on_and_decoding_is_measured_again() -> None:
    pace = Pace()
    for seconds, decodes, tokens in ((1.0, 0, 500), (0.001, 4, 0)):  # a token takes 2 decode steps
        pace.planned(decodes, tokens)
        pace.took(seconds)
    allowed = []
    for _ in range(2 * BREATH + 2):
        allowed.append(pace.prompt_tokens(4, 500))
        pace.planned(4, allowed[-1])
        pace.took(0.001 + 0.002 * allowed[-1])
    assert allowed == [*[LEAST] * BREATH, 0] * 2
    assert pace.prompt_tokens(0, 500) == 500, "nobody decodes"
    assert pace.prompt_tokens(4, 5) == 5, "a step holds no more"


def test_prompts_that_are_held_back_go_on_where_decoding_finds_no_page() -> None:
    driver = toy_driver(small(pools=[6], max_step_tokens=2))
    driver.add(Request("decodes", [1] * 3, SamplingParams(max_tokens=20)))
    driver.step(), driver.step()
    driver.add(Request("prompt", [2] * 13, SamplingParams(max_tokens=2), priority=-1))
    driver.step()
    assert driver.engine.stats().running == 2
    pace = driver.engine._pace
    pace._decode = pace._token = 1.0
    while driver.engine.has_work:
        pace._mixed = BREATH  # no step but this one's is to have any of a prompt
        driver.step()
    assert [len(got.tokens) for got in driver.got.values()] == [20, 2]
    assert driver.engine.stats().preemptions == 1
