"""Budgets of prefill beside decoding: streams do not stall during other prompts. Step times are
simulated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import pytest

from mlcc.engine import Capacity, Engine, Request, Result, SamplingParams, TextDelta
from mlcc.engine.batch.batch import Batch
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.scheduler.budgets import (
    DECODE_ONLY_EVERY,
    DECODE_ONLY_SOON,
    MAX_SLOWDOWN,
    MIN_LONG_CHUNK,
    MIN_SHORT_CHUNK,
    SHORT_PROMPTS_FACTOR,
    PrefillBudget,
)
from tests.runtime.engine.helpers.drive import small, toy_driver

Cost = Callable[[list[tuple[int, int]]], float]
"""Seconds of a step, by (tokens, tokens before them) of each sequence."""
STREAMS, PROMPT, ANSWER = 8, 4096, 16


def bound(parts: list[tuple[int, int]]) -> float:
    """Step time of a device that reads weights for 4 ms and computes a token in 0.2 ms."""
    return 4e-3 + 2e-4 * sum(count for count, _ in parts)


def stepped(parts: list[tuple[int, int]]) -> float:
    """Many at once are cheaper, as matrix units make them; a sequence reads its past."""
    tokens = sum(count for count, _ in parts)
    return 3e-3 + 5e-5 * len(parts) + (3e-4 * tokens if tokens < 32 else 6e-3 + 1e-4 * tokens)


def quadratic(parts: list[tuple[int, int]]) -> float:
    """Step time as measured with a model of 135M on 2 cores: the last tokens of 4,000 take 8 times
    as long as the first, and a chunk has a constant cost."""
    several = [(count, past) for count, past in parts if count > 1]
    single = sum(5e-4 + 8e-7 * past for count, past in parts if count == 1)
    return 4e-3 + single + sum(1e-3 + count * (4.6e-4 + 9e-7 * past) for count, past in several)


def parts_of(batch: Batch) -> list[tuple[int, int]]:
    """Tokens of each sequence of a step, and those before them."""
    table = batch.layout.sequences
    counts = [int(b - a) for a, b in pairwise(batch.column(table, "first_token"))]
    lengths = map(int, batch.column(table, "length"))
    return [(count, length - count) for count, length in zip(counts, lengths)]  # noqa: B905


def gaps(
    cost: Cost, measured: bool = True, depth: int = 1, arrivals: tuple[int, ...] = (20,)
) -> tuple[list[float], int]:
    """Times between tokens of 8 answers while 2 times prompts of 4,096 tokens come at those steps,
    the second time once the first are done; and all steps."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [8192], vocab_size=64, context=8192,
        max_batch=STREAMS + 2, max_step_tokens=512,
    )  # fmt: skip
    engine = Engine(capacity, prefix_cache=False)
    for i in range(STREAMS):
        engine.add(Request(f"s{i}", [1] * 8, SamplingParams(max_tokens=7000)))
    now, steps, done, added = 0.0, 0, 0, 0
    last: dict[str, float] = {}
    found: dict[str, list[float]] = defaultdict(list)
    flying: list[tuple[int, float]] = []
    while done < 2 * len(arrivals):
        if steps in arrivals and added < len(arrivals):
            added += 1
            engine.add(Request(f"long{added}", [2] * PROMPT, SamplingParams(max_tokens=ANSWER)))
        while len(flying) < depth and (batch := engine.plan()) is not None:
            flying.append((batch.num_rows, cost(parts_of(batch))))
        rows, seconds = flying.pop(0)
        now, steps = now + seconds, steps + 1
        result = Result([3] * rows, [0.0] * rows)
        for event in engine.commit(result, seconds if measured else None):
            name = event.request_id
            if isinstance(event, TextDelta):
                if name in last and name.startswith("s") and steps > min(arrivals):
                    found[name].append(now - last[name])
                last[name] = now
            elif name.startswith("long"):
                done += 1
                again = SamplingParams(max_tokens=ANSWER)
                engine.add(Request(f"long again {done}", [2] * PROMPT, again))
            else:
                raise AssertionError("streams are to last as long as the prompts")
    assert len(found) == STREAMS
    return [gap for times in found.values() for gap in times], steps


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cost", [bound, stepped, quadratic])
def test_the_longest_gaps_are_under_twice_the_median(cost: Cost, depth: int) -> None:
    found, steps = gaps(cost, depth=depth)
    found.sort()
    assert found[int(0.99 * len(found))] < 2 * median(found)
    only_decoding = cost([(1, 1000)] * STREAMS)
    assert median(found) < 2 * only_decoding, "and not because all are long"
    assert steps < 6000


@pytest.mark.parametrize("cost", [stepped, quadratic])
@pytest.mark.parametrize("streams", [2, 4, 8])
def test_a_rare_prompt_is_no_rare_exception(cost: Cost, streams: int) -> None:
    """If most steps only decode, so that the median is that of decode steps, a prompt of 4,096
    tokens makes no step twice as long: neither its cheap first tokens nor its last."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [4096], vocab_size=64, context=8192,
        max_batch=streams + 1, max_step_tokens=512,
    )  # fmt: skip
    engine, found = Engine(capacity, prefix_cache=False), list[float]()
    for i in range(streams):
        engine.add(Request(f"s{i}", [1] * 8, SamplingParams(max_tokens=7000)))
    for step in range(3500):
        if step == 1000:
            engine.add(Request("long", [2] * PROMPT, SamplingParams(max_tokens=4)))
        batch = engine.plan()
        assert batch is not None
        found.append(cost(parts_of(batch)))
        engine.commit(Result([3] * batch.num_rows, [0.0] * batch.num_rows), found[-1])
    assert "long" not in engine._sequences and len(found) > 2000
    found.sort()
    assert found[int(0.99 * len(found))] < 2 * median(found)


def test_prompts_of_several_lengths_at_once_are_each_priced() -> None:
    found, _ = gaps(quadratic, arrivals=(20, 500))
    found.sort()
    assert found[int(0.99 * len(found))] < 2 * median(found)


@pytest.mark.parametrize("streams", [0, 4])
@pytest.mark.parametrize("longs", [1, 3])
def test_a_short_prompt_does_not_wait_until_long_ones_are_read(streams: int, longs: int) -> None:
    """A question of 64 tokens while prompts of 4,096 are read, and one behind 4,000 cached ones."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [4096], vocab_size=64, context=8192,
        max_batch=16, max_step_tokens=512,
    )  # fmt: skip
    engine = Engine(capacity)
    cached = [5] * 4000
    for i in range(streams):
        engine.add(Request(f"s{i}", [1] * 8, SamplingParams(max_tokens=7000)))
    engine.add(Request("first turn", cached, SamplingParams(max_tokens=1)))
    came: dict[str, int] = {}
    asked = done = 0
    for step in range(20_000):
        if "first turn" in came and not asked:
            asked = step
            for i in range(longs):
                engine.add(Request(f"long{i}", [2 + i] * PROMPT, SamplingParams(max_tokens=1)))
        if asked and step == asked + 4:
            engine.add(Request("short", [1] * 64, SamplingParams(max_tokens=1)))
            engine.add(Request("next turn", [*cached, *[6] * 64], SamplingParams(max_tokens=1)))
        batch = engine.plan()
        assert batch is not None
        taken = quadratic(parts_of(batch))
        for event in engine.commit(Result([3] * batch.num_rows, [0.0] * batch.num_rows), taken):
            came.setdefault(event.request_id, step)
        if (done := sum(name.startswith("long") for name in came)) == longs:
            break
    assert done == longs, "no prompt starves"
    assert came["short"] - asked < 80 and came["next turn"] - asked < 200
    assert (came["long0"] - asked > 400) is (streams > 0)
    assert came["short"] < came["long0"] and came["next turn"] < came["long0"]


def test_a_prompt_that_comes_before_decoding_was_ever_measured_waits_for_that() -> None:
    """The first answer of a server's life, and the first long prompt right behind it."""
    pace = PrefillBudget()
    pace.step_planned(0, [(8, 0)])
    pace.observe(0.010)
    assert pace.allowance(1, 512).tokens(0) == 0
    pace.step_planned(1, [])
    pace.observe(0.004)
    # A token of a prompt of 8 took 1.25 ms: what may be added is that of 2, the least is more.
    assert pace.allowance(1, 512).tokens(0, 8) == MIN_SHORT_CHUNK
    assert pace.allowance(1, 512).tokens(0, PROMPT) == MIN_LONG_CHUNK


def tokens_per_second(cost: Cost, streams: int, prompt: int = 128, answer: int = 64) -> float:
    """Generated tokens per second of a closed loop: each answer is followed by the next prompt."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [8192], vocab_size=64, context=8192,
        max_batch=streams, max_step_tokens=512,
    )  # fmt: skip
    engine = Engine(capacity, prefix_cache=False)
    wish, now, sent, ended = SamplingParams(max_tokens=answer, ignore_eos=True), 0.0, 0, 0
    while ended < 5 * streams:
        while sent < ended + streams:
            engine.add(Request(str(sent), [1] * prompt, wish))
            sent += 1
        batch = engine.plan()
        assert batch is not None
        seconds = cost(parts_of(batch))
        now += seconds
        result = Result([3] * batch.num_rows, [0.0] * batch.num_rows)
        ended += sum(
            1 for event in engine.commit(result, seconds) if not isinstance(event, TextDelta)
        )
    return ended * answer / now


@pytest.mark.parametrize("streams", [4, 8, 16])
@pytest.mark.parametrize("cost", [bound, stepped, quadratic])
def test_short_prompts_fill_the_places_there_are(cost: Cost, streams: int) -> None:
    """As if all prompts of a wave were computed in whole steps, then all answers together."""
    prompts, answers = cost([(512 // streams, 64)] * streams), cost([(1, 160)] * streams)
    seconds = streams * 128 / 512 * prompts + 63 * answers
    assert tokens_per_second(cost, streams) > 0.9 * streams * 64 / seconds


@pytest.mark.parametrize("cost", [bound, stepped, quadratic])
def test_more_streams_bring_more_tokens(cost: Cost) -> None:
    found = [tokens_per_second(cost, streams) for streams in (4, 8, 16)]
    assert found == sorted(found) and found[-1] > 1.3 * found[0]


def first_tokens(decoding: int, prompts: int, prompt: int = 128) -> tuple[list[float], list[float]]:
    """Seconds until prompts that come at once have their first tokens, and the steps until then."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [8192], vocab_size=64, context=8192,
        max_batch=decoding + prompts, max_step_tokens=512,
    )  # fmt: skip
    engine, now = Engine(capacity, prefix_cache=False), 0.0
    found, steps = list[float](), list[float]()
    for i in range(decoding):
        engine.add(Request(f"d{i}", [1] * 8, SamplingParams(max_tokens=7000)))
    waiting: set[str] = set()
    while len(found) < prompts:
        if not waiting and not found and len(steps) >= 20 * bool(decoding):
            now, waiting, steps = 0.0, {f"p{i}" for i in range(prompts)}, []
            for name in sorted(waiting):
                engine.add(Request(name, [2] * prompt, SamplingParams(max_tokens=500)))
        batch = engine.plan()
        assert batch is not None
        steps.append(bound(parts_of(batch)))
        now += steps[-1]
        result = Result([3] * batch.num_rows, [0.0] * batch.num_rows)
        for event in engine.commit(result, steps[-1]):
            if event.request_id in waiting:
                waiting.discard(event.request_id)
                found.append(now)
    return found, steps


def test_a_burst_of_short_prompts_has_whole_steps() -> None:
    """Two clients wait longer for a token, by a whole step, and fourteen not much longer than their
    prompts take: 14 * 128 tokens of 0.2 ms."""
    found, steps = first_tokens(decoding=2, prompts=14)
    assert max(found) < 1.1 * (14 * 128 * 2e-4 + 4 * 4e-3)
    assert max(steps) <= bound([(512, 0)])
    assert max(found) - min(found) < bound([(512, 0)]), "none decodes long before the others"


def test_few_short_prompts_keep_to_the_pace() -> None:
    _, steps = first_tokens(decoding=8, prompts=8)
    slowest = 1 + (MAX_SLOWDOWN - 1) * SHORT_PROMPTS_FACTOR
    assert max(steps) < slowest * bound([(1, 100)] * 16), "as many decode at last"


def test_the_first_of_very_many_does_not_wait_for_all() -> None:
    found, _ = first_tokens(decoding=0, prompts=64)
    assert min(found) < max(found) / 3


def test_a_long_prompt_ends_beside_endless_bursts() -> None:
    """Of answers of one token, so that hardly anything decodes."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)], [8192], vocab_size=64, context=8192,
        max_batch=16, max_step_tokens=512,
    )  # fmt: skip
    engine, sent = Engine(capacity, prefix_cache=False), 0
    engine.add(Request("long", [2] * PROMPT, SamplingParams(max_tokens=1)))
    for _ in range(60):
        while len(engine._sequences) < 24:
            sent += 1
            engine.add(Request(f"s{sent}", [1] * 128, SamplingParams(max_tokens=1)))
        batch = engine.plan()
        assert batch is not None
        seconds = bound(parts_of(batch))
        engine.commit(Result([3] * batch.num_rows, [0.0] * batch.num_rows), seconds)
        if "long" not in engine._sequences:
            return
    raise AssertionError(f"a prompt of {PROMPT} tokens has not ended within 60 steps of 512")


def test_without_it_they_are_not() -> None:
    found, steps = gaps(bound, measured=False)
    assert max(found) > 10 * bound([(1, 0)] * STREAMS)
    assert steps < 100, "prompts take all that a step holds"


def test_what_is_not_measured_changes_nothing() -> None:
    pace = PrefillBudget()
    for _ in range(3 * DECODE_ONLY_EVERY):
        assert pace.allowance(decodes=4, most=500).tokens(0) == 500
        pace.step_planned(4, [(500, 0)])
        pace.observe(None)


def test_prompts_go_on_and_decoding_is_measured_again() -> None:
    pace = PrefillBudget()
    for decodes, prompts, seconds in ((0, [(500, 0)], 1.0), (4, [], 0.001)):
        pace.step_planned(decodes, prompts)
        pace.observe(seconds)
    allowed = []
    for _ in range(2 * DECODE_ONLY_EVERY + 2):
        allowed.append(pace.allowance(4, 500).tokens(2048))
        pace.step_planned(4, [(allowed[-1], 2048)] if allowed[-1] else [])
        pace.observe(0.001 + 0.002 * allowed[-1])  # a token takes two steps of decoding
    assert allowed == [*[1] * DECODE_ONLY_EVERY, 0] * 2, "the least, where tokens cost much"
    assert pace.allowance(0, 500).tokens(2048) == 500, "no sequence decodes"
    assert pace.allowance(4, 3).tokens(0) == 3, "a step holds no more"


def test_once_others_decode_that_is_measured_sooner() -> None:
    pace = PrefillBudget()
    for decodes, prompts, seconds in ((0, [(500, 0)], 0.1), (4, [], 0.01)):
        pace.step_planned(decodes, prompts)
        pace.observe(seconds)
    for step in range(DECODE_ONLY_SOON + 1):
        assert bool(pace.allowance(5, 500).tokens(0)) == (step < DECODE_ONLY_SOON)
        pace.step_planned(5, [(8, 0)])
    for _ in range(DECODE_ONLY_SOON + 1):
        pace.observe(0.012)
    pace.step_planned(5, [])
    pace.observe(0.02)
    share = pace.allowance(5, 500)
    before = share.tokens(0)
    share.spend(before, 0)
    assert share.tokens(0) == 0, "it is spent"
    assert before == int((MAX_SLOWDOWN - 1) * 0.02 / pace.token_cost(0)) > MIN_SHORT_CHUNK


def test_prompts_that_are_held_back_go_on_where_decoding_finds_no_page() -> None:
    driver = toy_driver(small(pools=[6], max_step_tokens=2))
    driver.add(Request("decodes", [1] * 3, SamplingParams(max_tokens=20)))
    driver.step(), driver.step()
    driver.add(Request("prompt", [2] * 13, SamplingParams(max_tokens=2), priority=-1))
    driver.step()
    assert driver.engine.stats().running == 2
    pace = driver.engine._prefill_budget
    pace._measured = True
    pace._decode.append(1.0)
    while driver.engine.has_work:
        pace._mixed = DECODE_ONLY_EVERY  # no step but this one's is to have any of a prompt
        driver.step()
    assert [len(got.tokens) for got in driver.got.values()] == [20, 2]
    assert driver.engine.stats().preemptions == 1
