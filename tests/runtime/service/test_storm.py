"""Random clients above the engine: many at once, disconnecting, with short timeouts, with invalid
requests. Each gets its answer or an error, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from mlcc.service.http.types import JSON_TYPE, ApiRequest, ApiResponse
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from tests.helpers.toy.toy_model import open_toy, toy_text

REQUESTS = 250
QUEUE = 12


def request(fields: Mapping[str, Any], tenant: str) -> ApiRequest:
    async def read() -> bytes:
        return json.dumps(fields).encode()

    return ApiRequest("POST", "/v1/completions", {"content-type": JSON_TYPE}, read, tenant)


def wish(draw: random.Random) -> dict[str, Any]:
    """The fields of a random request."""
    opening = draw.choice(["", "the same beginning, two pages of it, "])
    fields: dict[str, Any] = {
        "prompt": opening + "x" * draw.randint(1, 60),
        "max_tokens": draw.randint(1, 40),
        "stream": draw.random() < 0.5,
        "priority": draw.randint(-2, 2),
        "ignore_eos": draw.random() < 0.3,
    }
    if draw.random() < 0.15:
        fields["timeout"] = draw.choice([0.001, 0.01])
    if draw.random() < 0.1:
        fields |= draw.choice([{"priority": 1e9}, {"prompt": "y" * 600}, {"max_tokens": 0}])
    return fields


async def client(service: Service, seed: int) -> str:
    """Send a random request; returns its outcome."""
    draw = random.Random(seed)
    await asyncio.sleep(draw.random() / 4)
    fields, leaves = wish(draw), draw.random() < 0.25
    asking = asyncio.ensure_future(service.answer(request(fields, draw.choice(["", "t", "u"]))))
    if leaves and not fields["stream"]:
        await asyncio.sleep(draw.random() / 20)
        asking.cancel()
        await asyncio.wait([asking])
        if asking.cancelled():
            return "left"
    response = await asking  # or the answer came before the client left
    return str(response.status) if response.status != 200 else await _read(response, leaves)


async def _read(response: ApiResponse, leaves: bool) -> str:
    """Read an answer, all of it or, for a client that disconnects, a part."""
    try:
        if isinstance(response.body, str):
            assert json.loads(response.body)["choices"][0]["finish_reason"] in ("stop", "length")
            return "answered"
        lines = [line async for line in _some(response, 3 if leaves else 1 << 30)]
        if leaves:
            return "left"
        return "answered" if lines[-1].strip() == "data: [DONE]" else _failure(response)
    finally:
        response.close()


async def _some(response: ApiResponse, most: int) -> Any:
    assert not isinstance(response.body, str)
    async for line in response.body:
        yield line
        most -= 1
        if not most:
            return


def _failure(response: ApiResponse) -> str:
    error = response.failure()
    assert error is not None
    return str(error.http_status)


async def _storm(process: EngineThread, found: Counter[str]) -> None:
    engine = WorkerClient(process, QUEUE)
    engine.start()
    service = Service(OneModel(ServedModel(engine, toy_text())))
    found.update(await asyncio.gather(*(client(service, seed) for seed in range(REQUESTS))))
    assert engine.in_flight == 0
    for _ in range(10_000):  # the engine may still hear of the last who left
        stats = (await engine.counters())["engine"]
        if stats["running"] == stats["waiting"] == 0:
            break
    assert stats["pages_free"] == stats["pages"] and stats["in_flight"] <= 2
    engine.stop()


def test_a_storm_of_clients() -> None:
    before = set(threading.enumerate())
    process = EngineThread(partial(open_toy, delay=0.001))
    found: Counter[str] = Counter()
    try:
        asyncio.run(_storm(process, found))
    finally:
        process.close()
    assert found.total() == REQUESTS
    assert found.keys() <= {"answered", "left", "400", "503", "504"}, "none is a failure of ours"
    assert min(found[how] for how in ("answered", "left", "400")) > 0
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), f"{thread.name} goes on"
