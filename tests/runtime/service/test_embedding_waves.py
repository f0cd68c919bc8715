"""Texts are sent to the engine in waves: a step's rows, and at most half of the free queue."""

from __future__ import annotations

import asyncio
from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Finished
from mlcc.engine.request import Request
from mlcc.service.embeddings import Encoding
from mlcc.service.engine_client import EngineClient
from tests.helpers.toy.toy_model import CAPACITY


class Waves(EngineClient):
    """Answers each request at once, and counts those that are in flight together."""

    waves: list[int]

    @property
    def capacity(self) -> Capacity:
        return CAPACITY

    async def counters(self) -> dict[str, Any]:
        return {"engine": None}

    def _add(self, request: Request) -> None:
        first = int(request.id.rpartition("-")[2])
        row = array("f", [first]).tobytes()
        asyncio.get_running_loop().call_soon(self._answer, Finished(request.id, "stop", 1, 0,
                                                                    vector=row))  # fmt: skip

    def _answer(self, end: Finished) -> None:
        self._accept(end.request_id)
        self.waves.append(self.in_flight)
        self._deliver([end])

    def _cancel(self, request_id: str) -> None:
        raise AssertionError("all have ended")


def waves(queue: int, texts: int) -> list[int]:
    """The sizes of the waves, in their order."""

    async def run() -> list[int]:
        client = Waves(queue)
        client.waves = []
        made = object.__new__(Encoding)
        made._core = SimpleNamespace(engine=client)  # type: ignore[assignment]
        made._name, made._tenant, made._priority, made._field = "e", "", 0, "input"
        made._left, made._background = lambda: None, False
        rows = await made._rows([array("i", [1, 2])] * texts)
        assert [row[0] for row in rows.values] == [*range(texts)] and rows.tokens == 2 * texts
        assert not client.in_flight
        return client.waves

    found, sizes = asyncio.run(run()), []
    while found:
        sizes.append(found[0])
        found = found[found[0] :]
    return sizes


@pytest.mark.parametrize(
    ("queue", "texts", "sizes"),
    [(1, 2, [1, 1]), (2, 3, [1, 1, 1]), (3, 5, [2, 2, 1]), (4, 4, [2, 2]), (99, 9, [4, 4, 1])],
)
def test_a_wave_leaves_half_of_the_free_queue(queue: int, texts: int, sizes: list[int]) -> None:
    assert CAPACITY.max_batch == 4
    assert waves(queue, texts) == sizes
