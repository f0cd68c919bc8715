"""A server shortens the pauses of its event loop once all is loaded."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import httpx
import pytest

from mlcc.server.http import pauses
from mlcc.server.http.pauses import SWITCH_S, Collections
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
def due() -> Iterator[int]:
    """Objects made since a collection at which another one is due."""
    yield gc.get_threshold()[0]
    gc.enable()


def collections() -> int:
    """Those of all generations so far."""
    return sum(int(each["collections"]) for each in gc.get_stats())


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("large", ["many lists", "a long list"])
def test_a_collection_waits_for_large_requests_to_end(
    due: int, monkeypatch: pytest.MonkeyPatch, large: str, waits: bool
) -> None:
    """Python itself begins none, however many objects are made; at last it runs all the same."""
    gc.collect()
    objects = gc.get_objects()
    monkeypatch.setattr(pauses, "FEW_OBJECTS", len(objects) + 100_000)
    own = sum(map(sys.getsizeof, objects, repeat(0)))
    monkeypatch.setattr(pauses, "FEW_BYTES", own + (24 << 20))
    del objects
    monkeypatch.setattr(pauses, "CHECK_S", 0.001)
    monkeypatch.setattr(pauses, "LONGEST_S", 3600 if waits else 0)

    async def run() -> None:
        gc.collect()
        Collections(asyncio.get_running_loop()).start()
        before = collections()
        made = [[] for _ in range(200_000)] if large == "many lists" else [[]] * 4_000_000
        small = [[] for _ in range(2 * due)]
        assert collections() == before
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert (collections() == before) == waits
        made.clear()
        before = collections()
        small += [[] for _ in range(2 * due)]
        while collections() == before:
            await asyncio.sleep(0.002)

    asyncio.run(run())


def test_nothing_is_collected_before_it_is_due(due: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "CHECK_S", 0.001)
    monkeypatch.setattr(pauses, "FEW_OBJECTS", 1 << 40)
    monkeypatch.setattr(pauses, "FEW_BYTES", 1 << 60)

    async def run() -> None:
        gc.collect()
        Collections(asyncio.get_running_loop()).start()
        before = collections()
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert collections() == before and gc.get_count()[0] < due

    asyncio.run(run())
