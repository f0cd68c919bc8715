"""Load on real Ray replicas of the toy model, with a count of how each request ended.

For `replica_kills.py` and `autoscaling.py`, which change the replicas meanwhile. Every token of the
toy (tests/helpers/toy/toy_model.py) depends on all before it, so an answer in which a token is
lost, repeated or mixed up has another text; each is compared with the answer of an engine without
Ray.
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
from tests.helpers.toy.toy_model import open_toy
from tests.runtime.scale.ray_processes import replicas_below

TOKENS, PROMPTS, TIMEOUT_S = 12, 400, 60
PARAMS = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
OUTCOMES = ("complete", "aborted", "given_up", "lost", "twice", "wrong")
"""Keys of the JSON. `complete`: complete answers. `aborted`: a started stream ended with the typed
error, its tokens until then correct. `given_up`: three replicas were lost before the first token.
And three that must be zero: `lost` (no end within a minute, or another error), `twice` (more tokens
than requested), `wrong`."""


def prompts() -> list[list[int]]:
    """Token ids; about four prompts share each prefix."""
    rng = random.Random(1)
    shared = [[rng.randrange(1, 90) for _ in range(32)] for _ in range(PROMPTS // 4)]
    return [
        [*rng.choice(shared), *(rng.randrange(1, 90) for _ in range(8))] for _ in range(PROMPTS)
    ]


class RayLoad:
    """Requests to the replicas, and their outcomes."""

    def __init__(self, client: RoutedEngine) -> None:
        self.client, self.expected, self.prompts = client, answers(), prompts()
        self.outcomes = Counter[str](dict.fromkeys(OUTCOMES, 0))
        self.times: list[float] = []
        self.odd: list[str] = []

    async def run(self, numbers: Iterator[int], streams: int, goes_on: Callable[[], bool]) -> None:
        """Send the numbered requests, `streams` at a time, as long as `goes_on()`."""

        async def stream() -> None:
            while goes_on() and (number := next(numbers, None)) is not None:
                await self.one(number)

        await asyncio.gather(*(stream() for _ in range(streams)))

    async def one(self, number: int) -> float:
        """Send one request and count its outcome. Returns the ms to the first token."""
        index, tokens = number % PROMPTS, list[int]()
        start, first = time.perf_counter(), list[float]()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._stream(f"q{number}", self.prompts[index], tokens, first)
            outcome = "complete"
        except EngineDiedError as error:
            outcome = "aborted" if tokens else "given_up"
            if error.code != "replica_lost":
                outcome = self._note(f"{number}: {error.code} {error}")
        except Exception as error:
            outcome = self._note(f"{number}: {error!r}")
        expected = self.expected[index]
        if len(tokens) > len(expected):
            outcome = "twice"
        elif tokens != expected[: len(tokens)] or (outcome == "complete" and tokens != expected):
            outcome = "wrong"
        self.outcomes[outcome] += 1
        self.times.append((time.perf_counter() - start) * 1e3)
        return ((first or [time.perf_counter()])[0] - start) * 1e3

    def result(self) -> dict[str, Any]:
        """Counts and latencies, for the JSON line."""
        times = sorted(self.times)
        return {
            "requests": len(times), **self.outcomes, "retried": self.client.retried,
            "p50_ms": round(median(times)), "p99_ms": round(times[int(len(times) * 0.99)]),
            "load": os.getloadavg()[0], "odd": self.odd[:5],
        }  # fmt: skip

    async def _stream(
        self, name: str, prompt: Sequence[int], tokens: list[int], first: list[float]
    ) -> None:
        job = self.client.submit([Request(name, prompt, PARAMS)], None)
        try:
            async for _, event in job.events():
                first.append(time.perf_counter())
                tokens += event.token_ids if isinstance(event, TextDelta) else ()
        finally:
            job.close()

    def _note(self, text: str) -> str:
        self.odd.append(text[:300])
        return "lost"


@contextmanager
def ray_load(scale: Scale, step_s: float) -> Iterator[RayLoad]:
    """A Ray cluster of its own, with a toy model whose steps take `step_s`."""
    engine = RayEngine(partial(open_toy, step_s), Settings(max_queue=256), "", scale)
    try:
        yield RayLoad(engine.client)
    finally:
        engine.close()


def replicas() -> list[int]:
    """The process ids of the replicas."""
    return replicas_below(os.getpid())


def engine_of(replica: int) -> int | None:
    """The process id of a replica's engine, if it runs."""
    return next((pid for pid in below(replica) if b"spawn_main" in command_of(pid)), None)


def answers() -> list[list[int]]:
    """The answers of an engine in this process to the prompts."""
    model, found = open_toy(), [list[int]() for _ in range(PROMPTS)]
    engine = model.new_engine()
    for number, prompt in enumerate(prompts()):
        engine.add(Request(str(number), prompt, PARAMS))
    while (batch := engine.plan()) is not None:
        for event in engine.commit(model.executor.collect(model.executor.submit(batch))):
            if isinstance(event, TextDelta):
                found[int(event.request_id)] += event.token_ids
    return found
