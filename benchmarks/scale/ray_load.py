"""Requests to a toy model on a real Ray, and how each of them ended. For `kills.py` and
`autoscale.py`, which say what happens to the replicas meanwhile.

Every token of the toy (tests/helpers/toy_model.py) depends on all before it, so that an answer of
which anything was lost, repeated or mixed up is another text; each is compared with what an engine
without Ray says.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)

from mlcc.api.errors import EngineDiedError
from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.scale.options import Scale
from mlcc.scale.routed_engine import RoutedEngine
from mlcc.scale.serving import RayEngine
from mlcc.server.asgi import Settings
from tests.helpers.processes import below, command_of
from tests.helpers.toy_model import open_toy
from tests.runtime.scale.ray_processes import replicas_below

TOKENS, PROMPTS, PATIENCE_S = 12, 400, 60
PARAMS = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
ENDS = ("whole", "told", "given_up", "lost", "twice", "wrong")
"""`whole` answers; streams that had begun and were `told` their end by the typed error, with what
came before being right; `given_up` = lost three times before anything was out; and what must be
none: `lost` (no end within a minute, or another error), `twice` (more than was asked for),
`wrong`."""


def prompts() -> list[list[int]]:
    """Of which four and more begin alike."""
    rng = random.Random(1)
    shared = [[rng.randrange(1, 90) for _ in range(32)] for _ in range(PROMPTS // 4)]
    return [
        [*rng.choice(shared), *(rng.randrange(1, 90) for _ in range(8))] for _ in range(PROMPTS)
    ]


class Storm:
    """Requests, and how they ended."""

    def __init__(self, client: RoutedEngine) -> None:
        self.client, self.expected, self.asked = client, answers(), prompts()
        self.ends = Counter[str](dict.fromkeys(ENDS, 0))
        self.times: list[float] = []
        self.odd: list[str] = []

    async def run(self, numbers: Iterator[int], streams: int, goes_on: Callable[[], bool]) -> None:
        """Those requests, so many at a time, as long as it goes on."""

        async def stream() -> None:
            while goes_on() and (number := next(numbers, None)) is not None:
                await self.one(number)

        await asyncio.gather(*(stream() for _ in range(streams)))

    async def one(self, number: int) -> float:
        """Ask, and count the end. Returns how many ms it took to the first token."""
        which, heard = number % PROMPTS, list[int]()
        began, first = time.perf_counter(), list[float]()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._hear(f"q{number}", self.asked[which], heard, first)
            end = "whole"
        except EngineDiedError as error:
            end = "told" if heard else "given_up"
            if error.code != "replica_lost":
                end = self._note(f"{number}: {error.code} {error}")
        except Exception as error:
            end = self._note(f"{number}: {error!r}")
        right = self.expected[which]
        if len(heard) > len(right):
            end = "twice"
        elif heard != right[: len(heard)] or (end == "whole" and heard != right):
            end = "wrong"
        self.ends[end] += 1
        self.times.append((time.perf_counter() - began) * 1e3)
        return ((first or [time.perf_counter()])[0] - began) * 1e3

    def found(self) -> dict[str, Any]:
        """What was counted."""
        times = sorted(self.times)
        return {
            "requests": len(times), **self.ends, "retried": self.client.retried,
            "p50_ms": round(median(times)), "p99_ms": round(times[int(len(times) * 0.99)]),
            "load": os.getloadavg()[0], "odd": self.odd[:5],
        }  # fmt: skip

    async def _hear(
        self, name: str, prompt: Sequence[int], heard: list[int], first: list[float]
    ) -> None:
        job = self.client.submit([Request(name, prompt, PARAMS)], None)
        try:
            async for _, event in job.events():
                first.append(time.perf_counter())
                heard += event.token_ids if isinstance(event, TextDelta) else ()
        finally:
            job.close()

    def _note(self, what: str) -> str:
        self.odd.append(what[:300])
        return "lost"


@contextmanager
def storming(scale: Scale, step_s: float) -> Iterator[Storm]:
    """On a cluster of its own, with a toy whose steps take so long."""
    behind = RayEngine(partial(open_toy, step_s), Settings(max_queue=256), "", scale)
    try:
        yield Storm(behind.client)
    finally:
        behind.close()


def replicas() -> list[int]:
    """The processes of the storm's replicas."""
    return replicas_below(os.getpid())


def engine_of(replica: int) -> int | None:
    """The process of a replica's engine, if it runs."""
    return next((pid for pid in below(replica) if b"spawn_main" in command_of(pid)), None)


def answers() -> list[list[int]]:
    """What an engine in this process says to each prompt."""
    model, found = open_toy(), [list[int]() for _ in range(PROMPTS)]
    engine = model.new_engine()
    for number, prompt in enumerate(prompts()):
        engine.add(Request(str(number), prompt, PARAMS))
    while (batch := engine.plan()) is not None:
        for event in engine.commit(model.executor.collect(model.executor.submit(batch))):
            if isinstance(event, TextDelta):
                found[int(event.request_id)] += event.token_ids
    return found
