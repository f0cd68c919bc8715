"""Background requests: they run only while no other request does, and lose nothing by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.engine import Request, SamplingParams
from tests.runtime.engine.helpers.drive import SMALL, Driver, toy_driver

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def ask(name: str, background: bool = False, tenant: str = "", priority: int = 0) -> Request:
    prompt = [ord(name[0]) % 64, *range(1, 10)]
    return Request(name, prompt, GREEDY, tenant, priority=priority, background=background)


def running(driver: Driver) -> list[str]:
    return [seq.request.id for seq in driver.engine._scheduler.running]


def ended(driver: Driver) -> list[str]:
    """The names of all requests in the order in which they end."""
    order: list[str] = []
    while driver.engine.has_work:
        driver.step()
        order += [n for n, got in driver.got.items() if got.finished and n not in order]
    return order


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_batch_stands_aside_and_no_token_changes(depth: int) -> None:
    driver = toy_driver(SMALL, depth=depth)
    for name in "abc":
        driver.add(ask(name, background=True))
    for _ in range(6):
        driver.step()
    assert running(driver) == ["a", "b", "c"]
    driver.add(ask("x"))
    seen = set()
    while not driver.got["x"].finished:
        driver.step()
        seen.update(running(driver))
    assert seen <= {"x", "a"}, "only x ran; a may begin again in the step that ends x"
    ended(driver)
    for name in "abcx":
        alone = toy_driver(depth=depth)
        alone.add(ask(name))
        ended(alone)
        assert alone.got[name].tokens == driver.got[name].tokens
    assert driver.engine.stats().cached_tokens > 0, "what was computed before is not lost"


def test_neither_priority_nor_tenant_lets_a_batch_overtake() -> None:
    driver = toy_driver(replace(SMALL, max_batch=1))
    driver.add(ask("a", background=True, tenant="new", priority=-1000))
    for name in "xyz":
        driver.add(ask(name, tenant="busy", priority=9))
    assert ended(driver) == list("xyza")


def test_tenants_share_what_is_left_and_it_costs_them_no_share() -> None:
    driver = toy_driver(replace(SMALL, max_batch=1))
    for name, tenant in (("a", "one"), ("b", "one"), ("c", "one"), ("d", "two")):
        driver.add(ask(name, background=True, tenant=tenant))
    assert ended(driver) == list("adbc")
    for name in ("e", "f"):
        driver.add(ask(name, background=True, tenant="one"))
    for _ in range(4):
        driver.step()
    driver.add(ask("x", tenant="one"))
    driver.add(ask("y", tenant="two"))
    assert ended(driver)[-4:] == list("xyef"), "one's batch did not put x behind y"


def test_a_foreground_stream_is_patched_from_step_to_step_beside_a_batch() -> None:
    """What waits in the background does not cost a plan of each step."""
    driver = toy_driver(SMALL)
    driver.add(ask("a", background=True))
    driver.add(ask("x"))
    for _ in range(4):
        driver.step()
    assert driver.engine._decode_step is not None
    assert running(driver) == ["x"]


def test_a_failing_batch_is_isolated_while_a_request_waits() -> None:
    from mlcc.errors import DeviceError

    driver = toy_driver(SMALL)
    for name in "ab":
        driver.add(ask(name, background=True))
    for _ in range(3):
        driver.step()
    driver.tickets.clear()
    driver.take(driver.engine.recover(DeviceError("a step failed"), planning=False))
    driver.add(ask("x"))
    assert set(ended(driver)) == set("abx")
    assert all(got.finished and got.finished.reason == "length" for got in driver.got.values())
