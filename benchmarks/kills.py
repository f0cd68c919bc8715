"""Requests on a real Ray while its replicas are killed at random: how each of them ended.

    python benchmarks/kills.py [--requests 5000] [--replicas 3] [--streams 32] [--kill-s 8]
        [--seconds 600]

The model is a toy (tests/toy_model.py) whose every token depends on all before it, so that an
answer of which anything was lost, repeated or mixed up is another text; each is compared with what
an engine without Ray says. Every `--kill-s` seconds, on the average, a replica's process is killed
(SIGKILL), or one time in four the engine's below it; the last one that is there is spared, or the
time that starting one takes here would be all that is seen. Prints one JSON line: `whole` answers;
streams that had begun and `told` their end by the typed error, with what came before being right;
`given_up` = lost three times before anything was out; and what must be none: `lost` (no end within
a minute, or another error), `twice` (more than was asked for), `wrong`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "scale"))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)

from ray_processes import below, replicas_below
from toy_model import open_toy

from mlcc.api.errors import EngineDiedError
from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.scale.options import Scale
from mlcc.scale.routed import RoutedEngine
from mlcc.scale.serving import RayEngine
from mlcc.server.adapter import Settings

TOKENS, PROMPTS, PATIENCE_S = 12, 400, 60
PARAMS = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
ENDS = ("whole", "told", "given_up", "lost", "twice", "wrong")


def prompts() -> list[list[int]]:
    """Of which four and more begin alike."""
    rng = random.Random(1)
    shared = [[rng.randrange(1, 90) for _ in range(32)] for _ in range(PROMPTS // 4)]
    return [
        [*rng.choice(shared), *(rng.randrange(1, 90) for _ in range(8))] for _ in range(PROMPTS)
    ]


class Storm:
    """Requests, and how they ended."""

    def __init__(self, client: RoutedEngine, expected: Sequence[Sequence[int]]) -> None:
        self.client, self.expected, self.asked = client, expected, prompts()
        self.ends = Counter[str](dict.fromkeys(ENDS, 0))
        self.kills = Counter[str]()
        self.times: list[float] = []
        self.odd: list[str] = []

    async def one(self, number: int) -> None:
        """Ask, and count the end."""
        which, heard = number % PROMPTS, list[int]()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._hear(f"q{number}", self.asked[which], heard)
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

    async def _hear(self, name: str, prompt: Sequence[int], heard: list[int]) -> None:
        job = self.client.submit([Request(name, prompt, PARAMS)], None)
        try:
            async for _, event in job.events():
                heard += event.token_ids if isinstance(event, TextDelta) else ()
        finally:
            job.close()

    def _note(self, what: str) -> str:
        self.odd.append(what[:300])
        return "lost"

    async def kill(self, mean_s: float, seed: int) -> None:
        """One after another, until it is cancelled."""
        rng = random.Random(seed)
        while True:
            await asyncio.sleep(rng.expovariate(1 / mean_s))
            if len(replicas := replicas_below(os.getpid())) < 2:
                continue
            pid, what = rng.choice(replicas), "replica"
            if rng.random() < 0.25 and (engines := below(pid)):
                pid, what = max(engines), "engine"
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills[what] += 1

    async def run(
        self, requests: int, streams: int, kill_s: float, seed: int, most_s: float
    ) -> None:
        """All of them, so many at a time, or those that are begun by then."""
        numbers, end = iter(range(requests)), time.perf_counter() + most_s

        async def stream() -> None:
            for number in numbers:
                if time.perf_counter() > end:
                    return
                await self.one(number)

        killing = asyncio.ensure_future(self.kill(kill_s, seed))
        await asyncio.gather(*(stream() for _ in range(streams)))
        killing.cancel()


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--kill-s", type=float, default=8)
    parser.add_argument("--step-ms", type=float, default=12)
    parser.add_argument("--seconds", type=float, default=600, help="ask no longer than that")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    expected = answers()
    behind = RayEngine(
        partial(open_toy, args.step_ms / 1e3), Settings(max_queue=256), "", Scale(args.replicas)
    )
    try:
        storm = Storm(behind.client, expected)
        began = time.perf_counter()
        asyncio.run(storm.run(args.requests, args.streams, args.kill_s, args.seed, args.seconds))
        seconds = time.perf_counter() - began
    finally:
        behind.close()
    times = sorted(storm.times)
    found: dict[str, Any] = {"requests": len(times), **storm.ends, "kills": dict(storm.kills)}
    found |= {"retried": behind.client.retried, "seconds": round(seconds, 1)}
    found |= {"p50_ms": round(median(times)), "p99_ms": round(times[int(len(times) * 0.99)])}
    found |= {"load": os.getloadavg()[0], "odd": storm.odd[:5]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
