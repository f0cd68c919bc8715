"""Images between the steps of a tab: their rows are computed while the event loop runs, so requests
may come, go and fail meanwhile. The toy that sees, whose answers depend on each image."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlcc.device.toy.executor import ToyExecutor
from mlcc.embedded.driver import LoopDriver
from mlcc.embedded.executor import JsExecutor
from mlcc.engine.engine import Engine
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import AudioClip, ImageTile, Request, SamplingParams
from mlcc.errors import DeviceError
from mlcc.lora.loader import AdapterLoader
from mlcc.model.driver import Driver
from tests.helpers.toy.toy_tab import ToyGpu
from tests.runtime.multimodal.helpers.pictures import idefics3
from tests.runtime.multimodal.helpers.seeing_toy import (
    CAPACITY,
    FIRST,
    ToyTower,
    seeing_model,
    text_of,
)

TEXT = text_of(idefics3())
ROWS = 4


class SlowTower:
    """The toy's tower, whose rows come once `gate` is open; tiles named in `broken` fail."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: list[bytes] = []
        self.broken: set[bytes] = set()

    async def encode(self, tile: ImageTile) -> bytes:
        self.asked.append(tile.key)
        await self.gate.wait()
        if tile.key in self.broken:
            raise DeviceError("the tower failed")
        return ToyTower().encode(tile)


class Loop:
    """A driver in the event loop, and the events of each request."""

    def __init__(self) -> None:
        self.tower, self.events = SlowTower(), list[Event]()
        self.engine: Engine = TEXT.new_engine(CAPACITY)
        executor = JsExecutor(ToyGpu(CAPACITY))
        loader = AdapterLoader(self.engine, executor, None, lambda: 1 << 20)
        tower: Any = self.tower
        self._driver = LoopDriver(self.engine, executor, loader, self.events.extend, tower)
        self._task = asyncio.get_running_loop().create_task(self._driver.run())

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.engine.add(request)
        self._driver.wake()

    async def until(self, met: Any) -> None:
        for _ in range(1000):
            assert not self._task.done(), self._task.exception()
            if met():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it does not come to pass")

    async def idle(self) -> dict[str, list[int]]:
        """The tokens of each request, once all have ended."""
        await self.until(lambda: not self.engine.has_work)
        self.engine.check_integrity()
        self._task.cancel()
        return tokens_of(self.events)


def tokens_of(events: list[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, TextDelta):
            found.setdefault(event.request_id, []).extend(event.token_ids)
    return found


def request(name: str, *keys: str, tokens: int = 8) -> Request:
    """A question about images, of these keys."""
    prompt, images = [10, 11], []
    for key in keys:
        images.append(ImageTile(len(prompt), ROWS, key.encode(), b"", 1, 1))
        prompt += [FIRST] * ROWS + [12]
    sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    return Request(name, prompt, sampling, media=tuple(images))


def heard(name: str, key: str) -> Request:
    """A question about a clip of sound."""
    clip = AudioClip(2, ROWS, key.encode(), b"", 2 * ROWS)
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    return Request(name, [10, 11, *[FIRST] * ROWS, 12], sampling, media=(clip,))


def alone(wanted: Request) -> list[int]:
    """The answer of the driver that servers use."""
    driver = Driver(seeing_model(TEXT, ToyExecutor(CAPACITY)))
    driver.engine.add(wanted)
    events = []
    while driver.has_work:
        events += driver.step()
    return tokens_of(events)[wanted.id]


def test_answers_are_those_of_the_other_driver() -> None:
    requests = [request("a", "x", "y"), request("b"), request("c", "y", "z"), request("d", "x")]
    requests += [heard("e", "u"), heard("f", "v")]

    async def run() -> dict[str, list[int]]:
        loop = Loop()
        loop.tower.gate.set()
        loop.add(*requests)
        found = await loop.idle()
        assert sorted(loop.tower.asked) == [b"u", b"v", b"x", b"y", b"z"]
        return found

    found = asyncio.run(run())
    assert found == {each.id: alone(each) for each in requests}
    assert found["a"] != found["d"] and found["e"] != found["f"]


def test_a_request_that_is_cancelled_while_its_image_is_computed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def run() -> dict[str, list[int]]:
        loop = Loop()
        loop.add(request("gone", "x"))
        await loop.until(lambda: loop.tower.asked)
        loop.engine.cancel("gone")
        loop.tower.gate.set()
        await asyncio.sleep(0.02)  # the rows come, and there is nothing to compute
        loop.add(request("a", "x"))
        return await loop.idle()

    assert asyncio.run(run()) == {"a": alone(request("a", "x"))}
    assert not capsys.readouterr().err, "a step without work is no bug"


def test_a_tower_that_fails_ends_the_request_that_needs_it() -> None:
    async def run() -> tuple[dict[str, list[int]], list[Event]]:
        loop = Loop()
        loop.tower.broken = {b"bad"}
        loop.tower.gate.set()
        loop.add(request("text", tokens=20), request("a", "x"), request("b", "bad"))
        return await loop.idle(), loop.events

    found, events = asyncio.run(run())
    assert found == {
        each.id: alone(each) for each in (request("text", tokens=20), request("a", "x"))
    }
    (failed,) = [event for event in events if isinstance(event, Finished) and event.error]
    assert failed.request_id == "b" and "the tower failed" in str(failed.error)
