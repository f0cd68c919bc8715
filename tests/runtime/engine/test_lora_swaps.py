"""Adapters are loaded, swapped and unloaded under random requests on the exact toy: each request
uses the adapter that had its name on arrival, to the token; no slot is written while it is used,
and none leaks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mlcc.engine import Request, SamplingParams
from mlcc.engine.lora import MOST_NAMES, AdapterMatrix
from mlcc.engine.migration import Identity
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError
from mlcc.model.kv_transfer import export_request, import_request
from tests.runtime.engine.helpers.drafting import Drafting, Eager
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver
from tests.runtime.lora.rooms import with_slots

IDENTITY = Identity("layout", "model", "tokenizer")
SLOTS = 3
CAPACITY = with_slots(small(pools=(9,)), SLOTS)
"""Three of the requests fill the pages: others wait or are preempted."""
PROMPTS = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9], [7, 8])
GREEDY = SamplingParams(temperature=0.0, max_tokens=6)


def matrices(number: int) -> list[AdapterMatrix]:
    return [AdapterMatrix(0, 0, 0, 1, 1, False, "float32", bytes([number, 0, 0, 0]))]


def load(
    driver: Driver, name: str, number: int, in_place: bool = False, kept: bool = False
) -> None:
    driver.load(name, matrices(number), in_place, kept)


def device_fails(driver: Driver) -> None:
    """The device fails and recovers; the contents of slots are kept."""
    while driver.tickets:
        driver.executor.collect(driver.tickets.popleft())
    driver.take(driver.engine.fail())
    driver.engine.check_integrity()


def alone(number: int | None, prompt: list[int]) -> list[int]:
    """The answer of an engine that runs nothing else."""
    driver = toy_driver(with_slots(small(), SLOTS))
    if number is not None:
        load(driver, "x", number)
    driver.add(Request("r", prompt, GREEDY, adapter="x" if number is not None else ""))
    return driver.run()["r"].tokens


def drafting_driver(how: str, draw: random.Random, depth: int) -> Driver:
    """how: `lookup`, `draft` (a toy, sometimes wrong), or none."""
    if how == "draft":
        draft = Drafting(small(pools=CAPACITY.pools), 0.3, draw)
        opened = DraftModel(draft.capacity, CAPACITY).open
        return toy_driver(CAPACITY, depth=depth, draft=draft, speculator=Eager(opened, 3))
    speculator = Eager(NgramProposer.of, 3, draw=draw) if how else None
    return toy_driver(CAPACITY, depth=depth, speculator=speculator)


def leave_and_come_back(driver: Driver, name: str) -> None:
    """Export a running request to bytes and import it again."""
    moves = driver.engine.migration
    while driver.tickets:
        driver.take(driver.engine.commit(driver.executor.collect(driver.tickets.popleft())))
    if driver.got[name].finished is None:
        data = export_request(moves, driver.executor, IDENTITY, name)
        driver.engine.cancel(name)
        import_request(moves, driver.executor, IDENTITY, data)
        driver.engine.check_integrity()


@pytest.mark.parametrize("kept", [False, True, None], ids=["pinned", "kept", "some"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("seed", "how"), enumerate(("", "lookup", "draft")))
def test_swaps_in_a_storm(seed: int, how: str, depth: int, kept: bool | None) -> None:
    """kept: there are more adapters than slots, and unused ones are swapped out. None = there is
    memory for copies at random only."""
    draw = random.Random(seed)
    driver = drafting_driver(how, draw, depth)
    names: dict[str, int] = {}
    wanted: dict[str, tuple[int | None, int]] = {}
    full = moved = 0
    for number in range(200):
        name = draw.choice("abcd" if kept is False else "abcdefg")
        action = draw.random()
        try:
            if action < 0.15:
                keep = draw.random() < 0.5 if kept is None else kept
                load(driver, name, number, draw.random() < 0.5, keep)
                moved += keep and driver.engine.adapters.names[name].slot < 0
                names[name] = number
            elif action < 0.25:
                driver.engine.adapters.drop(name)
                del names[name]
        except CapacityError:
            full += 1
        except InvalidRequestError:
            assert (action < 0.15) == (name in names)
        whose = draw.choice([*names, None])
        prompt = draw.randrange(len(PROMPTS))
        request = Request(f"r{number}", PROMPTS[prompt], GREEDY, adapter=whose or "")
        driver.add(request)
        wanted[request.id] = (None if whose is None else names[whose], prompt)
        if draw.random() < 0.1:
            driver.cancel(draw.choice([r for r in wanted if not driver.got[r].finished]))
        if draw.random() < 0.02:
            device_fails(driver)
        if draw.random() < 0.1:  # of those whose adapter has its name still
            live = [r for r in wanted if not driver.got[r].finished]
            same = [r for r in live if wanted[r][0] in (None, *names.values())]
            if same:
                leave_and_come_back(driver, draw.choice(same))
        for _ in range(draw.randrange(4)):
            if driver.engine.has_work:
                driver.step()
    got = driver.run()
    expected = {each: alone(each[0], PROMPTS[each[1]]) for each in set(wanted.values())}
    reasons = {}
    for request_id, each in wanted.items():
        finished = got[request_id].finished
        assert finished is not None
        reasons[finished.reason] = reasons.get(finished.reason, 0) + 1
        if finished.reason == "length":
            assert got[request_id].tokens == expected[each], (request_id, each)
    assert reasons["length"] > 100, reasons
    assert reasons.keys() >= {"length", "cancelled"}
    assert len(set(map(tuple, expected.values()))) > len(expected) // 2  # adapters do something
    assert bool(full) != bool(kept), "the slots were never full"
    assert bool(moved) == (kept is not False)
    assert bool(driver.engine.stats().accepted_tokens) == bool(how)
    for name in [*driver.engine.adapters.names]:
        driver.engine.adapters.drop(name)
    driver.engine.check_integrity()
    assert sorted(driver.engine.adapters._free) == list(range(SLOTS))


def test_prefixes_are_an_adapters_own() -> None:
    """The toy raises where pages of one adapter are read with another; hits are counted."""
    driver = toy_driver(with_slots(small(), SLOTS))
    load(driver, "a", 1)
    load(driver, "b", 2)
    long = list(range(1, 14))
    hits = []
    for name in ("a", "b", "", "a", "b", ""):
        before = driver.engine.stats().cached_tokens
        driver.add(Request(f"{name}{len(hits)}", long, GREEDY, adapter=name))
        driver.run()
        hits.append(driver.engine.stats().cached_tokens - before)
    assert hits[:3] == [0, 0, 0]
    assert all(hits[3:])
    driver.engine.adapters.drop("a")
    load(driver, "a", 3)  # another of the name shares nothing with it
    before = driver.engine.stats().cached_tokens
    driver.add(Request("again", long, GREEDY, adapter="a"))
    driver.run()
    assert driver.engine.stats().cached_tokens == before


def test_what_is_refused() -> None:
    driver = toy_driver(CAPACITY)
    slots = driver.engine.adapters
    with pytest.raises(InvalidRequestError, match="no adapter 'a' is loaded; there are: none"):
        driver.add(Request("r", [1], GREEDY, adapter="a"))
    for number, name in enumerate("abc"):
        load(driver, name, number)
    with pytest.raises(InvalidRequestError, match="an adapter 'a' is loaded already"):
        load(driver, "a", 1)
    with pytest.raises(CapacityError, match="all 3 slots for adapters are taken"):
        load(driver, "d", 1)
    driver.add(Request("r", [1, 2], replace(GREEDY, max_tokens=3), adapter="a"))
    with pytest.raises(CapacityError):
        load(driver, "a", 1, in_place=True)  # there is no slot but its own
    assert "a" in slots.names, "what failed leaves the one that was there"
    slots.drop("a")
    with pytest.raises(CapacityError):
        load(driver, "d", 1)  # the request goes on with it
    driver.run()
    load(driver, "d", 1)
    assert slots.names["d"].slot in range(SLOTS)
    with pytest.raises(UnsupportedError, match="compiled without room for adapters"):
        load(toy_driver(), "a", 1)


def test_the_least_recently_used_adapter_is_swapped_out() -> None:
    driver = toy_driver(with_slots(small(), 2))
    for number, name in enumerate("abc"):
        load(driver, name, number, kept=True)
    slots = driver.engine.adapters
    assert [slots.names[name].ready for name in "abc"] == [True, True, False]

    def ask(name: str) -> list[int]:
        request = Request(f"{name}{len(driver.got)}", PROMPTS[0], GREEDY, adapter=name)
        driver.add(request)
        return driver.run()[request.id].tokens

    for name, out in (("a", "c"), ("c", "b"), ("a", "b"), ("b", "c"), ("c", "a")):
        assert ask(name) == alone("abc".index(name), PROMPTS[0])
        assert [n for n in "abc" if not slots.names[n].ready] == [out]


def test_requests_wait_for_a_slot() -> None:
    """All slots are in use: a new request waits until one is free, and is not lost."""
    driver = toy_driver(with_slots(small(), 1), depth=2)
    load(driver, "a", 1, kept=True)
    load(driver, "b", 2, kept=True)
    driver.add(Request("first", PROMPTS[0], replace(GREEDY, max_tokens=12), adapter="a"))
    driver.step()
    driver.add(Request("second", PROMPTS[1], GREEDY, adapter="b"))
    driver.add(Request("gone", PROMPTS[1], GREEDY, adapter="b"))
    for _ in range(4):
        driver.step()
    assert driver.engine.stats().waiting == 2 and not driver.engine.adapters.names["b"].ready
    driver.cancel("gone")
    driver.engine.adapters.drop("b")  # it has no name any more, and a request that waits for it
    got = driver.run()
    assert got["second"].tokens == alone(2, PROMPTS[1])
    assert len(got["first"].tokens) == 12
    assert not driver.engine.adapters.names["a"].ready


def test_requests_without_an_adapter_overtake_one_that_waits_for_a_slot() -> None:
    """And does not starve it: the waiting request runs when the slot is free, though others keep
    coming."""
    driver = toy_driver(with_slots(small(), 1), depth=2)
    load(driver, "a", 1, kept=True)
    load(driver, "b", 2, kept=True)
    driver.add(Request("a", PROMPTS[0], replace(GREEDY, max_tokens=12), adapter="a"))
    driver.step()
    driver.add(Request("b", PROMPTS[1], GREEDY, adapter="b"))
    driver.add(Request("after b", PROMPTS[0], GREEDY, adapter="a"))  # it would keep the slot
    driver.add(Request("plain", PROMPTS[1], replace(GREEDY, max_tokens=4)))
    ended: list[str] = []
    for number in range(200):
        if not driver.engine.has_work:
            break
        if "b" not in ended:
            driver.add(Request(f"more {number}", PROMPTS[1], replace(GREEDY, max_tokens=1)))
        driver.step()
        ended += [n for n, got in driver.got.items() if got.finished and n not in ended]
    order = [name for name in ended if not name.startswith("more")]
    assert order == ["plain", "a", "b", "after b"]
    assert driver.got["b"].tokens == alone(2, PROMPTS[1])


@pytest.mark.parametrize("kept", [True, False])
def test_those_that_move_have_a_slot_to_move_in(kept: bool) -> None:
    """There was memory for a copy of the one and not of the other: had both been taken, one would
    hold the slot for ever and the other's requests would wait for it."""
    driver = toy_driver(with_slots(small(), 1))
    load(driver, "a", 1, kept=kept)
    with pytest.raises(CapacityError, match="unload one"):
        load(driver, "b", 2, kept=not kept)
    load(driver, "a", 3, in_place=True, kept=True)
    load(driver, "b", 2, kept=True)
    for name, number in (("a", 3), ("b", 2)):
        driver.add(Request(name, PROMPTS[0], GREEDY, adapter=name))
        assert driver.run()[name].tokens == alone(number, PROMPTS[0])


def test_names_have_a_bound() -> None:
    driver = toy_driver(with_slots(small(), 1))
    load(driver, "a", 1, kept=True)
    slots = driver.engine.adapters
    slots.names.update({f"a{i}": slots.names["a"] for i in range(MOST_NAMES)})
    with pytest.raises(CapacityError, match="is the most"):
        slots.check_name("one more", False)
