"""Adapters come and go in a storm of requests on the exact toy: each request answers with the
adapter that had its name when it came, to the token; no slot is written while one uses it, and none
leaks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from adapters.rooms import with_slots
from engine_drive import Driver, small, toy_driver
from guessing import Drafting, Eager

from mlcc.engine import Request, SamplingParams
from mlcc.engine.adapters import AdapterMatrix
from mlcc.engine.drafts import DraftModel
from mlcc.engine.lookup import Lookup
from mlcc.engine.moving import Identity
from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError
from mlcc.model.transfer import export_request, import_request

IDENTITY = Identity("layout", "model", "tokenizer")
SLOTS = 3
CAPACITY = with_slots(small(pools=(9,)), SLOTS)
"""Three of the requests fill its pages: others wait, or give way."""
PROMPTS = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9], [7, 8])
GREEDY = SamplingParams(temperature=0.0, max_tokens=6)


def matrices(number: int) -> list[AdapterMatrix]:
    return [AdapterMatrix(0, 0, 0, 1, 1, False, "float32", bytes([number, 0, 0, 0]))]


def load(driver: Driver, name: str, number: int, in_place: bool = False) -> None:
    adapter = driver.engine.adapters.take(name, 1, in_place)
    driver.executor.write_adapter(adapter.slot, matrices(number))
    driver.engine.check_integrity()


def device_fails(driver: Driver) -> None:
    """And recovers; what is in the slots stays there."""
    while driver.tickets:
        driver.executor.collect(driver.tickets.popleft())
    driver.take(driver.engine.fail())
    driver.engine.check_integrity()


def alone(number: int | None, prompt: list[int]) -> list[int]:
    """What an engine answers that does nothing else."""
    driver = toy_driver(with_slots(small(), SLOTS))
    if number is not None:
        load(driver, "x", number)
    driver.add(Request("r", prompt, GREEDY, adapter="x" if number is not None else ""))
    return driver.run()["r"].tokens


def guessing(how: str, draw: random.Random, depth: int) -> Driver:
    """how: `lookup`, `draft` (a toy, sometimes wrong), or none."""
    if how == "draft":
        draft = Drafting(small(pools=CAPACITY.pools), 0.3, draw)
        opened = DraftModel(draft.capacity, CAPACITY).open
        return toy_driver(CAPACITY, depth=depth, draft=draft, speculator=Eager(opened, 3))
    speculator = Eager(Lookup.of, 3, draw=draw) if how else None
    return toy_driver(CAPACITY, depth=depth, speculator=speculator)


def leave_and_come_back(driver: Driver, name: str) -> None:
    """As bytes."""
    moves = driver.engine.moves
    while driver.tickets:
        driver.take(driver.engine.commit(driver.executor.collect(driver.tickets.popleft())))
    if driver.got[name].finished is None:
        data = export_request(moves, driver.executor, IDENTITY, name)
        driver.engine.cancel(name)
        import_request(moves, driver.executor, IDENTITY, data)
        driver.engine.check_integrity()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("seed", "how"), enumerate(("", "lookup", "draft")))
def test_swaps_in_a_storm(seed: int, how: str, depth: int) -> None:
    draw = random.Random(seed)
    driver = guessing(how, draw, depth)
    names: dict[str, int] = {}
    wanted: dict[str, tuple[int | None, int]] = {}
    full = 0
    for number in range(200):
        name = draw.choice("abcd")
        action = draw.random()
        try:
            if action < 0.15:
                load(driver, name, number, in_place=draw.random() < 0.5)
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
    assert full, "the slots were never full"
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
        slots.take("a", 1)
    with pytest.raises(CapacityError, match="all 3 slots for adapters are taken"):
        slots.take("d", 1)
    driver.add(Request("r", [1, 2], replace(GREEDY, max_tokens=3), adapter="a"))
    with pytest.raises(CapacityError):
        slots.take("a", 1, in_place=True)  # its slot is in use, and no other is free
    slots.drop("a")
    with pytest.raises(CapacityError):
        slots.take("d", 1)  # the request goes on with it
    driver.run()
    assert slots.take("d", 1).slot == 2 or slots.names["d"].slot in range(SLOTS)
    with pytest.raises(UnsupportedError, match="compiled without room for adapters"):
        toy_driver().engine.adapters.take("a", 1)
