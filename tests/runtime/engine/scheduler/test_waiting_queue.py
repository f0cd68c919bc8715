"""The order of the waiting queue: priorities with aging, shares of tenants, and preemption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mlcc.engine import Request, SamplingParams
from mlcc.engine.scheduler import waiting_queue
from tests.runtime.engine.helpers.drive import SMALL, Driver, small, toy_driver

ALONE = replace(SMALL, max_batch=1)


def ask(name: str, priority: int = 0, tenant: str = "", tokens: int = 4) -> Request:
    """A request of 3 tokens, of which as many are computed as `tokens` + 2."""
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    return Request(name, [ord(name[0]) % 64, 1, 2], sampling, tenant, priority=priority)


def ended(driver: Driver, requests: Sequence[Request] = ()) -> list[str]:
    """The names of all requests, in the order in which they end."""
    for request in requests:
        driver.add(request)
    order: list[str] = []
    while driver.engine.has_work:
        driver.step()
        order += [n for n, got in driver.got.items() if got.finished and n not in order]
    return order


def test_lower_priority_numbers_first_then_arrival() -> None:
    driver = toy_driver(ALONE)
    driver.add(ask("a"))
    driver.step()
    later = [ask("b"), ask("c", 1), ask("d", -1), ask("e", -2), ask("f", -1)]
    assert ended(driver, later) == ["a", "e", "d", "f", "b", "c"], "a runs already"


def test_a_priority_ages_with_the_work_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_queue, "LEVEL", 10)
    driver = toy_driver(ALONE)
    for name in ("a", "z"):
        driver.add(ask(name, priority=2 * (name == "z")))
    came = iter("bcdefgh")
    order: list[str] = []
    while driver.engine.has_work:
        driver.step()
        order += [n for n, got in driver.got.items() if got.finished and n not in order]
        if len(driver.got) - len(order) < 2 and (name := next(came, None)):
            driver.add(ask(name))  # one that is better is always waiting
    # Each takes 6 tokens; z, worth 20 tokens of waiting, stands behind those that came before that.
    assert order.index("z") == 4, "b, c and d came at 6, 12 and 18, e at 24"


def test_tenants_take_turns_however_much_one_asks() -> None:
    driver = toy_driver(ALONE)
    flood = [ask(f"{n}", -5, "flood") for n in "abcdef"]
    assert ended(driver, [*flood, ask("x", 0, "t"), ask("y", 0, "t")]) == list("axbycdef")


def test_a_share_counts_tokens_and_not_requests() -> None:
    driver = toy_driver(ALONE)
    large = [ask(n, tenant="large", tokens=14) for n in "ab"]  # 16 tokens each
    assert ended(driver, [*large, *(ask(n, tenant="small") for n in "uvwx")]) == list("auvwbx")


def test_idling_saves_up_no_claim() -> None:
    driver = toy_driver(ALONE)
    ended(driver, [ask(n, tenant="busy") for n in "abc"])
    driver.add(ask("d", tenant="busy"))
    driver.step()
    late = [ask(n, tenant="idle") for n in "uvw"]
    order = ended(driver, [ask("e", tenant="busy"), ask("f", tenant="busy"), *late])
    assert order[3:] == list("duevfw")


def test_tenants_that_left_are_forgotten() -> None:
    driver = toy_driver()
    for n in range(50):
        ended(driver, [ask(f"{n}", tenant=f"t{n}")])
    line = driver.engine._scheduler.waiting
    assert not line._num_requests and not line._queues and len(line._served) == 1


def test_the_last_in_rank_gives_way_and_no_token_changes() -> None:
    for depth in (1, 2, 3):
        driver = toy_driver(small(pools=[8]), depth=depth)
        for name, priority in (("a", 3), ("b", 0), ("c", -3)):
            driver.add(ask(name, priority, tokens=16))
        order = ended(driver)
        assert driver.engine.stats().preemptions > 0
        assert order == ["c", "b", "a"], "a came first and gives way first"
        for name in "abc":
            alone = toy_driver(depth=depth)
            ended(alone, [ask(name, tokens=16)])
            assert alone.got[name].tokens == driver.got[name].tokens
