"""A server shortens the pauses of its event loop once all is loaded."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlcc.server.http import pauses
from mlcc.server.http.pauses import SWITCH_S, FullCollections
from tests.runtime.server.helpers.server_process import running

PROGRAM = """
import atexit, gc, sys
from pathlib import Path
from tests.runtime.server.helpers.toy_server import main

NOTES = Path(__file__).with_suffix(".txt")

def note():
    figures = gc.get_freeze_count(), len(gc.get_objects()), sys.getswitchinterval()
    NOTES.write_text(" ".join(map(str, figures)))

if __name__ == "__main__":
    atexit.register(note)
    main()
"""


def test_the_collector_visits_few_objects_and_threads_take_short_turns(tmp_path: Path) -> None:
    program = tmp_path / "noting_server.py"
    program.write_text(PROGRAM)
    with running(program=program) as server:
        assert httpx.get(f"{server.url}/ready").status_code == 200
    frozen, visited, switch_s = program.with_suffix(".txt").read_text().split()
    assert int(frozen) > 10 * int(visited) > 0, "what was loaded is still visited"
    assert float(switch_s) == SWITCH_S


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """The collector's. What `tests/conftest.py` froze stays so: in a run of all tests a full
    collection would else visit all that they import, for a second, here and in later files."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def collections(generation: int) -> int:
    """Those of a generation so far."""
    return int(gc.get_stats()[generation]["collections"])


def work(thresholds: tuple[int, int, int]) -> None:
    """Make objects until a full collection is due by Python's rule."""
    while gc.get_count()[2] <= thresholds[2]:
        _ = [[] for _ in range(thresholds[0] * 2)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_full_collection_waits_for_large_requests_to_end(
    thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Python itself begins none, however many objects are made; at last it runs all the same."""
    monkeypatch.setattr(pauses, "FEW_BLOCKS", 100_000)
    monkeypatch.setattr(pauses, "CHECK_S", 0.001)
    monkeypatch.setattr(pauses, "PATIENCE_S", 3600 if waits else 1e-6)

    async def run() -> None:
        gc.collect()
        FullCollections(asyncio.get_running_loop()).start()
        before, young = collections(2), collections(0)
        made: list[Any] = [[] for _ in range(200_000)]
        work(thresholds)
        assert collections(2) == before and collections(0) > young, "those of young objects stay"
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert (collections(2) == before) == waits
        made.clear()
        before = collections(2)
        work(thresholds)
        while collections(2) == before:
            await asyncio.sleep(0.002)

    asyncio.run(run())


def test_nothing_is_collected_in_full_before_it_is_due(
    thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "CHECK_S", 0.001)
    monkeypatch.setattr(pauses, "FEW_BLOCKS", 1 << 40)

    async def run() -> None:
        gc.collect()
        FullCollections(asyncio.get_running_loop()).start()
        before = collections(2)
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert collections(2) == before and gc.get_count()[2] <= thresholds[2]

    asyncio.run(run())


class Node:
    """An object that can be part of a cycle."""

    other: Node | None = None


def test_a_cycle_that_forms_after_a_full_collection_is_found_by_the_next(
    thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a stream's that ran meanwhile."""
    monkeypatch.setattr(pauses, "CHECK_S", 0.001)
    monkeypatch.setattr(pauses, "PATIENCE_S", 1e-6)

    async def collected() -> None:
        before = collections(2)
        work(thresholds)
        while collections(2) == before:
            await asyncio.sleep(0.002)

    async def run() -> None:
        FullCollections(asyncio.get_running_loop()).start()
        one, two = Node(), Node()
        await collected()
        one.other, two.other = two, one
        found = weakref.ref(one)
        del one, two
        assert found() is not None
        await collected()
        assert found() is None

    asyncio.run(run())


def test_a_look_disturbs_no_other_thread(
    thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuple that another thread is filling must have one reference, or it fails."""
    monkeypatch.setattr(pauses, "CHECK_S", 0)
    monkeypatch.setattr(pauses, "FEW_BLOCKS", -1 << 40)
    made, ends = list[int](), threading.Event()

    def fill() -> None:
        while not ends.is_set():
            made.append(len(tuple(number for number in range(500))))

    async def run() -> None:
        looks = FullCollections(asyncio.get_running_loop())
        looks._due = -1
        looks.start()
        await asyncio.wait_for(asyncio.to_thread(lambda: time.sleep(0.3)), 60)
        ends.set()

    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(1) as threads:
            filling = threads.submit(fill)
            asyncio.run(run())
            filling.result()
    finally:
        sys.setswitchinterval(switch_s)
    assert made and {*made} == {500}
